# SPDX-License-Identifier: Apache-2.0
"""A plugin without nvJitLink executes the assembler: that file, and nothing else."""

import os
import pathlib
import re
import signal
import subprocess
import time

import programs
import pytest
from compile_process import CompileProcess, Refused
from conftest import PLUGIN, TARGET


@pytest.fixture(scope="module")
def without_nvjitlink(plugin, tmp_path_factory):
    """The plugin among packages of which nvJitLink is missing; the rest are links to the same files."""
    packages, here = plugin.parents[2], tmp_path_factory.mktemp("packages")
    subprocess.run(["cp", "-rs", packages / "jax_plugins", packages / "nvidia", here], check=True)
    for library in here.rglob("libnvJitLink*"):
        library.unlink()
    # The file that is executed, and the plugin beside which it is looked for, are no links.
    for name in (PLUGIN, *(str(f.relative_to(packages)) for f in packages.rglob("ptxas"))):
        (here / name).unlink()
        try:
            os.link(packages / name, here / name)
        except OSError:
            subprocess.run(["cp", packages / name, here / name], check=True)
    return here / PLUGIN


def children(process):
    tasks = pathlib.Path("/proc", str(process.process.pid), "task")
    return [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]


def test_it_compiles_by_the_assembler(without_nvjitlink):
    with CompileProcess(without_nvjitlink, TARGET) as process:
        assert process.ready.status_message == b""  # the system refused nothing
        assert b"\x7fELF" in process.compile(programs.elementwise()).code.native
        maps = pathlib.Path("/proc", str(process.process.pid), "maps").read_text()
        assert "libnvJitLink" not in maps
        status = pathlib.Path("/proc", str(process.process.pid), "status").read_text()
        assert re.search(r"^Seccomp:\s+2$", status, re.M)


def test_another_file_is_not_executed(without_nvjitlink):
    """The assembler's place is taken once the process has found out what it may execute."""
    assembler = next(without_nvjitlink.parents[2].rglob("ptxas"))
    with CompileProcess(without_nvjitlink, TARGET) as process:
        kept = assembler.with_name("kept")
        assembler.rename(kept)
        try:
            subprocess.run(["cp", "/bin/true", assembler], check=True)
            with pytest.raises(Refused, match="ptxas"):
                process.compile(programs.elementwise())
        finally:
            kept.rename(assembler)


def test_no_assembler_outlives_its_process(without_nvjitlink):
    with CompileProcess(without_nvjitlink, TARGET) as process:
        process.ask(programs.training_step())
        while not (running := children(process)):
            assert process.process.poll() is None
            time.sleep(0.001)
        os.kill(running[0], signal.SIGSTOP)
    assert process.process.returncode != 0

    def gone(pid):
        try:
            return ") Z " in pathlib.Path("/proc", str(pid), "stat").read_text()
        except FileNotFoundError:
            return True

    deadline = time.monotonic() + 60
    while not gone(running[0]):
        assert time.monotonic() < deadline, f"the assembler {running[0]} still runs"
        time.sleep(0.01)
