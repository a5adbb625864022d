# SPDX-License-Identifier: Apache-2.0
"""Islands without a plugin (`fairway up --runtime host`, `sim`): data, transfers, refusals."""

import subprocess

import pytest

from cluster import BIN, clean_environment

PROGRAM = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
islands = [[d for d in jax.devices() if d.slice_index == i] for i in (0, 1)]
split = [NamedSharding(Mesh(np.array(devices), ("x",)), P("x")) for devices in islands]
x = np.arange(16, dtype=np.float32)
there = jax.device_put(jax.device_put(x, split[0]), split[1])
assert there.sharding == split[1]
print("MOVED", np.array_equal(np.asarray(there), x))
try:
    jax.jit(lambda v: v + 1)(there)
except Exception as error:
    print("JIT", " ".join(str(error).split()))
"""


@pytest.mark.parametrize("runtime", ["host", "sim"])
def test_islands_without_a_plugin_hold_and_move_arrays_and_say_what_they_cannot(
        new_cluster, runtime):
    cluster = new_cluster(islands=2, devices=2, flags=(f"--runtime={runtime}",))
    done = cluster.python("-c", PROGRAM)
    moved, refused = [l for l in done.stdout.splitlines() if l.startswith(("MOVED", "JIT"))]
    assert moved == "MOVED True"
    assert f"its runtime is {runtime}" in refused and "whose runtime is pjrt" in refused


def test_an_unknown_runtime_is_one_line_that_names_those_there_are():
    done = subprocess.run(
        [BIN / "fairway", "up", "--runtime=gpu"], env=clean_environment(), text=True,
        capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "fairway up: --runtime is 'gpu', not pjrt, host or sim\n"
