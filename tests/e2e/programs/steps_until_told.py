# SPDX-License-Identifier: Apache-2.0
"""Steps on one island until a line comes, and compares what they made with numpy.

Argument: the index of the slice."""

import sys
import threading

import jax
import numpy as np

SLICE = int(sys.argv[1])
STEPS = 20

device = [d for d in jax.devices() if d.slice_index == SLICE][0]
start = np.arange(4096, dtype=np.int32)
step = jax.jit(lambda x: (x * 5 + 3) % 1000003)
told = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()

value, steps = jax.device_put(start, device), 0
while not told.is_set():
    for _ in range(STEPS):
        value = step(value)
    steps += STEPS
    print("steps", steps, int(value[0]), flush=True)

expected = start.copy()
for _ in range(steps):
    expected = (expected * 5 + 3) % 1000003
np.testing.assert_array_equal(np.asarray(value), expected)
print("right after", steps, flush=True)
