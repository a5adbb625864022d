# SPDX-License-Identifier: Apache-2.0
"""The licences of what packages hold beside our own code: Debian's libraries and headers."""

import pathlib
import re
import subprocess
import sys

# Headers and static libraries whose code is inside of our programs.
COMPILED_IN = ("libboost1.74-dev", "libcli11-dev", "libtomlplusplus-dev", "nlohmann-json3-dev", "prometheus-cpp-dev",
               "libgrpc++-dev", "libprotobuf-dev", "libabsl-dev", "libspdlog-dev", "libfmt-dev")
COMMON = pathlib.Path("/usr/share/common-licenses")
HEAD = """\
Here are, beside Fairway itself (LICENSE), libraries of Debian as Debian built them, in lib/fairway (in a
wheel fairway/_native/lib/fairway), and code of the headers of some more packages.
The copyright file of each package is in the folder debian/, and the licences that these files name by
reference are in common-licenses/. The source of each package, in the version that is named here, is at
https://snapshot.debian.org/ and from Debian's mirrors.

The headers of XLA's PJRT and FFI interfaces, copyright The OpenXLA Authors, are used under the Apache
License 2.0 (LICENSE).

"""


def _query(*arguments):
    return subprocess.run(["dpkg-query", *arguments], text=True, capture_output=True).stdout.strip()


def package_of(library):
    """The Debian package that has the file, which may be known by its path before /usr was merged."""
    path = str(pathlib.Path(library).resolve())
    for candidate in (path, path.removeprefix("/usr"), "/usr" + path, str(library)):
        owner = _query("-S", candidate)
        if owner:
            return owner.splitlines()[0].split(":")[0]
    sys.exit(f"licences: no Debian package has {library}; it must not be in a package")


def write(folder, libraries, head=HEAD):
    """Fills `folder`; `libraries`: name -> path on this machine. `head` begins THIRD_PARTY.txt."""
    packages = {}
    for name, path in libraries.items():
        packages.setdefault(package_of(path), []).append(name)
    for package in COMPILED_IN:
        packages.setdefault(package, [])
    (folder / "debian").mkdir(parents=True)
    (folder / "common-licenses").mkdir()
    lines, referenced = [], set()
    for package, names in sorted(packages.items()):
        told = _query("-W", "-f", "${source:Package} ${source:Version}\n", package).splitlines()
        source = pathlib.Path("/usr/share/doc") / package / "copyright"
        if not told or not source.is_file():
            sys.exit(f"licences: package {package} or its copyright file {source} is not here")
        text = source.read_text(encoding="utf-8", errors="replace")
        (folder / "debian" / f"{package}.txt").write_text(text, encoding="utf-8")
        referenced |= set(re.findall(r"/usr/share/common-licenses/([A-Za-z]+[-0-9.]*\d|[A-Za-z]+)", text))
        what = ", ".join(sorted(names)) or "code of its headers"
        lines.append(f"{package} (source {told[0]}): {what}\n")
    for name in sorted(referenced):
        path = COMMON / name
        if path.is_file():
            (folder / "common-licenses" / f"{name}.txt").write_bytes(path.read_bytes())
    (folder / "THIRD_PARTY.txt").write_text(head + "".join(lines), encoding="utf-8")
