# SPDX-License-Identifier: Apache-2.0
"""Faults of a GPU and the order of gangs, over the stand-in plugin: it fails programs by their names
(stand_in/plugin.cc)."""

import os
import pathlib
import re
import signal
import subprocess
import sys
from itertools import pairwise

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/support")]

from accounting import anonymous_memory, entries  # noqa: E402
from cluster import BIN, Cluster, wait_for  # noqa: E402

PLUGIN = BIN.parent / "tests/fairway_stand_in_gpu.so"
FLAGS = ["--plugin-kind=cuda", f"--plugin={PLUGIN}"]
CHAIN = 100
MOST_GROWTH = 1 << 18  # bytes; six runs grew by 75 to 106 kB, and by nothing in 8,000 further failures

BEGINNING = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

island = [d for d in jax.devices() if d.id < 4]
other = [d for d in jax.devices() if d.id >= 4]
over = NamedSharding(Mesh(np.array(island), ("x",)), P("x"))

def named(name, body):
    body.__name__ = name
    return jax.jit(body)

def failure(call):
    try:
        jax.block_until_ready(call())
    except jax.errors.JaxRuntimeError as error:
        return str(error)
    return "it did not fail"
"""


@pytest.fixture(scope="module")
def hold(tmp_path_factory):
    """While this file exists, the ends of programs with "held" in their names are held back."""
    return tmp_path_factory.mktemp("stand-in") / "hold"


@pytest.fixture(scope="module")
def broken(hold):
    """While this file exists, the next call of an executor is a fault."""
    return hold.with_name("fault")


@pytest.fixture(scope="module")
def hang(hold):
    """While this file exists, the plugin does not end the creation of a client."""
    return hold.with_name("hang")


@pytest.fixture(scope="module")
def cluster(hold, broken, hang):
    # Workers share GPUs through files in TMPDIR. Other tests have other files, and so other GPUs.
    environment = {"TMPDIR": str(hold.parent), "FAIRWAY_STAND_IN_HOLD": str(hold),
                   "FAIRWAY_STAND_IN_FAULT": str(broken), "FAIRWAY_STAND_IN_HANG": str(hang),
                   "FAIRWAY_START_LIMIT": "10s"}
    with Cluster(flags=FLAGS, environment=environment) as cluster:
        yield cluster


def run(cluster, program):
    done = subprocess.run([sys.executable, "-c", BEGINNING + program], env=cluster.jax_environment(),
                          text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def island_is_up(cluster):
    return "island0 up" in cluster.cli("status", "--controller", cluster.address).stdout


def executor_pid(cluster, island="island0"):
    return next((p.pid for p in cluster.executors() if p.flag("island") == island), None)


def test_a_launch_for_which_the_plugin_has_no_memory_fails_and_the_next_runs(cluster):
    """Thousands of times: nothing leaks, neither in the executor nor in the accounting."""
    before = executor_pid(cluster)
    process = cluster.start_python("-c", BEGINNING + """
x = jax.device_put(np.arange(4.0), island[0])
failing = named("no_memory", lambda x: x + 1)
behind = jax.jit(lambda x: x * 2)
print(failure(lambda: failing(x)).split(chr(10))[0])
print(failure(lambda: behind(failing(x))).split(chr(10))[0])
for times in (100, 1000, 1001):
    for _ in range(times):
        assert failure(lambda: failing(x)).startswith("RESOURCE_EXHAUSTED")
    print(times, flush=True)
    input()
print(float(behind(x).sum()))
# Nearly all that the device has.
print(float(jnp.sum(jax.device_put(jnp.ones((900, 1 << 18), np.float32, device=island[0]), island[0])[0, :8])))
""")
    for _ in range(2):
        line = process.stdout.readline()
        assert line.startswith("RESOURCE_EXHAUSTED") and "Out of memory while trying to allocate" in line
        assert "no_memory" in line
    held = []
    for times in ("100\n", "1000\n", "1001\n"):
        assert process.stdout.readline() == times
        held.append((anonymous_memory(before), entries(before, "fd")))
        process.stdin.write("\n")
        process.stdin.flush()
    # What leaks does so each time; a thread that comes once, and its memory, do not.
    assert any(after[0] - before[0] < MOST_GROWTH and after[1] <= before[1] for before, after in pairwise(held)), held
    assert process.communicate(timeout=300)[0].splitlines() == ["12.0", "8.0"]
    assert executor_pid(cluster) == before, "the executor goes on"
    for name in ("fairway_device_memory_used_bytes", "fairway_arrays", "fairway_shard_groups"):
        wait_for(lambda: cluster.metrics().total(name) == 0, f"{name} to be 0")


def test_a_failure_while_there_is_no_memory_is_not_taken_for_a_fault(cluster):
    """The check whether the device works needs no memory."""
    before = executor_pid(cluster)
    said = run(cluster, """
