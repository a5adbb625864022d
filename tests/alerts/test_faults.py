# SPDX-License-Identifier: Apache-2.0
"""Alerts that a real fault fires in a real Prometheus. tests/packaging/test_deb.py has the other four."""

import signal

import pytest

from cluster import PROGRAMS, wait_for
from test_links import FarWorker, slice_of
from test_relays import EXECUTORS, FAN_OUT, Island


@pytest.fixture
def far(new_cluster, tmp_path):
    """A worker whose connections go through a proxy, and a program that runs there."""
    worker = FarWorker(new_cluster(islands=1, devices=1, environment={"FAIRWAY_LINK_GRACE": "1h"}), tmp_path / "far.log")
    worker.program = worker.cluster.start_python(PROGRAMS / "steps_until_told.py", slice_of(worker.cluster, "far"))
    assert any(line.startswith("steps") for line in worker.program.stdout)
    yield worker
    worker.program.kill()
    worker.stop()


def test_connections_that_break_again_and_again_fire_an_alert(far, prometheus):
    seen = prometheus(far.cluster)
    for cuts in range(1, 8):
        far.cut("executor")
        wait_for(lambda cuts=cuts: far.resumed() == cuts, f"return {cuts} of the connection")
        if cuts == 2:
            assert ("FairwayLinksBreak", "firing") not in seen.alerts()
    seen.wait_for("FairwayLinksBreak")


def test_an_executor_that_acknowledges_nothing_fires_an_alert(far, prometheus):
    seen = prometheus(far.cluster)
    wait_for(lambda: far.executor()["round_trip_us"] > 0, "an answered heartbeat")
    far.proxy.refuses = True
    (connection,) = far.proxy.of("executor")
    connection.hold()
    labels = seen.wait_for("FairwayExecutorLags")
    assert (labels["worker"], labels["island"]) == ("far", "far")
    far.proxy.refuses = False
    connection.close()
    wait_for(lambda: ("FairwayExecutorLags", "firing") not in seen.alerts(), "the end of the alert")


def test_relays_that_stop_again_and_again_fire_an_alert(new_cluster, prometheus):
    island = Island(new_cluster(1, EXECUTORS, ("--runtime=host", f"--workers-per-island={EXECUTORS}"),
                                {"FAIRWAY_RELAY_BIND": "127.0.0.1:0", "FAIRWAY_RELAY_FAN_OUT": str(FAN_OUT)}))
    try:
        seen = prometheus(island.cluster)
        while (troubles := island.total("fairway_relay_troubles_total")) < 7:
            stopped = island.process(island.relay_with("executors"))
            stopped.signal(signal.SIGSTOP)
            try:
                wait_for(lambda: island.total("fairway_relay_troubles_total") > troubles, "the trouble to be seen")
            finally:
                stopped.signal(signal.SIGCONT)
            wait_for(island.settled, "every executor to have a relay")
        seen.wait_for("FairwayRelaysInTrouble")
        island.ends_well()
    finally:
        island.program.kill()
        island.program.wait()


# Each result takes 40 of 64 MiB, so only one at a time can be made. What waits for memory that nobody would give back fails by itself.
TOO_MUCH = """
import jax, jax.numpy as jnp
make = jax.jit(lambda x: jnp.full((10, 1 << 20), 3.0) * x)
one = jax.device_put(1.0, jax.devices()[0])
make(one).block_until_ready()
print("begins", flush=True)
while True:
    make(one)
"""


def test_work_that_waits_for_memory_for_five_minutes_fires_an_alert(new_cluster, prometheus):
    cluster = new_cluster(1, 1, ("--device-memory=64MiB",))
    program = cluster.start_python("-c", TOO_MUCH)
    try:
        assert program.stdout.readline() == "begins\n"
        labels = prometheus(cluster).wait_for("FairwayWorkWaitsForMemory", seconds=600)
        assert labels["island"] == "island0" and labels["state"] == "waits_for_memory"
        assert program.poll() is None
    finally:
        program.kill()
        program.communicate()
