# SPDX-License-Identifier: Apache-2.0
"""Malformed and runaway programs: they cost their own session an error, and nobody else anything.

FAIRWAY_TEST_PROGRAMS=N sends N mutated programs instead of 500, FAIRWAY_TEST_SEED=N others.
"""

import collections
import contextlib
import os
import random
import re

import numpy as np
import pytest

import artifacts
from accounting import Accounts
from cluster import Cluster
from conftest import program
from raw_client import Refused, Session
from test_sessions import Neighbour, ones

COUNT = int(os.environ.get("FAIRWAY_TEST_PROGRAMS", 500))
SEED = int(os.environ.get("FAIRWAY_TEST_SEED", 1))
UNDER_WAY = 12  # more than the workers compile at a time
INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 3, 4, 8, 12, 13
LIMITS = {
    "FAIRWAY_COMPILE_CPU_LIMIT": "6s",
    "FAIRWAY_COMPILE_LIMIT": "600s",
    "FAIRWAY_COMPILE_MEMORY_LIMIT": "1GiB",
    "FAIRWAY_DEVICE_MEMORY": "256MiB",
    "FAIRWAY_EXECUTOR_DEADLINE": "120s",
}


def lasting(cluster):
    """{what: pid} of the processes that must outlive every program."""
    return {
        (p.program, p.flag("role"), p.flag("name")): p.pid
        for p in cluster.processes() if p.flag("role") != "compiler"
    }


@contextlib.contextmanager
def undisturbed(cluster, devices=(0, 2)):
    """Neighbours on these devices go on with right values; no process except those that compile
    ends, and nothing is left."""
    accounts, before = Accounts(cluster), lasting(cluster)
    with contextlib.ExitStack() as stack:
        neighbours = [stack.enter_context(Neighbour(cluster, device)) for device in devices]
        yield
        for neighbour in neighbours:
            neighbour.goes_on()
    assert lasting(cluster) == before, cluster.logs()
    accounts.check()


@pytest.fixture(scope="module")
def limited_cluster(tmp_path_factory):
    environment = {"XDG_STATE_HOME": str(tmp_path_factory.mktemp("state")), **LIMITS}
    with Cluster(2, 2, environment=environment) as cluster:
        with Session(cluster.address) as session:
            for device in (0, 2):
                session.compile(program("add"), device)
        yield cluster


@pytest.fixture
def cluster(limited_cluster):
    with undisturbed(limited_cluster):
        yield limited_cluster


def outcome(session, op_id, seconds=600):
    """The outcome of a compilation, in a word or two; an executable is given up."""
    try:
        handle = session.answer(op_id, seconds).compile_response.loaded_executable_handle
    except Refused as refused:
        if "Failed to parse using StableHLO" in refused.text:
            return "not decoded"
        died = re.search(r"the process that compiled .* was (killed by \w+|gone)", refused.text)
        if died:
            assert refused.code == INTERNAL, refused
            return died[1]
        if refused.code in (RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED):
            return "over a limit"
        assert refused.code in (INVALID_ARGUMENT, UNIMPLEMENTED, INTERNAL), refused
        return "refused"
    session.call("loaded_executable_metadata_request", loaded_executable_handle=handle)
    session.call("loaded_executable_destruct_request", loaded_executable_handle=handle)
    return "compiled"


def test_thousands_of_mutated_programs_harm_nobody(cluster):
    rng = random.Random(SEED)
    seen, waiting = collections.defaultdict(collections.Counter), collections.deque()
    with Session(cluster.address) as session:
        def take():
            what, op_id = waiting.popleft()
            seen[what.split()[0]][outcome(session, op_id)] += 1

        for what, data in artifacts.hostile(COUNT, SEED, [program("add"), program("slow")]):
            devices = rng.choice(([0], [1], [2], [3], [0, 1], [3, 2]))
            waiting.append((what, session.ask_compile(data, devices)))
            if len(waiting) >= UNDER_WAY:
                take()
        while waiting:
            take()
    totals = sum(seen.values(), collections.Counter())
    for what, counts in sorted(seen.items()):
        print(f"{what:12} {dict(counts)}")
    print(f"all          {dict(totals)}")
    assert totals.total() == COUNT
    # Programs that pass the decoder test everything after it, so enough of them must.
    assert totals["compiled"] + totals["refused"] >= 0.3 * COUNT, totals
    assert totals["compiled"] >= 0.1 * COUNT, totals


