# SPDX-License-Identifier: Apache-2.0
"""Executors that stop or die under a running script, and clusters that end."""

import contextlib
import os
import pathlib
import re
import signal

import pytest

from cluster import EXAMPLES, PROGRAMS, wait_for


class Script:
    """A running script and its output so far."""

    def __init__(self, process):
        self.process, self.text = process, ""

    def read_until(self, word):
        """Reads lines up to one that begins with `word`; returns that line."""
        for line in self.process.stdout:
            self.text += line
            if line.startswith(word):
                return line
        raise AssertionError(f"the script ended before it printed {word}:\n{self.text}")

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self, seconds=300):
        """Reads to the end; returns the exit code."""
        rest, _ = self.process.communicate(timeout=seconds)
        self.text += rest
        return self.process.returncode


@pytest.fixture
def start():
    """start(cluster, arguments...): a Script that is killed at the end of the test."""
    running = []

    def run(cluster, *arguments):
        running.append(cluster.start_python(*arguments))
        return Script(running[-1])

    yield run
    for process in running:
        if process.poll() is None:
            process.kill()
        process.stdout.close()
        process.wait()


def test_a_thousand_executions_are_accepted_while_the_executor_stands_still(new_cluster, start):
    cluster = new_cluster(environment={"FAIRWAY_EXECUTOR_DEADLINE": "5m"})
    script = start(cluster, PROGRAMS / "while_stopped.py")
    script.read_until("READY")
    executors = cluster.executors()
    assert len(executors) == 2
    for executor in executors:
        executor.signal(signal.SIGSTOP)
    try:
        script.go_on()
        # If it waited for the executors, it would wait until they are lost.
        submitted = float(script.read_until("SUBMITTED").split()[1])
    finally:
        for executor in executors:
            executor.signal(signal.SIGCONT)
    print(f"1,000 executions submitted in {submitted:.3f} s")
    script.go_on()
    script.read_until("RIGHT")
    assert script.end() == 0, script.text


def test_who_works_on_one_island_does_not_wait_for_the_first(new_cluster, start):
    cluster = new_cluster(environment={"FAIRWAY_EXECUTOR_DEADLINE": "5m"})
    script = start(cluster, PROGRAMS / "other_island.py")
    script.read_until("READY")
    first, = (e for e in cluster.executors() if e.flag("name") == "w0")
    first.signal(signal.SIGSTOP)
    try:
        script.go_on()
        script.read_until("RIGHT")
    finally:
        first.signal(signal.SIGCONT)
    assert script.end() == 0, script.text


def test_a_program_without_end_whose_client_is_gone_is_ended_by_a_restart(new_cluster, start):
    cluster = new_cluster()
    script = start(
        cluster, "-c",
        "import jax\n"
        "for_ever = jax.jit(lambda x: jax.lax.while_loop(lambda v: v * v < 2, lambda v: -v, x))\n"
        "result = for_ever(1.0)\n"
        "print('CALLED', flush=True)\n"
        "result.block_until_ready()\n",
    )
    script.read_until("CALLED")
    island = lambda: cluster.status()["islands"][0]
    wait_for(lambda: island()["in_flight"] == 1, "the program to be launched")
    script.process.kill()
    wait_for(lambda: cluster.status()["counts"]["sessions"] == 0, "the session to end")
    assert island()["in_flight"] == 1  # it belongs to nobody, and keeps the device
    before = {executor.flag("name"): executor.pid for executor in cluster.executors()}
    done = cluster.cli("restart", "w0", "--controller", cluster.address)
    assert done.stdout == "island0 is up again\n"
    assert island()["in_flight"] == 0 and island()["up"]
    after = {executor.flag("name"): executor.pid for executor in cluster.executors()}
    assert before["w1"] == after["w1"] and before["w0"] != after["w0"]
    cluster.python("-c", "import jax.numpy as jnp; assert float(jnp.ones(3).sum()) == 3")
    refused = cluster.cli("restart", "w9", "--controller", cluster.address, check=False)
    assert refused.returncode == 1
    assert "no executor of a worker 'w9' has registered; of w0, w1" in refused.stderr


def test_small_results_are_fetched_without_asking_the_executor(cluster, start):
    def fetches():
        return cluster.metrics().total("fairway_executor_fetches_total")

    before = fetches()
    script = start(cluster, PROGRAMS / "small_results.py")
    script.read_until("SMALL")
    assert fetches() == before
    script.go_on()
    script.read_until("LARGE")
    assert fetches() > before  # the counter does count
    assert script.end() == 0, script.text


@pytest.mark.parametrize("example", ["digits_pipeline.py", "digits_program.py"])
def test_a_killed_executor_fails_the_run_with_that_cause_and_comes_back(
        new_cluster, start, example):
    cluster = new_cluster()
    script = start(cluster, EXAMPLES / example, "--steps", "100000")

    def launched():
        counts = cluster.metrics().by("fairway_gangs_launched_total", "island")
        return len(counts) == 2 and min(counts.values()) > 200

    wait_for(launched, "200 gangs on both islands", 300)
    before = {process.pid for process in cluster.processes()}
    victim = cluster.executors()[1]
    victim.signal(signal.SIGKILL)
    assert script.end() != 0
    failure = script.text
    assert "DATA_LOSS" in failure, failure[-4000:]
    assert re.search(r"executor|worker", failure), failure[-4000:]
    assert re.search(r"signal 9|SIGKILL|killed", failure, re.IGNORECASE), failure[-4000:]

    # No other process died, the executor is back, and the same program runs.
    wait_for(
        lambda: len(cluster.executors()) == 2 and victim.pid not in
        [p.pid for p in cluster.executors()],
        "a new executor",
    )
    assert before - {p.pid for p in cluster.processes()} == {victim.pid}
    wait_for(lambda: all(i["up"] for i in cluster.status()["islands"]), "both islands up")
    done = cluster.python(EXAMPLES / example, "--quiet", "--steps", "20")
    assert "test accuracy" in done.stdout


