# SPDX-License-Identifier: Apache-2.0
"""Fetches 200 small results, prints "SMALL", waits for a line, then fetches a large one."""

import jax
import jax.numpy as jnp
import numpy as np

from places import islands

device = islands()[0][0]
step = jax.jit(lambda v: v + 1)
value = jax.device_put(np.float32(0), device)
for number in range(200):
    value = step(value)
    assert float(value) == number + 1
print("SMALL", flush=True)
input()
large = jax.jit(lambda v: jnp.full((1 << 20,), v))(value)  # 4 MiB
assert np.asarray(large).sum() == 200 * (1 << 20)
print("LARGE", flush=True)