x = jax.device_put(np.arange(4.0), island[0])
print(failure(lambda: named("fails_full", lambda x: x + 1)(x)).split(chr(10))[0])
for i in range(10):  # compiled anew, which takes far longer than the look at the device
    value = float(jax.jit(lambda x: (x * 2).sum() + i)(x))
print(value)
""").splitlines()
    assert said[0].startswith("INTERNAL") and "a library is missing" in said[0]
    assert said[1] == "21.0"
    assert executor_pid(cluster) == before


LOST = """
kept = jax.device_put(np.arange(4.0), island[1]) + 0  # computed: it lies there
elsewhere = jax.device_put(np.arange(4.0), other[0])
print(failure(lambda: named(NAME, lambda x: x / x.sum())(jax.device_put(np.arange(4.0), PLACE))).replace(chr(10), " "))
text = ""
while "DATA_LOSS" not in text:
    text = failure(lambda: kept + 1)
print(text)
assert float((elsewhere + 1).sum()) == 10
"""


@pytest.mark.parametrize("fault, place, cause", [
    ("lose_device", "island[0]", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    ("lose_later", "island[0]", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    ("lose_later", "over", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    ("one_device", "over", "device 1: cuLaunchKernel failed"),
    ("fails_on_one", "over", "device 1 of a gang failed, and others have not ended 15 s later"),
])
def test_a_fault_ends_the_executor_which_comes_back(cluster, fault, place, cause):
    """Arrays on the island are lost with the cause; the same session goes on with the other one."""
    before = executor_pid(cluster)
    first, said = run(cluster, LOST.replace("NAME", repr(fault)).replace("PLACE", place)).split("\n", 1)
    assert cause in first, first
    assert "exited with code 7 (its devices failed)" in said and cause in said, said
    wait_for(lambda: executor_pid(cluster) not in (None, before) and island_is_up(cluster),
             "island0 to come back")
    again = run(cluster, "print(float(jax.jit(jnp.sum)(jax.device_put(np.arange(8.0), over))))")
    assert again == "28.0\n"


FIRST = {
    "an upload": "jax.device_put(np.ones(1 << 15, np.float32), island[0])",
    "a copy to another device": "jax.device_put(large, island[1])",
    "a fetch": "np.asarray(large)",
    "a load": "compiled(kept)",
    "a launch": "again(kept)",
}


@pytest.mark.parametrize("call", FIRST)
def test_whatever_call_meets_a_fault_first_the_executor_ends(cluster, broken, call):
    """From that call on every call fails; no later launch would report it."""
    before = executor_pid(cluster)
    process = cluster.start_python("-c", BEGINNING + f"""
again = jax.jit(lambda x: x * 2)
kept = jax.block_until_ready(again(jax.device_put(np.arange(8.0, dtype=np.float32), island[0])))
large = jax.block_until_ready(again(jax.device_put(np.ones(1 << 18, np.float32), island[0])))
compiled = jax.jit(lambda x: x - {len(call)}).lower(kept).compile()
elsewhere = jax.block_until_ready(again(jax.device_put(np.arange(8.0, dtype=np.float32), other[0])))
print("ready", flush=True)
input()
print(failure(lambda: {FIRST[call]}).replace(chr(10), " "), flush=True)
input()
print(float(again(elsewhere).sum()), flush=True)
print(failure(lambda: kept + 1).replace(chr(10), " "))
""")
    assert process.stdout.readline() == "ready\n"
    there = executor_pid(cluster, "island1")
    broken.touch()
    try:
        process.stdin.write("\n")
        process.stdin.flush()
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in process.stdout.readline()
    finally:
        broken.unlink()
    wait_for(lambda: executor_pid(cluster) not in (None, before) and island_is_up(cluster),
             "island0 to come back")
    said, _ = process.communicate("\n", timeout=300)
    assert said.startswith("112.0\n") and executor_pid(cluster, "island1") == there, said
    assert "exited with code 7 (its devices failed)" in said and "CUDA_ERROR_ILLEGAL_ADDRESS" in said, said


@pytest.mark.parametrize("program", [
    "lambda x: x + 1",  # the plugin never reports its end
    "lambda x: jax.lax.while_loop(lambda x: x > 0, lambda x: x + 1 - 1, x)",  # it has no end
])
def test_what_does_not_end_is_ended_by_a_restart(cluster, hold, program):
    """Programs on the other island go on meanwhile."""
    hold.touch()
    process = cluster.start_python("-c", BEGINNING + f"""
