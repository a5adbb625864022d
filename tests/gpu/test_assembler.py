# SPDX-License-Identifier: Apache-2.0
"""A plugin without nvJitLink executes the assembler: that file, and nothing else."""

import contextlib
import errno
import os
import pathlib
import re
import signal
import struct
import subprocess
import time

import programs
import pytest
from cluster import BIN, Cluster, wait_for
from compile_process import CompileProcess, Refused, work_of_children
from conftest import PLUGIN, TARGET

DRIVER = BIN.parent / "tests/driver"


@pytest.fixture(scope="module")
def without_nvjitlink(plugin, tmp_path_factory):
    """The plugin among packages without nvJitLink; the other files are links to the original ones."""
    packages, here = plugin.parents[2], tmp_path_factory.mktemp("packages")
    subprocess.run(["cp", "-rs", packages / "jax_plugins", packages / "nvidia", here], check=True)
    for library in here.rglob("libnvJitLink*"):
        library.unlink()
    # The executed file, and the plugin beside which it is searched, must not be links.
    for name in (PLUGIN, *(str(f.relative_to(packages)) for f in packages.rglob("ptxas"))):
        (here / name).unlink()
        try:
            os.link(packages / name, here / name)
        except OSError:
            subprocess.run(["cp", packages / name, here / name], check=True)
    return here / PLUGIN


