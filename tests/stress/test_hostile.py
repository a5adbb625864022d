# SPDX-License-Identifier: Apache-2.0
"""Clients that take more than their share. Beside each, a neighbour with a device of its own goes on."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from cluster import BIN, EXAMPLES, ROOT, Cluster, clean_environment, wait_for
from hostile import run_case
from hostile_cases import CASES
from raw_client import ALWAYS_COPY, REUSE, Session

SECONDS = 1  # for cases without an end of their own

# The most units of one turn: a slice of each session and uninterruptible work. Of the core (Cluster::units) and of
# an executor's core (WorkMeter), which both have turns of 1,000.
TURN_UNITS = 2500
EXECUTOR_TURN_UNITS = 2500
CONTROLLER_MIB = 1024

# A neighbour that takes longer for one step stands still: not how fast it is, but that it goes on.
LONGEST_STEP = 10
LONGEST_STEP_IF_ALL_STOPS = 20  # the controller is stopped for 11 s
# A case that takes longer than this leaves the neighbour time for a step, however busy the machine.
BRIEF = 6

# A loop that goes 2,000 times from one island to the other and back: 8,000 steps per call.
MANY_STEPS = """# proto-file: proto/fairway/v1/program.proto
# proto-message: fairway.v1.Program
name: "pingpong"
slices { name: "a" devices: 2 }
slices { name: "b" devices: 2 }
computations { name: "double" devices: 2
  kernels { name: "double" parameters { dtype: 11 global_dims: [8] tiles: [2] }
    steps { kernel: "scale" operands: [0] factor: 1 } results { value: 1 tiles: [2] } }
  parameters { dtype: 11 dims: [8] tiles: [2] } results { dtype: 11 dims: [8] tiles: [2] } }
graphs {
  nodes { name: "x" argument { type { slice: 0 array { dtype: 11 dims: [8] tiles: [2] } } } }
  nodes { name: "l" loop { body: 1 count: 2000 inputs { node: 0 } } }
  results { node: 1 } }
graphs {
  nodes { name: "x" argument { type { slice: 0 array { dtype: 11 dims: [8] tiles: [2] } } } }
  nodes { name: "b" compute { computation: 0 slice: 1 inputs { node: 0 } } }
  nodes { name: "a" compute { computation: 0 slice: 0 inputs { node: 1 } } }
  results { node: 2 } }
