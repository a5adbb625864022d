# SPDX-License-Identifier: Apache-2.0
"""The programs of a finished build, as all packages have them: stripped, with a build id, and symbols apart."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ("fairway", "fairway-controller", "fairway-worker")
ZIP_BEGINS = 315532800  # 1980: what has no date gets this one
_ID_BYTES = 20
# What is before the id in the note that the linker makes for it (--build-id=sha1).
_NOTE = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"


def run(*command, **keywords):
    done = subprocess.run(list(map(str, command)), text=True, capture_output=True, **keywords)
    if done.returncode != 0:
        sys.exit(f"package: {' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def commit_time():
    """SOURCE_DATE_EPOCH: from the environment, else the time of the commit. Set for what is run later, too."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if not given:
        try:
            done = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(ROOT), "log", "-1",
                                   "--format=%ct"], text=True, capture_output=True)
            given = done.stdout.strip()
        except OSError:
            pass
    when = max(int(given or ZIP_BEGINS), ZIP_BEGINS)  # no checkout: all such have the same time
    os.environ["SOURCE_DATE_EPOCH"] = str(when)
    return when


def version(build):
    """The number that the command of the build has, which the Python package must have, too."""
    number = run(build / "bin" / "fairway", "--version").split()[-1]
    text = (ROOT / "client" / "python" / "pyproject.toml").read_text(encoding="utf-8")
    python = re.search(r'^version = "(.*)"', text, re.MULTILINE).group(1)
    if number != python:
        sys.exit(f"package: the command says version {number}, client/python/pyproject.toml {python}")
    return number


def _set_build_id(path, build_id):
    data = path.read_bytes()
    if data.count(_NOTE) != 1:
        sys.exit(f"package: {path.name} has not one build id; expected it linked with --build-id=sha1 "
                 "(fairway_shipped in cmake/FairwayTargets.cmake)")
    at = data.index(_NOTE) + len(_NOTE)
    path.write_bytes(data[:at] + build_id + data[at + len(build_id):])


def strip(path, symbols=None):
    """Strips the file, and gives it a build id made of what is left, which tells nothing of the build's folder.

    With `symbols`, a folder, debuggers find there what is stripped, by that id. Returns the id as text.
    """
    debug = path.with_name(path.name + ".debug")
    if symbols is not None:
        run("objcopy", "--only-keep-debug", "--compress-debug-sections", path, debug)
    run("strip", "--strip-unneeded", "--remove-section=.comment", path)
    _set_build_id(path, bytes(_ID_BYTES))
    build_id = hashlib.sha1(path.read_bytes(), usedforsecurity=False).digest()
    _set_build_id(path, build_id)
    name = build_id.hex()
    if symbols is not None:
        _set_build_id(debug, build_id)
        target = symbols / name[:2] / f"{name[2:]}.debug"
        target.parent.mkdir(parents=True, exist_ok=True)
        debug.rename(target)
    return name


def install(build, prefix):
    """bin/ of the build, not stripped."""
    run("cmake", "--install", build, "--prefix", prefix, "--component", "programs")
    return [prefix / "bin" / name for name in PROGRAMS]


def check_no_paths(tree):
    """No file may tell where it was built."""
    paths = [f"{path}/" for path in (ROOT, pathlib.Path.home()) if path != path.parent]
    for file in sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink()):
        data = file.read_bytes()
        for path in paths:
            if re.search(rb"(?<![\w./-])" + re.escape(path.encode()), data):
                sys.exit(f"package: {file.relative_to(tree)} contains the path {path} of this machine")


def describe(path):
    """A line about a file that was made."""
    data = path.read_bytes()
    print(f"{path} ({len(data) / 1e6:.1f} MB, sha256 {hashlib.sha256(data).hexdigest()[:16]}...)")
