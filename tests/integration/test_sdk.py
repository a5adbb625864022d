# SPDX-License-Identifier: Apache-2.0
"""The C++ SDK as its users have it: installed, found by CMake from outside, against real clusters."""

import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from cluster import BIN, EXAMPLES, clean_environment, cpu_environment, run_python, wait_for
from test_lifecycle import pid_of

BUILD = BIN.parent
SOURCE = pathlib.Path(__file__).resolve().parent / "sdk_program"
EXPORT = """
import sys, jax, jax.numpy as jnp
exported = jax.export.export(jax.jit(lambda x: 2 * x + 1))(jax.ShapeDtypeStruct((4,), jnp.float32))
open(sys.argv[1], "wb").write(exported.mlir_module_serialized)
open(sys.argv[2], "w").write(exported.mlir_module())
"""


def command(*arguments):
    done = subprocess.run(list(map(str, arguments)), text=True, capture_output=True, timeout=600)
    assert done.returncode == 0, f"{arguments}\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="session")
def prefix(tmp_path_factory):
    """The folder where it is installed."""
    path = tmp_path_factory.mktemp("prefix")
    command("cmake", "--install", BUILD, "--prefix", path)
    return path


def built(source, prefix, work):
    """The build folder of a copy of `source` outside of the repository."""
    copy, build = work / "source", work / "build"
    shutil.copytree(source, copy)
    command("cmake", "-S", copy, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}",
            "-DCMAKE_BUILD_TYPE=Release")
    command("cmake", "--build", build)
    return build


@pytest.fixture(scope="session")
def program(prefix, tmp_path_factory):
    return built(SOURCE, prefix, tmp_path_factory.mktemp("sdk")) / "sdk_program"


def test_the_commands_of_the_examples_build_the_library_before_they_install_it():
    text = (EXAMPLES / "cpp" / "CMakeLists.txt").read_text()
    assert -1 < text.find("# ./dev build fairway_client ") < text.find("# cmake --install ")


def test_the_headers_show_nothing_of_what_the_library_is_made_of(prefix):
    headers = list((prefix / "include" / "fairway").iterdir())
    assert headers
    for header in headers:
        for include in re.findall(r"#include [<\"](.*)[>\"]", header.read_text()):
            assert include.startswith("fairway/") or "/" not in include and "." not in include


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], text=True, capture_output=True,
                          env=clean_environment(), timeout=600)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def nothing_left(cluster):
    for name in ("fairway_sessions", "fairway_arrays", "fairway_shard_groups",
                 "fairway_nodes_unfinished", "fairway_device_memory_used_bytes"):
        wait_for(lambda: cluster.metrics().total(name) == 0, f"{name} to be 0")


@pytest.mark.parametrize("runtime", ["host", "sim"])
def test_on_native_runtimes(program, new_cluster, runtime):
    cluster = new_cluster(2, 2, (f"--runtime={runtime}",))
    run(program, cluster.address, runtime)
    nothing_left(cluster)


@pytest.mark.parametrize("runtime", ["host", "sim"])
def test_a_client_that_is_killed_leaves_nothing(program, new_cluster, runtime):
    cluster = new_cluster(2, 2, (f"--runtime={runtime}",))
    client = subprocess.Popen([program, cluster.address, "hold"], env=clean_environment(), text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert client.stdout.readline() == "holding\n"
        wait_for(lambda: cluster.metrics().total("fairway_arrays") >= 2000, "its arrays")
    finally:
        client.kill()
        client.communicate()
    nothing_left(cluster)
    run(program, cluster.address, runtime)


def test_simulated_devices_have_more_memory_than_this_host(program, new_cluster):
    cluster = new_cluster(1, 1, ("--runtime=sim", "--device-memory=100GiB"))
    client = subprocess.Popen([program, cluster.address, "large"], env=clean_environment(), text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert client.stdout.readline() == "holding\n"
        assert cluster.metrics().total("fairway_device_memory_used_bytes") >= 80e9
        status = pathlib.Path(f"/proc/{pid_of(cluster, 'w0', 'executor')}/status").read_text()
        assert int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) < 1 << 20, status
        said, _ = client.communicate("go on\n", timeout=240)
    finally:
        client.kill()
    assert client.returncode == 0, said


def test_on_pjrt(program, new_cluster, tmp_path):
    bytecode, text = tmp_path / "f.bytecode", tmp_path / "f.mlir"
    run_python("-c", EXPORT, bytecode, text, env=cpu_environment(1))
    cluster = new_cluster(2, 2)
    for file in (bytecode, text):
        run(program, cluster.address, "pjrt", file)
    nothing_left(cluster)


@pytest.fixture(scope="session")
def examples(prefix, tmp_path_factory):
    return built(EXAMPLES / "cpp", prefix, tmp_path_factory.mktemp("examples"))


def test_the_first_example(examples, new_cluster):
    cluster = new_cluster(1, 1, ("--runtime=host",))
    assert run(examples / "first", cluster.address).splitlines()[-1].split() == [
        "27", "54", "81", "108"]


def test_the_pipeline_learns_without_python(examples, new_cluster, tmp_path):
    run_python(EXAMPLES / "cpp" / "export_digits.py", tmp_path, env=cpu_environment(4))
    cluster = new_cluster(2, 4)
    said = run(examples / "digits", cluster.address, tmp_path, 200)
    assert float(said.split("test accuracy:")[1]) > 0.95, said
    nothing_left(cluster)


@pytest.mark.parametrize("runtime", ["host", "sim"])
def test_programs_on_native_runtimes(program, new_cluster, runtime):
    cluster = new_cluster(2, 2, (f"--runtime={runtime}",))
    run(program.parent / "programs", cluster.address)
    nothing_left(cluster)


def test_programs_on_pjrt(program, new_cluster, tmp_path):
    bytecode = tmp_path / "f.bytecode"
    run_python("-c", EXPORT, bytecode, tmp_path / "f.mlir", env=cpu_environment(1))
    cluster = new_cluster(2, 2)
    run(program.parent / "programs", cluster.address, bytecode)
    nothing_left(cluster)


@pytest.mark.parametrize("runtime", ["host", "sim"])
def test_an_executor_killed_while_runs_of_a_program_are_in_flight(program, new_cluster, runtime):
    cluster = new_cluster(2, 2, (f"--runtime={runtime}",))
    client = subprocess.Popen([program.parent / "programs", cluster.address, "flying"], text=True,
                              env=clean_environment(), stdout=subprocess.PIPE)
    try:
        assert client.stdout.readline() == "flying\n"
        os.kill(pid_of(cluster, "w1", "executor"), signal.SIGKILL)
        said, _ = client.communicate(timeout=240)
    finally:
        client.kill()
    assert client.returncode == 0, said
    nothing_left(cluster)