"""


@pytest.mark.parametrize("name", sorted(set(CASES) - {"burn"}))
def test_nobody_else_is_hurt(name, tmp_path):
    case = CASES[name]
    seen = run_case(case, tmp_path, SECONDS)
    print(f"{name}: {seen.said}\nneighbour: {seen.neighbour}; the core's longest turn {seen.turn_units} units, "
          f"the longest handler {seen.handler_ms:.1f} ms, controller {seen.controller_mib:.0f} MiB; the executors' "
          f"longest turn {seen.executor_turn_units} units, the longest handler {seen.executor_handler_ms:.1f} ms")
    assert re.search(rf"^(?:{case.expects})$", seen.said, re.M | re.S), seen.said
    assert "error" not in seen.neighbour, seen.log
    longest = LONGEST_STEP_IF_ALL_STOPS if case.stops_all else LONGEST_STEP
    assert seen.neighbour["max"] < 1000 * longest, seen.log
    if not case.stops_all and seen.took > BRIEF:
        assert seen.neighbour["beside"] > 0, seen.log
    if not case.loses_executor:
        assert seen.lost == 0 and not seen.logged_lost, seen.log
    assert seen.turn_units <= TURN_UNITS
    assert seen.executor_turn_units <= EXECUTOR_TURN_UNITS
    assert seen.controller_mib <= CONTROLLER_MIB


def test_the_benchmark_compares_each_case_with_busy_processors(tmp_path):
    out = tmp_path / "result.json"
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "run.py", "hostile", "--quick", "--cases=many_watches", "--json", out],
        text=True, capture_output=True, env=clean_environment(), timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    rows = {row["name"]: row for row in result["rows"]}
    assert rows["many_watches: neighbours that got an error"]["value"] == 0
    assert rows["many_watches: longest turn of the core"]["value"] > 100
    assert rows["many_watches: neighbour's longest step"]["value"] >= rows["many_watches: neighbour's p99"]["value"] > 0
    (bar,) = result["bars"]
    assert bar["value"] > 0 and bar["holds"] in (True, False)  # one round


@pytest.fixture
def host_cluster(tmp_path):
    """Two islands of two devices without a plugin; none of its processes may die."""
    with Cluster(2, 2, ("--runtime=host",), environment={"XDG_STATE_HOME": str(tmp_path)}) as cluster:
        before = {process.pid for process in cluster.processes()}
        yield cluster
        assert before <= {process.pid for process in cluster.processes()}, cluster.logs()


def run(cluster, *arguments):
    return [BIN / "fairway", "run", f"--controller={cluster.address}", *map(str, arguments)]


def unfinished(cluster):
    return cluster.metrics().total("fairway_nodes_unfinished")


def test_a_program_of_many_steps_called_without_waiting_holds_up_nobody(host_cluster, tmp_path):
    program = tmp_path / "many_steps.txtpb"
    program.write_text(MANY_STEPS)
    environment = clean_environment()
    hog = subprocess.Popen(
        run(host_cluster, program, "--arg", "x=1.5", "--repeat", 256),
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: unfinished(host_cluster) > 10000, "its calls to be under way")
        for _ in range(3):
            done = subprocess.run(
                run(host_cluster, EXAMPLES / "programs" / "two_stages.txtpb", "--arg", "x=1.5", "--repeat", 10),
                env=environment, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=240)
            assert done.returncode == 0, done.stdout + done.stderr
        assert hog.poll() is None, "it ended before the others had: make it longer"
    finally:
        hog.kill()
        hog.wait()
    # All that it left is given up, and the executors are the same as before.
    wait_for(lambda: unfinished(host_cluster) == 0, "the end of its work", 240)
    assert "was lost" not in host_cluster.logs()


def handles(first, count):
    return list(range(first, first + count))


def served_beside_many_names(host_cluster):
    """Whether a neighbour was served again and again before all requests of the other session were done."""
    with Session(host_cluster.address) as hog, Session(host_cluster.address) as neighbour:
        neighbour.put(1, np.ones(4, np.float32), device=2)
        hog.put(1, np.ones(4, np.float32))
        many = 1
        while many < 1 << 17:  # more and more names for one array
            hog.call("copy_arrays_request", array_handles=handles(1, many), copy_semantics=REUSE,
                     result_handles=handles(1 + many, many))
            many *= 2
        named, copies = handles(1, many), handles(1 << 20, many)
        asked = [
            hog.send("copy_arrays_request", array_handles=named, device_ids=[1],
                     copy_semantics=ALWAYS_COPY, result_handles=copies),
            hog.send("check_value_ready_request", value_handles=copies),
            hog.send("delete_array_request", array_handle=copies),
            hog.send("destruct_array_request", array_handle=copies),
            hog.send("destruct_array_request", array_handle=named),
        ]
        for _ in range(20):
            answer = neighbour.call("is_array_deleted_request", array_handle=1)
            assert not answer.is_array_deleted_response.deleted
        served = asked[-1] not in hog._answers
        for op_id in asked:
            hog.answer(op_id, 240)
    wait_for(lambda: unfinished(host_cluster) == 0, "the end of its copies", 240)
    return served


def test_requests_that_name_a_hundred_thousand_arrays_hold_up_nobody(host_cluster):
    # Once of several times: this process may get no processor while the controller has one.
    assert any(served_beside_many_names(host_cluster) for _ in range(5)), "all was done before the neighbour was served"
    assert "was lost" not in host_cluster.logs()
