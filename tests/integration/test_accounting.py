# SPDX-License-Identifier: Apache-2.0
"""Sessions that end, in order or not, leave nothing: arrays, shard buffers, memory, descriptors, threads."""

import signal

import pytest

from accounting import Accounts

PROGRAM = """
import sys
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

devices = jax.devices()
half = len(devices) // 2
first, second = (NamedSharding(Mesh(np.array(d), ("x",)), P("x"))
                 for d in (devices[:half], devices[half:]))
step = jax.jit(lambda a: a @ a.T / 512)
x = jax.device_put(np.ones((512, 512), np.float32), first)
for _ in range(20):
    x = step(x)
print(float(np.asarray(jax.device_put(x, second)).sum()), flush=True)
if sys.argv[1:] == ["forever"]:
    while True:
        for _ in range(100):
            x = step(x)
        x.block_until_ready()
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_sessions_that_end_leave_nothing(cluster, program):
    cluster.python(program)  # gRPC's threads for one more client
    accounts = Accounts(cluster)
    for _ in range(3):
        cluster.python(program)
    accounts.check()


def test_clients_killed_in_the_middle_of_their_work_leave_nothing(cluster, program):
    cluster.python(program)
    accounts = Accounts(cluster)
    for _ in range(3):
        client = cluster.start_python(program, "forever")
        try:
            while line := client.stdout.readline():
                if line[:1].isdigit():
                    break
            assert line, "the program ended early"
        finally:
            client.send_signal(signal.SIGKILL)
            client.wait()
            client.stdin.close()
            client.stdout.close()
        accounts.check()
