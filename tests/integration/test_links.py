# SPDX-License-Identifier: Apache-2.0
"""Connections of workers that break and come back (docs/design/0064-links-that-resume.md)."""

import os
import signal
import subprocess

import pytest

from cluster import BIN, PROGRAMS, wait_for
from link_proxy import LinkProxy, unread
from test_lifecycle import executor_of, pid_of


class FarWorker:
    """A worker of a cluster whose connections to the controller go through a proxy."""

    def __init__(self, cluster, log):
        self.cluster = cluster
        controller = int(cluster.status()["link_address"].rpartition(":")[2])
        self.proxy = LinkProxy(controller)
        self.log = log.open("wb")
        (like,) = [p for p in cluster.processes()
                   if p.program == "fairway-worker" and p.flag("role") is None]
        same = ("--runtime=", "--plugin", "--preload=")
        self.process = subprocess.Popen(
            [str(BIN / "fairway-worker"), "--name=far", "--island=far", "--devices=1",
             f"--controller=127.0.0.1:{self.proxy.port}",
             *(a for a in like.arguments if a.startswith(same))],
            env=cluster.environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        wait_for(lambda: any(e["worker"] == "far" and e["up"] for e in cluster.status()["executors"])
                 and self.proxy.of("pulse"), "the far worker")

    def executor(self):
        return executor_of(self.cluster, "far")

    def resumed(self):
        return self.cluster.metrics().total("fairway_links_resumed_total")

    def cut(self, *kinds):
        """Breaks these connections once bytes are on their way, which are lost."""
        cut = [c for kind in kinds for c in self.proxy.of(kind)]
        assert len(cut) == len(kinds), self.proxy.connections
        for connection in cut:
            connection.hold()
        wait_for(lambda: any(unread(s) for s in cut[0].sockets), "bytes on their way")
        for connection in cut:
            connection.close()

    def stop(self):
        self.process.terminate()
        self.process.wait(120)
        self.proxy.close()
        self.log.close()


@pytest.fixture
def far_worker(new_cluster, tmp_path):
    """Starts a cluster of one island, and a worker of another island behind a proxy."""
    started = []

    def start(grace):
        cluster = new_cluster(islands=1, devices=1, environment={"FAIRWAY_LINK_GRACE": grace})
        started.append(FarWorker(cluster, tmp_path / "far.log"))
        return started[-1]

    yield start
    for worker in started:
        worker.stop()


def slice_of(cluster, island):
    return sorted(i["name"] for i in cluster.status()["islands"]).index(island)


def test_connections_that_break_under_load_cost_no_data_and_no_launch(far_worker):
    far = far_worker("60s")
    before = far.executor()["incarnation"]
    program = far.cluster.start_python(PROGRAMS / "steps_until_told.py", slice_of(far.cluster, "far"))

    def goes_on():
        for line in program.stdout:
            if line.startswith("steps"):
                return int(line.split()[1])
            said.append(line)
        raise AssertionError("".join(said))

    said = []
    goes_on()
    for cuts in range(1, 6):
        far.cut("executor")
        wait_for(lambda: far.resumed() == cuts, f"return {cuts} of the connection")
        goes_on()
    program.stdin.write("\n")
    program.stdin.flush()
    rest, _ = program.communicate(timeout=240)
    assert "right after" in rest, rest
    assert program.returncode == 0
    assert far.executor()["incarnation"] == before
    assert far.resumed() == 5


def test_the_supervisors_connection_may_break_with_the_executors(far_worker):
    far = far_worker("60s")
    before = far.executor()["incarnation"]
    far.cut("executor", "supervisor")
    wait_for(lambda: far.resumed() == 1, "the executor's connection")
    wait_for(lambda: far.executor()["supervisor_connected"], "the supervisor's connection")
    assert far.executor()["incarnation"] == before


def test_an_executor_without_a_connection_for_longer_than_the_grace_is_lost(far_worker):
    far = far_worker("500ms")
    before = far.executor()["incarnation"]
    far.proxy.refuses = True
    far.cut("executor")
    wait_for(lambda: not far.executor()["up"], "the loss of the executor")
    far.proxy.refuses = False
    wait_for(lambda: far.executor()["up"], "the executor's return")
    assert far.executor()["incarnation"] != before
    assert far.resumed() == 0


def test_the_executor_that_an_island_waits_for_is_named(far_worker):
    far = far_worker("1h")
    program = far.cluster.start_python(PROGRAMS / "steps_until_told.py", slice_of(far.cluster, "far"))
    assert any(line.startswith("steps") for line in program.stdout)
    wait_for(lambda: far.executor()["round_trip_us"] > 0, "an answered heartbeat")
    far.proxy.refuses = True
    (connection,) = far.proxy.of("executor")
    connection.hold()

    def lagging():
        return {i["name"]: i["lagging_worker"] for i in far.cluster.status()["islands"]}["far"]

    wait_for(lambda: lagging() == "far", "the executor to lag")
    said = far.cluster.cli("status", "--controller", far.cluster.address, "-o", "wide").stdout
    assert "  waits for far: it has acknowledged none of its " in said and "round trip " in said, said
    far.proxy.refuses = False
    connection.close()
    wait_for(lambda: lagging() == "", "the executor to keep up again")
    assert far.executor()["links_resumed"] == 1
    program.kill()


def test_the_end_of_a_process_is_not_taken_for_a_connection_that_broke(far_worker):
    far = far_worker("1h")
    before = far.executor()["incarnation"]
    os.kill(pid_of(far.cluster, "far", "executor"), signal.SIGKILL)
    wait_for(lambda: far.executor()["up"] and far.executor()["incarnation"] != before,
             "the successor of a killed executor")
    os.kill(far.process.pid, signal.SIGKILL)
    wait_for(lambda: not far.executor()["up"], "the loss of an executor whose worker was killed")
