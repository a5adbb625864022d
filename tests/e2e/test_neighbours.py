# SPDX-License-Identifier: Apache-2.0
"""A session that waits for memory holds up nobody else (docs/design/0056)."""

import pytest

from cluster import wait_for

HOG = """
import jax, jax.numpy as jnp, numpy as np
device = jax.devices()[0]
held = jax.device_put(np.ones((36 << 18,), np.float32), device)  # 36 of 64 MiB
scalars = jax.device_put([np.float32(i) for i in range(6000)], device)
grow = jax.jit(lambda v: jnp.concatenate([v, v[:1]])).lower(held).compile()
jax.block_until_ready([held, scalars])
grown = grow(held)
print("waits", flush=True)
while input() == "delete":
    scalars.pop().delete()
try:
    jax.block_until_ready(grown)
except jax.errors.JaxRuntimeError as error:
    print(str(error).replace(chr(10), " "))
"""
STEPS = """
import sys
import jax, numpy as np
step = jax.jit(lambda v: v + 1)
x = jax.block_until_ready(step(jax.device_put(np.float32(0), jax.devices()[int(sys.argv[1])])))
print("ready", flush=True)
input()
for _ in range(20):
    x = jax.block_until_ready(step(x))
print("done", float(x), flush=True)
"""


@pytest.mark.parametrize("device", [0, 3])
def test_who_waits_for_more_than_there_is_and_frees_a_little_holds_up_nobody(new_cluster, device):
    """Neither on another device nor on its own. In the past it did, as long as it freed something."""
    cluster = new_cluster(islands=1, devices=4, flags=("--device-memory=64MiB",))
    neighbour = cluster.start_python("-c", STEPS, device)
    hog = cluster.start_python("-c", HOG)
    try:
        assert neighbour.stdout.readline() == "ready\n"
        assert hog.stdout.readline() == "waits\n"
        neighbour.stdin.write("\n")
        neighbour.stdin.flush()

        def done():
            hog.stdin.write("delete\n")
            hog.stdin.flush()
            return neighbour.poll() is not None

        wait_for(done, "the neighbour's steps")
        assert neighbour.stdout.read() == "done 21.0\n"
        said, _ = hog.communicate("enough\n", timeout=240)
        assert said.startswith("RESOURCE_EXHAUSTED: Out of memory: "), said
        assert "(this one) holds" in said
    finally:
        for process in (hog, neighbour):
            process.kill()
            process.communicate()