def test_killing_the_client_frees_what_it_owned(cluster, start):
    idle = cluster.metrics()
    script = start(cluster, EXAMPLES / "digits_pipeline.py", "--steps", "100000")
    wait_for(
        lambda: cluster.metrics().total("fairway_arrays") > idle.total("fairway_arrays") + 10,
        "arrays of the run",
    )
    script.process.kill()
    script.end()
    for name in ("fairway_sessions", "fairway_arrays", "fairway_shard_groups",
                 "fairway_nodes_unfinished", "fairway_device_memory_used_bytes"):
        wait_for(
            lambda: cluster.metrics().total(name) <= idle.total(name), f"{name} to return"
        )


def test_a_cluster_is_up_and_down_leaves_nothing(new_cluster):
    cluster = new_cluster()
    print(f"2 islands of 4 devices up in {cluster.seconds_to_start:.2f} s")
    assert cluster.get("/healthz") and cluster.get("/readyz")
    assert len(cluster.executors()) == 2
    cluster.down()
    wait_for(lambda: not cluster.processes(), "all processes to end")


def test_nothing_outlives_up_when_it_is_killed(new_cluster):
    cluster = new_cluster()
    launcher = cluster.status()["launcher_pid"]
    os.kill(int(launcher), signal.SIGKILL)
    wait_for(lambda: not cluster.processes(), "all processes to end")


def test_logs_are_json_lines_that_say_who_speaks(cluster):
    text = cluster.logs()
    assert '"component"' in text, text[:2000]


def test_a_run_leaves_no_file_descriptors_or_threads(cluster):
    def held():
        """{pid: (open descriptors, threads)} of the processes that live."""
        sums = {}
        for process in cluster.processes():
            folder = pathlib.Path(f"/proc/{process.pid}")
            with contextlib.suppress(OSError):
                sums[process.pid] = (len(list((folder / "fd").iterdir())), len(list((folder / "task").iterdir())))
        return sums

    def settles(before):
        def settled():
            after = held()
            return all(after[pid][0] <= before[pid][0] + 2 and after[pid][1] <= before[pid][1] + 2
                       for pid in before.keys() & after.keys())

        try:
            return wait_for(settled, "file descriptors and threads to return", 30)
        except AssertionError:
            return False

    run = ("--quiet", "--steps", "10")
    cluster.python(EXAMPLES / "digits_pipeline.py", *run)
    # gRPC makes threads when it is busy, and keeps some of them: then the next runs must leave as many.
    seen = []
    for _ in range(4):
        seen.append(held())
        for _ in range(2):
            cluster.python(EXAMPLES / "digits_pipeline.py", *run)
        if settles(seen[-1]):
            return
    raise AssertionError(f"each two runs leave more: {seen}, {held()}")


@pytest.mark.parametrize("devices", [[0], [0, 1, 2, 3]])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_client_that_dies_or_stops_in_a_callback_ends_only_its_own_work(
        new_cluster, start, how, devices):
    cluster = new_cluster(2, 4, ("--callback-limit=10s",))
    executors = [process.pid for process in cluster.executors()]
    neighbour = start(cluster, "-c", (
        "import jax, numpy as np\n"
        "f = jax.jit(lambda x: jax.pure_callback(lambda a: np.asarray(a) + 1, x, x))\n"
        "other, same = (jax.device_put(1.0, jax.devices()[i]) for i in (4, 0))\n"
        "print('READY', float(f(other)) + float(f(same)), flush=True)\n"
        "input()\n"
        "print('OTHER', float(f(other)), flush=True)\n"
        "print('SAME', float(f(same)), flush=True)\n"))
    neighbour.read_until("READY")
    script = start(cluster, PROGRAMS / "callback_held.py", *devices)
    script.read_until("IN")
    script.process.send_signal(how)
    try:
        neighbour.go_on()
        assert neighbour.read_until("OTHER").split()[1] == "2.0"
        assert neighbour.read_until("SAME").split()[1] == "2.0"
        assert neighbour.end() == 0, neighbour.text
    finally:
        if how == signal.SIGSTOP:
            script.process.send_signal(signal.SIGCONT)
    if how == signal.SIGSTOP:
        assert "callback" in script.read_until("FAILED"), script.text
        script.read_until("AGAIN")
        assert script.end() == 0, script.text
    assert [process.pid for process in cluster.executors()] == executors


def test_a_callback_that_never_returns_is_ended_by_the_limit(new_cluster, start):
    cluster = new_cluster(1, 4, ("--callback-limit=2s",))
    executors = [process.pid for process in cluster.executors()]
    script = start(cluster, PROGRAMS / "callback_held.py", 0, 1, 2, 3)
    line = script.read_until("FAILED")
    assert "callback" in line and "2 s" in line, line
    script.read_until("AGAIN")
    assert [process.pid for process in cluster.executors()] == executors