def test_hostile_compile_options_are_refused(cluster):
    numbers = artifacts.NUMBERS

    def change(options, rng):
        build, assignment = options.executable_build_options, (
            options.executable_build_options.device_assignment)
        small = lambda: max(-(1 << 31), min(rng.choice(numbers), (1 << 31) - 1))  # noqa: E731
        for _ in range(rng.choice((1, 1, 2, 3))):
            kind = rng.randrange(8)
            if kind == 0:
                build.num_replicas = rng.choice(numbers)
            elif kind == 1:
                build.num_partitions = rng.choice(numbers)
            elif kind == 2:
                assignment.replica_count = small()
            elif kind == 3:
                assignment.computation_count = small()
            elif kind == 4 and assignment.computation_devices:
                assignment.computation_devices[0].replica_device_ids[0:1] = [rng.choice(numbers)]
            elif kind == 5:
                assignment.computation_devices.add(replica_device_ids=[rng.choice(numbers)])
            elif kind == 6:
                name = rng.choice(("xla_dump_to", "xla_cpu_enable_fast_math", "no_such", "", "a" * 999))
                options.env_option_overrides[name].int_field = rng.choice(numbers)
            else:
                options.compile_portable_executable = not options.compile_portable_executable

    rng, seen = random.Random(SEED), collections.Counter()
    with Session(cluster.address) as session:
        for _ in range(200):
            op_id = session.ask_compile(
                program("add"), rng.choice(([0], [1], [0, 1])), lambda o: change(o, rng))
            seen[outcome(session, op_id)] += 1
    print(dict(seen))
    assert seen["refused"] >= 100, seen
    assert not any(word.startswith("killed") for word in seen), seen


def test_a_compilation_that_never_ends_is_ended(cluster):
    with Session(cluster.address) as session:
        op_ids = [session.ask_compile(artifacts.never_compiles()) for _ in range(2)]
        # Other programs are compiled meanwhile.
        session.compile(program("slow"), 1)
        for op_id in op_ids:
            with pytest.raises(Refused, match="CPU time") as refused:
                session.answer(op_id, 600)
            assert refused.value.code == RESOURCE_EXHAUSTED


def test_a_compilation_that_wants_100_gb_does_not_get_them(cluster):
    with Session(cluster.address) as session:
        with pytest.raises(Refused, match="compile-memory-limit") as refused:
            session.compile(artifacts.wants_memory(27 << 28))
        assert refused.value.code in (RESOURCE_EXHAUSTED, INTERNAL)


def test_a_program_that_wants_100_gb_at_run_time_is_not_run(cluster):
    with Session(cluster.address) as session:
        session.put(1, ones)
        greedy = session.compile(artifacts.allocates(27 << 28))
        with pytest.raises(Refused, match="can never fit") as refused:
            session.answer(session.execute(greedy, [1], [2]))
            session.call("check_value_ready_request", value_handles=[2])
        assert refused.value.code == RESOURCE_EXHAUSTED
        modest = session.compile(artifacts.allocates(1 << 20))
        session.execute(modest, [1], [3])
        np.testing.assert_array_equal(
            np.frombuffer(session.get(3, 100), np.float32), ones + np.arange(4)[::-1] + (1 << 20) - 4)


def test_a_session_that_takes_memory_without_end_runs_out_alone(limited_cluster):
    """24 results of 16 MiB stay alive on a device of 256 MiB. Others who want memory of that island
    wait meanwhile: there are no quotas yet."""
    cluster = limited_cluster
    text = artifacts.main("%0 = stablehlo.iota dim = 0 : tensor<4194304xf32>\n"
                          "return %0 : tensor<4194304xf32>", "", "tensor<4194304xf32>")
    with undisturbed(cluster, [2]), Session(cluster.address) as session:
        make, handles = session.compile(artifacts.artifact(text)), list(range(1, 25))
        for handle in handles:
            session.execute(make, [], [handle])
        failed = 0
        for handle in handles:
            try:
                session.call("check_value_ready_request", value_handles=[handle])
            except Refused as refused:
                assert refused.code == RESOURCE_EXHAUSTED, refused
                failed += 1
        print(f"{failed} of {len(handles)} found no room")
        assert len(handles) - 256 // 16 <= failed < len(handles) - 10
        # Once there is room again, it may go on.
        session.call("destruct_array_request", array_handle=handles)
        session.execute(make, [], [100])
        session.call("check_value_ready_request", value_handles=[100])
