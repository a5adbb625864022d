# SPDX-License-Identifier: Apache-2.0
"""What shared libraries and programs need, as objdump and the dynamic linker tell it."""

import pathlib
import re
import subprocess

# Of glibc: together with the kernel they are what a machine must bring.
_LIBC = re.compile(
    r"^(ld-linux-x86-64|libc|libm|libmvec|libpthread|libdl|librt|libresolv|libutil|libanl)\.so\.\d+$")


def is_libc(name):
    return bool(_LIBC.match(name))


def _objdump(option, path):
    return subprocess.run(["objdump", option, str(path)], text=True, capture_output=True,
                          check=True).stdout


def needed(path):
    """The libraries that the file names itself."""
    return re.findall(r"^\s*NEEDED\s+(\S+)$", _objdump("-p", path), re.MULTILINE)


def search_path(path):
    """(DT_RPATH, DT_RUNPATH) of the file; None: it has none."""
    text = _objdump("-p", path)
    found = (re.search(rf"^\s*{tag}\s+(\S+)$", text, re.MULTILINE) for tag in ("RPATH", "RUNPATH"))
    return tuple(match and match.group(1) for match in found)


def glibc_floor(path):
    """The oldest glibc that has all symbols which the file needs, as (2, 36)."""
    text = _objdump("-T", path)
    versions = re.findall(r"\(?GLIBC_(\d+)\.(\d+)", text)
    return max(((int(major), int(minor)) for major, minor in versions), default=(2, 17))


def libraries(path, with_libc=False):
    """Name -> path of all that the dynamic linker loads for the file, but for the C library; or with it, and the linker itself."""
    out = subprocess.run(["ldd", str(path)], text=True, capture_output=True, check=True).stdout
    found = {}
    for name, where in re.findall(r"^\s*(\S+) => (.+?)(?: \(0x[0-9a-f]+\))?$", out, re.MULTILINE):
        if where == "not found":
            raise FileNotFoundError(f"{path} needs {name}, which is not on this machine")
        if with_libc or not is_libc(name):
            found[name] = where
    if with_libc:
        (linker,) = re.findall(r"^\s*(/\S+/ld-linux-\S+) \(0x[0-9a-f]+\)$", out, re.MULTILINE)
        found[pathlib.Path(linker).name] = linker
    return found
