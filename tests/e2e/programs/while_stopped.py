# SPDX-License-Identifier: Apache-2.0
"""Submits 1,000 executions and as many frees while the executor is stopped.

Prints "READY", waits for a line, submits, prints "SUBMITTED <seconds>", waits for a line, then
checks all results and prints "RIGHT".
"""

import time

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from places import islands

mesh = Mesh(np.array(islands()[0]), ("x",))
split = NamedSharding(mesh, P("x"))
step = jax.jit(lambda v: v + 1)
start = np.arange(1024, dtype=np.float32)
value = step(jax.device_put(start, split))
value.block_until_ready()
print("READY", flush=True)
input()

began = time.monotonic()
kept = []
for number in range(1000):
    value = step(value)  # here the previous array loses its last reference: one free per step
    if number % 100 == 99:
        kept.append((number + 2, value))
print(f"SUBMITTED {time.monotonic() - began:.3f}", flush=True)
input()

for steps, array in kept:
    np.testing.assert_array_equal(array, start + steps)
print("RIGHT", flush=True)
