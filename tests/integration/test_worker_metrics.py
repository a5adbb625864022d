# SPDX-License-Identifier: Apache-2.0
"""What the controller's metrics tell of workers' processes."""

import os
import signal

from cluster import wait_for
from test_lifecycle import pid_of, walled

PROCESSES = ("fairway_executor_cpu_seconds_total", "fairway_executor_resident_bytes", "fairway_worker_cpu_seconds_total",
             "fairway_worker_resident_bytes")
PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
kept = [jax.device_put(np.ones(1 << 20, np.float32), device) for device in jax.devices()]
print([float(jax.jit(jnp.sum)(one)) for one in kept], flush=True)
"""


def test_each_workers_processes_are_told_of(new_cluster):
    cluster = new_cluster(islands=2)

    def by(name):
        return cluster.metrics().by(name, "worker")

    wait_for(lambda: all(len([value for value in by(name).values() if value > 0]) == 2 for name in PROCESSES), "the first heartbeats of all")
    for name in PROCESSES:
        assert set(by(name)) == {"w0", "w1"}
    assert by("fairway_worker_up") == {"w0": 1, "w1": 1}
    assert by("fairway_worker_executor_starts_total") == {"w0": 1, "w1": 1}
    assert by("fairway_worker_compile_crashes_total") == {"w0": 0, "w1": 0}
    assert by("fairway_executor_resident_bytes")["w0"] > 4 << 20

    before = by("fairway_executor_launches_total")
    cluster.python("-c", PROGRAM)
    wait_for(lambda: all(value > before[worker] for worker, value in by("fairway_executor_launches_total").items()), "launches of both")
    wait_for(lambda: min(by("fairway_executor_executables").values()) > 0, "their programs")
    wait_for(lambda: by("fairway_executor_buffers") == {"w0": 0, "w1": 0}, "the end of the session's buffers")

    compiler = wait_for(lambda: walled(pid_of(cluster, "w1", "supervisor"), "compiler"), "a compile process")
    started = by("fairway_worker_compile_starts_total")["w1"]
    assert started >= 1 and by("fairway_worker_compile_processes")["w1"] >= 1
    os.kill(compiler, signal.SIGKILL)
    wait_for(lambda: by("fairway_worker_compile_crashes_total") == {"w0": 0, "w1": 1}, "its end to be counted")
    wait_for(lambda: by("fairway_worker_compile_starts_total")["w1"] > started, "the next compile process")

    first = next(executor for executor in cluster.executors() if executor.flag("name") == "w0")
    os.kill(first.pid, signal.SIGKILL)
    wait_for(lambda: by("fairway_worker_executor_starts_total") == {"w0": 2, "w1": 1}, "the next executor")
    wait_for(lambda: by("fairway_executor_launches_total").get("w0") == 0, "its counters, from 0 on")