def gone(pid):
    try:
        return ") Z " in pathlib.Path("/proc", str(pid), "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def children(pid):
    tasks = pathlib.Path("/proc", str(pid), "task")
    found = []
    for task in tasks.iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found += map(int, (task / "children").read_text().split())
    return found


def test_it_compiles_by_the_assembler(without_nvjitlink):
    with CompileProcess(without_nvjitlink, TARGET) as process:
        assert process.ready.status_message == b""  # nothing was refused
        assert b"\x7fELF" in process.compile(programs.elementwise()).code.native
        assert work_of_children(process.process.pid) > 0
        maps = pathlib.Path("/proc", str(process.process.pid), "maps").read_text()
        assert "libnvJitLink" not in maps
        status = pathlib.Path("/proc", str(process.process.pid), "status").read_text()
        assert re.search(r"^Seccomp:\s+2$", status, re.M)


def test_it_compiles_by_an_assembler_on_the_path(without_nvjitlink, tmp_path):
    """As where CUDA's toolkit is installed and the packages bring no assembler."""
    assembler = next(without_nvjitlink.parents[2].rglob("ptxas"))
    elsewhere = tmp_path / "ptxas"
    assembler.rename(elsewhere)
    try:
        environment = {**os.environ, "PATH": f"{os.environ['PATH']}:{tmp_path}"}
        with CompileProcess(without_nvjitlink, TARGET, environment=environment) as process:
            assert process.ready.status_message == b""
            assert b"\x7fELF" in process.compile(programs.elementwise()).code.native
    finally:
        elsewhere.rename(assembler)


def x86_64(code):
    """A program that needs no other file."""
    return struct.pack(
        "<16sHHIQQQIHHHHHHIIQQQQQQ", b"\x7fELF\2\1\1", 2, 62, 1, 0x400078, 64, 0, 0, 64, 56, 1, 0, 0, 0,
        1, 5, 0, 0x400000, 0x400000, 120 + len(code), 120 + len(code), 4096) + code


def leaves_trace(path):
    """A program that makes an empty file: creat(path, 0600); exit(0)."""
    code = b"\xb8\x55\0\0\0\xbf%s\xbe\x80\1\0\0\x0f\x05\xb8\x3c\0\0\0\x31\xff\x0f\x05"
    name = struct.pack("<I", 0x400078 + len(code) + 2)  # behind the code
    return x86_64(code.replace(b"%s", name) + bytes(path) + b"\0")


@contextlib.contextmanager
def in_the_place_of(assembler, program):
    kept = assembler.with_name("kept")
    assembler.rename(kept)
    try:
        assembler.write_bytes(program)
        assembler.chmod(0o755)
        yield
    finally:
        kept.rename(assembler)


def test_another_file_is_not_executed(without_nvjitlink, tmp_path):
    """The assembler is replaced after the process has determined which file it may execute. One that finds
    the other file there from the start executes it."""
    assembler, trace = next(without_nvjitlink.parents[2].rglob("ptxas")), tmp_path / "trace"
    with CompileProcess(without_nvjitlink, TARGET) as process:
        with in_the_place_of(assembler, leaves_trace(trace)):
            with pytest.raises(Refused, match="Failed to launch ptxas"):
                process.compile(programs.elementwise())
            assert not trace.exists()
            with pytest.raises(Refused, match="this worker has no compiler"):
                CompileProcess(without_nvjitlink, TARGET)
            assert trace.exists()


def test_no_assembler_outlives_its_process(without_nvjitlink):
    for _ in range(10):  # it may have ended before it is stopped
        with CompileProcess(without_nvjitlink, TARGET) as process:
            process.ask(programs.training_step())
            while not (running := children(process.process.pid)):
                assert process.process.poll() is None
                time.sleep(0.001)
            with contextlib.suppress(ProcessLookupError):
                os.kill(running[0], signal.SIGSTOP)
            stopped = not gone(running[0])
        if stopped:
            break
    assert stopped and process.process.returncode != 0

    wait_for(lambda: gone(running[0]), f"the assembler {running[0]} to end")


WAITS = x86_64(b"\xb8\x22\0\0\0\x0f\x05\xeb\xf7")  # for ever: pause(); again


def test_an_assembler_that_is_stuck_ends_at_the_compile_limit(without_nvjitlink, tmp_path):
    assembler = next(without_nvjitlink.parents[2].rglob("ptxas"))
    original = assembler.read_bytes()
    assembler.unlink()  # it may link to the file that all tests use
    assembler.write_bytes(original)
    assembler.chmod(0o755)

    def stuck(kernel=""):
        """The running assemblers of that kernel."""
        found = []
        for process in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError, IndexError):
                if process.name.isdigit() and os.readlink(process / "exe") == str(assembler):
                    source = (process / "cmdline").read_text().split("\0")[1]
                    if not kernel or kernel in pathlib.Path(source).read_text():
                        found.append(int(process.name))
        return found

    def replaced():
        """Writes another program into the file, which for Landlock stays the same. False: it is executed."""
        try:
            assembler.write_bytes(WAITS)
        except OSError as error:
            assert error.errno == errno.ETXTBSY
            return False
        return True

    environment = {"LD_LIBRARY_PATH": str(DRIVER), "TMPDIR": str(tmp_path), "FAIRWAY_DRIVER_GPUS": "1",
                   "FAIRWAY_COMPILE_LIMIT": "20s"}
    with Cluster(islands=1, devices=1, flags=["--plugin-kind=cuda", f"--plugin={without_nvjitlink}"],
                 environment=environment) as cluster:
        process = cluster.start_python("-c", """
import jax, jax.numpy as jnp, numpy as np
x = jax.device_put(np.arange(1000.0, dtype=np.float32), jax.devices()[0])
jax.jit(lambda x: x * 2).lower(x).compile()
print("compiled", flush=True)
input()
try:
    jax.jit(lambda x: jnp.sin(x)).lower(x).compile()
except jax.errors.JaxRuntimeError as error:
    print(str(error).replace(chr(10), " "), flush=True)
""")
        assert process.stdout.readline() == "compiled\n"
        wait_for(replaced, "no assembler to be at work")
        process.stdin.write("\n")
        process.stdin.flush()
        # Others may hang in the compilations with which compile processes start.
        at_work = wait_for(lambda: stuck("sine"), "an assembler to start")
        said, _ = process.communicate(timeout=600)
        assert "DEADLINE_EXCEEDED" in said and "(--compile-limit of the worker)" in said, said
        wait_for(lambda: all(gone(pid) for pid in at_work), f"{at_work} to end")
        # Its input stays.
        assert [file for file in tmp_path.rglob("*") if b".target sm_" in file.read_bytes()[:1 << 16]]
    wait_for(lambda: not stuck(), "every assembler to end with its worker")
