# SPDX-License-Identifier: Apache-2.0
"""Makes the tarball: package/tarball.py --out build/package

Out of the wheel that lies there (`./dev package tarball` makes it first): its programs, their libraries, the SDK and the
licences, without Python. It may be unpacked anywhere, since the programs find their libraries beside them.
"""

import argparse
import gzip
import io
import pathlib
import sys
import tarfile
import zipfile

import programs
from programs import ROOT

NATIVE = "fairway/_native/"  # of the wheel
LICENCES = ".dist-info/licenses/"


def contents(wheel):
    """Name in the tarball -> (bytes, mode)."""
    out = {}
    with zipfile.ZipFile(wheel) as file:
        for entry in file.infolist():
            name = entry.filename
            if name.startswith(NATIVE):
                out[name.removeprefix(NATIVE)] = file.read(entry), entry.external_attr >> 16 & 0o777
            elif LICENCES in name:
                out["licenses/" + name.partition(LICENCES)[2]] = file.read(entry), 0o644
    for folder in ("settings", "systemd"):
        for path in (ROOT / "deploy" / folder).iterdir():
            out[f"share/fairway/{folder}/{path.name}"] = path.read_bytes(), 0o644
    return out


def write(target, top, files, when):
    """The same files and `when` give the same bytes."""
    folders = {str(parent) for name in files for parent in pathlib.PurePosixPath(name).parents}
    with target.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(folders | files.keys()):
            entry = tarfile.TarInfo(top if name == "." else f"{top}/{name}")
            entry.mtime, entry.uname, entry.gname = when, "root", "root"
            if name in folders:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            else:
                data, entry.mode = files[name]
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    out = parser.parse_args().out.resolve()
    when = programs.commit_time()
    wheels = list(out.glob("fairway-*.whl"))
    if len(wheels) != 1:
        sys.exit(f"tarball: expected one wheel in {out}, found {len(wheels)}; ./dev package tarball makes it first")
    version = wheels[0].name.split("-")[1]
    top = f"fairway-{version}"
    for old in out.glob("fairway-*.tar.gz"):
        old.unlink()
    target = out / f"{top}-linux-x86_64.tar.gz"
    write(target, top, contents(wheels[0]), when)
    programs.describe(target)


if __name__ == "__main__":
    main()
