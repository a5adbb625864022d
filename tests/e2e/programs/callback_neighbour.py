# SPDX-License-Identifier: Apache-2.0
"""Runs on the devices that the arguments name: with a callback, without one, and work that XLA
spreads over its threads. Prints RIGHT."""

import sys

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def spread(a):
    return sum((jnp.ones((256, 256)) * a * i @ jnp.ones((256, 256))).mean() for i in range(12))


for number in map(int, sys.argv[1:]):
    device = jax.devices()[number]
    x = jax.device_put(np.float32(3), device)
    assert float(jax.jit(lambda a: a * 2)(x)) == 6
    assert float(spread(x)) == 256 * 3 * 66
    double = jax.jit(
        lambda a: jax.pure_callback(
            lambda b: np.float32(2) * b, jax.ShapeDtypeStruct((), np.float32), a
        )
    )
    assert float(double(x)) == 6
print("RIGHT", flush=True)