x = jax.device_put(np.float32(1), island[0])
result = named("held", {program})(x)
print("launched", flush=True)
print(failure(lambda: result))
""")
    assert process.stdout.readline() == "launched\n"
    assert run(cluster, "print(float(jax.device_put(np.arange(4.0), other[0]).sum()))") == "6.0\n"
    worker = next(p.flag("name") for p in cluster.executors() if p.flag("island") == "island0")
    cluster.cli("restart", worker, "--controller", cluster.address)
    said, _ = process.communicate(timeout=300)
    assert "DATA_LOSS" in said and "it was ended by `fairway restart`" in said, said
    hold.unlink()
    wait_for(lambda: island_is_up(cluster), "island0 to come back")


def test_a_client_that_hangs_ends_at_its_limit_and_is_tried_again(tmp_path):
    hang = tmp_path / "hang"
    hang.touch()
    with open(tmp_path / "said", "w+") as said:
        worker = subprocess.Popen(
            [BIN / "fairway-worker", *FLAGS, "--controller=127.0.0.1:1", "--start-limit=3s"],
            stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            env={"FAIRWAY_STAND_IN_HANG": str(hang), "TMPDIR": str(tmp_path)})
        try:
            def text():
                return (tmp_path / "said").read_text()
            wait_for(lambda: text().count("has not ended within 3000 ms (--start-limit)") >= 2,
                     "two executors to end")
            assert "exited with code 8 (the plugin did not start in time); starting it again" in text()
            hang.unlink()
            # Now it gets as far as looking for the controller.
            wait_for(lambda: re.search(r"executor.*127\.0\.0\.1:1", text()), "an executor to start")
        finally:
            worker.terminate()
            worker.wait(timeout=240)


def test_a_client_that_hangs_holds_up_nobody_on_another_island_and_the_cause_is_told(cluster, hang):
    process = cluster.start_python("-c", BEGINNING + """
step = jax.jit(lambda x: x + 1)
x = jax.block_until_ready(step(jax.device_put(np.float32(0), other[0])))
print("ready", flush=True)
while input() == "step":
    x = step(x)
    print(float(x), flush=True)
""")
    assert process.stdout.readline() == "ready\n"
    before, there = executor_pid(cluster), executor_pid(cluster, "island1")
    hang.touch()
    try:
        os.kill(before, signal.SIGKILL)
        wait_for(lambda: executor_pid(cluster) not in (None, before), "another executor")
        for number in range(2, 5):
            process.stdin.write("step\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{float(number)}\n"
        wait_for(lambda: "has not ended within 10000 ms (--start-limit)" in
                 cluster.cli("logs", "w0", "--controller", cluster.address).stdout, "the limit")
        status = cluster.cli("status", "--controller", cluster.address).stdout
        assert "island0 DOWN" in status and "see `fairway logs w0`" in status
    finally:
        hang.unlink()
    wait_for(lambda: island_is_up(cluster), "island0 to come back")
    process.communicate("end\n", timeout=240)
    assert executor_pid(cluster, "island1") == there


@pytest.mark.parametrize("ahead", [4, 16, CHAIN])
def test_a_chain_of_gangs_is_handed_over_before_its_first_has_ended(tmp_path, ahead):
    """As far as --launches-ahead allows, collectives included; the results come with the launches. The
    other gangs here end by themselves: each one that a stream holds back takes one of the runtime's 24
    places."""
    log, hold = tmp_path / "log", tmp_path / "hold"
    environment = {"FAIRWAY_STAND_IN_LOG": str(log), "FAIRWAY_STAND_IN_HOLD": str(hold),
                   "FAIRWAY_LAUNCHES_AHEAD": str(ahead), "TMPDIR": str(tmp_path)}
    with Cluster(islands=1, flags=FLAGS, environment=environment) as cluster:
        process = cluster.start_python("-c", BEGINNING + f"""
begin, step = named("held", lambda x: x + x.sum()), named("step", lambda x: x / x.sum())
x = jax.device_put(np.arange(4, dtype=np.float32), over)
jax.block_until_ready(step(begin(x)))
print("compiled", flush=True)
input()
x = begin(x)
for _ in range({CHAIN - 1}):
    x = step(x)
print(np.asarray(x))
""")
        assert process.stdout.readline() == "compiled\n"
        log.write_text("")
        hold.touch()
        process.stdin.write("\n")
        process.stdin.flush()
        wait_for(lambda: log.read_text().count("execute") >= ahead, f"{ahead} gangs to be handed over")
        # The results of each, from four devices, are asked for although the first has not ended.
        wait_for(lambda: log.read_text().count("to host") >= 4 * ahead, "the results to be asked for")
        hold.unlink()
        said = process.communicate(timeout=300)[0]
        assert said == "[0.2        0.23333333 0.26666668 0.3       ]\n"
        lines = log.read_text().splitlines()
        assert [line for line in lines if line.startswith("execute")] == (
            ["execute jit_held"] + ["execute jit_step"] * (CHAIN - 1))
        before = lines[:lines.index("end jit_held")]
        assert before.count("to host") == 4 * ahead
        assert sum(line.startswith("execute") for line in before) == ahead
        # The executor got no fetch.
        assert cluster.metrics().total("fairway_executor_fetches_total") == 0
