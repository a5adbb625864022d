# SPDX-License-Identifier: Apache-2.0
"""Makes Debian packages: package/deb.py --build build/release --out build/package

Out of a finished build (`./dev package deb` sees to that) and deploy/. They are for the Debian whose libraries the build is
linked to. What is inside, and why: docs/design/0080-packages.md.
"""

import argparse
import gzip
import hashlib
import os
import pathlib
import shutil
import time

import licences
import programs
from programs import ROOT, run

DEPLOY = ROOT / "deploy"
UNITS = ("fairway-controller.service", "fairway-worker.service")
SETTINGS = ("controller.toml", "worker.toml")
SCRIPTS = ("postinst", "prerm", "postrm")
PAGES = ("alerts.md", "install.md", "metrics.md", "settings.md")
REVISION = "1"
THIRD_PARTY = """\
Code of the headers and static libraries of these Debian packages is in the programs of this package.
Their copyright files are in the folder debian/; the licences that these name are in
/usr/share/common-licenses. Their sources are at https://snapshot.debian.org/ and on Debian's mirrors.

The headers of XLA's PJRT and FFI interfaces, copyright The OpenXLA Authors, are used under the Apache
License 2.0.

"""


def copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def pack(data, target):
    """Compresses bytes into a file, the same ones for the same bytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(data, 9, mtime=0))


def maintainer():
    """Of whoever packs, by the variables of Debian's own tools."""
    name = os.environ.get("DEBFULLNAME", "Fairway developers")
    return f"{name} <{os.environ.get('DEBEMAIL', 'maintainers@fairway.invalid')}>"


def control(name, **values):
    """The file deploy/debian/NAME with its @VALUES@."""
    text = (DEPLOY / "debian" / name).read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key.upper()}@", value)
    return text


def needed_packages(files, work):
    """The Depends of programs, by the libraries that they are linked to."""
    (programs.fresh(work) / "debian").mkdir()
    (work / "debian" / "control").write_text("Source: fairway\n\nPackage: fairway\nArchitecture: any\n")
    told = run("dpkg-shlibdeps", "-O", *(f"-e{path}" for path in files), cwd=work)
    return told.strip().removeprefix("shlibs:Depends=")


def kibibytes(tree):
    """Installed-Size, counted as dpkg-gencontrol does."""
    files = [path for path in tree.rglob("*") if "DEBIAN" not in path.relative_to(tree).parts]
    return sum(-(-path.lstat().st_size // 1024) if path.is_file() and not path.is_symlink() else 1 for path in files)


def pack_deb(tree, text, target, when):
    """Packs `tree`, whose control file is `text`; the same files and `when` give the same bytes."""
    meta = tree / "DEBIAN"
    meta.mkdir(exist_ok=True)
    (meta / "control").write_text(text.replace("@SIZE@", str(kibibytes(tree))), encoding="utf-8")
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    kept = [path for path in files if meta not in path.parents and path.relative_to(tree).parts[0] != "etc"]
    (meta / "md5sums").write_text("".join(
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(tree)}\n"
        for path in kept))
    for path in [tree, *sorted(tree.rglob("*"))]:
        runs = path.parent.name == "bin" or (path.parent == meta and path.name in SCRIPTS)
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or runs else 0o644)
        os.utime(path, (when, when), follow_symlinks=False)
    # One thread: by more of them xz would cut its input into blocks.
    level = "1" if "dbgsym" in target.name else "6"  # what is compressed already
    run("dpkg-deb", "--root-owner-group", "--threads-max=1", "-Zxz", f"-z{level}", "--build", tree, target)
    programs.describe(target)


def documents(tree, version, when):
    """/usr/share/doc/fairway."""
    doc = tree / "usr" / "share" / "doc" / "fairway"
    copy(DEPLOY / "debian" / "copyright", doc / "copyright")
    for page in PAGES:
        copy(ROOT / "docs" / page, doc / page)
    copy(DEPLOY / "prometheus" / "fairway.rules.yaml", doc / "fairway.rules.yaml")
    pack((ROOT / "CHANGELOG.md").read_bytes(), doc / "changelog.gz")
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(when))
    upstream = version.rpartition("-")[0]
    entry = (f"fairway ({version}) unstable; urgency=medium\n\n  * Release {upstream}: changelog.gz has what is new.\n\n"
             f" -- {maintainer()}  {date}\n")
    pack(entry.encode(), doc / "changelog.Debian.gz")
    licences.write(doc / "third-party", {}, THIRD_PARTY)
    shutil.rmtree(doc / "third-party" / "common-licenses")  # every Debian has these


def package(build, work, version, out, when):
    """fairway and fairway-dbgsym."""
    tree, apart = work / "fairway", work / "fairway-dbgsym"
    architecture = run("dpkg", "--print-architecture").strip()
    shipped = programs.install(build, tree / "usr")
    symbols = apart / "usr" / "lib" / "debug" / ".build-id"
    ids = [programs.strip(path, symbols) for path in shipped]
    depends = needed_packages(shipped, work / "shlibdeps")
    # OpenBLAS for threads, whatever flavour the alternatives of the machine point to: where the programs look first.
    private = tree / "usr" / "lib" / "fairway" / "libopenblas64.so.0"
    private.parent.mkdir(parents=True)
    private.symlink_to(f"../{run('dpkg-architecture', '-qDEB_HOST_MULTIARCH').strip()}/openblas64-pthread/{private.name}")
    for unit in UNITS:
        copy(DEPLOY / "systemd" / unit, tree / "lib" / "systemd" / "system" / unit)
    for name in SETTINGS:
        copy(DEPLOY / "settings" / name, tree / "etc" / "fairway" / name)
    documents(tree, version, when)
    (tree / "DEBIAN").mkdir()
    for name in SCRIPTS:
        copy(DEPLOY / "debian" / name, tree / "DEBIAN" / name)
    (tree / "DEBIAN" / "conffiles").write_text("".join(f"/etc/fairway/{name}\n" for name in SETTINGS))
    link = apart / "usr" / "share" / "doc" / "fairway-dbgsym"
    link.parent.mkdir(parents=True)
    link.symlink_to("fairway")
    programs.check_no_paths(tree)
    told = {"version": version, "architecture": architecture, "maintainer": maintainer()}
    for folder, text in ((tree, control("control", depends=depends, **told)),
                         (apart, control("control-dbgsym", build_ids=" ".join(sorted(ids)), **told))):
        pack_deb(folder, text, out / f"{folder.name}_{version}_{architecture}.deb", when)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    when = programs.commit_time()
    out, build = args.out.resolve(), args.build.resolve()
    work = programs.fresh(out / "work-deb")
    for old in out.glob("fairway*.deb"):
        old.unlink()
    package(build, work, f"{programs.version(build)}-{REVISION}", out, when)
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
