# SPDX-License-Identifier: Apache-2.0
"""The clients' view when a process of the cluster dies or hangs while their steps are in flight."""

import os
import signal
import time

import pytest

from cluster import wait_for
from test_lifecycle import controller_pid, executor_of, islands_up, pid_of

# Steps on one island until told to stop; prints the number of steps, or the error.
PROGRAM = """
import sys
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

island = int(sys.argv[1])
devices = [d for d in jax.devices() if d.slice_index == island]
sharding = NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))
step = jax.jit(lambda a: a @ a.T / 64)
x = jax.device_put(np.ones((64, 64), np.float32), sharding)
steps = 0
try:
    while True:
        for _ in range(20):
            x = step(x)
        assert float(np.asarray(x)[0, 0]) == 1.0
        steps += 20
        print("STEPS", steps, flush=True)
except Exception as error:
    print("ERROR", str(error).replace("\\n", " | "), flush=True)
    sys.exit(3)
"""


class Client:
    def __init__(self, cluster, path, island):
        self.process = cluster.start_python(path, island)
        self.text = ""
        self.next_steps()

    def line(self, word):
        for line in self.process.stdout:
            self.text += line
            if line.startswith(word):
                return line
        raise AssertionError(f"no {word} in:\n{self.text}")

    def next_steps(self):
        return int(self.line("STEPS").split()[1])

    def goes_on(self):
        done = self.next_steps()
        # Output that the pipe held does not count.
        wait_for(lambda: self.next_steps() > done + 2000, "2,000 more steps", 240)

    def error(self):
        """Returns the error that ends the client."""
        line = self.line("ERROR")
        self.process.communicate(timeout=240)
        assert self.process.returncode == 3, self.text
        return line

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stdin.close()


@pytest.fixture
def client(tmp_path):
    """client(cluster, island): a running program that has made its first steps."""
    path = tmp_path / "steps.py"
    path.write_text(PROGRAM)
    running = []

    def start(cluster, island):
        running.append(Client(cluster, path, island))
        return running[-1]

    yield start
    for one in running:
        one.end()


def test_a_killed_executor_fails_its_clients_with_the_cause_and_leaves_the_others(
        new_cluster, client):
    cluster = new_cluster(islands=2, devices=2)
    first, second = client(cluster, 0), client(cluster, 1)
    os.kill(pid_of(cluster, "w0", "executor"), signal.SIGKILL)
    error = first.error()
    assert "DATA_LOSS" in error and "worker w0" in error and "killed by SIGKILL" in error
    second.goes_on()
    wait_for(lambda: executor_of(cluster, "w0")["up"], "the island to come back")
    client(cluster, 0).goes_on()


def test_a_killed_worker_fails_its_clients_with_the_cause_and_leaves_the_others(
        new_cluster, client):
    cluster = new_cluster(islands=2, devices=2)
    first, second = client(cluster, 0), client(cluster, 1)
    os.kill(pid_of(cluster, "w0", "supervisor"), signal.SIGKILL)
    error = first.error()
    assert "DATA_LOSS" in error and "worker w0" in error and "was lost" in error
    second.goes_on()
    wait_for(lambda: executor_of(cluster, "w0")["up"], "the island to come back")
    client(cluster, 0).goes_on()


def test_a_stopped_executor_fails_its_clients_at_the_deadline_and_leaves_the_others(
        new_cluster, client):
    cluster = new_cluster(
        islands=2, devices=2, environment={"FAIRWAY_EXECUTOR_DEADLINE": "10s"})
    first, second = client(cluster, 0), client(cluster, 1)
    stopped = time.monotonic()
    os.kill(pid_of(cluster, "w0", "executor"), signal.SIGSTOP)
    error = first.error()
    print(f"told after {time.monotonic() - stopped:.2f} s")
    assert "DATA_LOSS" in error and "silent for 10.0 s" in error
    second.goes_on()
    wait_for(lambda: executor_of(cluster, "w0")["up"], "the island to come back")
    client(cluster, 0).goes_on()


def test_a_killed_controller_is_unavailable_to_its_clients_and_serves_new_ones(
        new_cluster, client):
    cluster = new_cluster(islands=1, devices=2)
    old = client(cluster, 0)
    os.kill(controller_pid(cluster), signal.SIGKILL)
    assert "UNAVAILABLE" in old.error()

    def back():
        done = cluster.cli("status", "--controller", cluster.address, check=False)
        return done.returncode == 0 and islands_up(cluster) == 1

    wait_for(back, "the worker at a new controller")
    client(cluster, 0).goes_on()


def test_down_ends_clients_with_an_error_and_not_with_a_hang(new_cluster, client):
    cluster = new_cluster(islands=1, devices=2)
    running = client(cluster, 0)
    cluster.down()
    error = running.error()
    assert "UNAVAILABLE" in error
    assert cluster.processes() == []
