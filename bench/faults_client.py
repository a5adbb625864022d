# SPDX-License-Identifier: Apache-2.0
"""Waits for a computation without end on an island, and prints when (time.monotonic()) it was told that it is lost.

Argument: the index of the slice. One attempt for each line that comes."""

import sys
import time

import jax
import numpy as np

device = [d for d in jax.devices() if d.slice_index == int(sys.argv[1])][0]
endless = jax.jit(lambda x: jax.lax.while_loop(lambda v: v >= 0, lambda v: (v + 1) % 1000, x))

for _ in sys.stdin:
    result = endless(jax.device_put(np.int32(1), device))
    print("waits", flush=True)
    try:
        result.block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        print(time.monotonic(), str(error).partition(":")[0], flush=True)
