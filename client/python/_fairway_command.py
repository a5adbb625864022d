# SPDX-License-Identifier: Apache-2.0
"""The command `fairway`, as pip installs it: it becomes the program of that name in the wheel.

A module outside of the package, because importing that brings numpy, which takes ten times as long as
the work here.
"""

import importlib.util
import os
import pathlib
import sys

_LACKS = (
    "this is the Python package alone, without the command line, the daemons and the C++ SDK: install "
    "Fairway's wheel (`./dev package wheel` makes it in a checkout), or `./dev build` there and use "
    "build/release/bin"
)


class Missing(RuntimeError):
    """The package was installed without the programs; the text is one line that says what to do."""


def prefix() -> pathlib.Path:
    """Returns the folder of the wheel that has bin/, lib/ and include/.

    Raises:
      Missing: the package did not come from a wheel with these folders.
    """
    spec = importlib.util.find_spec("fairway")  # looks at folders; imports nothing
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = pathlib.Path(folder) / "_native"
        if (path / "bin" / "fairway").is_file():
            return path
    raise Missing(_LACKS)


def cpu_plugin() -> str | None:
    """The PJRT plugin for CPUs in this Python environment (package xla-cpu-pjrt)."""
    try:
        spec = importlib.util.find_spec("xla_plugins.xla_cpu_pjrt")
    except ImportError:
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = os.path.join(folder, "xla_cpu_pjrt.so")
        if os.path.isfile(path):
            return path
    return None


def main() -> None:
    """Replaces this process by the program, with the same arguments."""
    try:
        program = prefix() / "bin" / "fairway"
    except Missing as error:
        sys.exit(f"fairway: {error}")
    if sys.argv[1:2] and sys.argv[1] in ("up", "doctor", "diagnose") and "FAIRWAY_PJRT_PLUGIN" not in os.environ:
        plugin = cpu_plugin()
        if plugin:
            os.environ["FAIRWAY_PJRT_PLUGIN"] = plugin
    try:
        os.execv(program, ["fairway", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"fairway: cannot start {program}: {error.strerror}; install the wheel anew")
