# SPDX-License-Identifier: Apache-2.0
"""Runs a program on device 0 with forty independent callbacks whose functions wait for ever; prints CALLED
at each call."""

import threading

import jax
import jax.numpy as jnp
import numpy as np


def wait_for_ever(x):
    print("CALLED", flush=True)
    threading.Event().wait()


@jax.jit
def many(x):
    return [
        jax.pure_callback(wait_for_ever, jax.ShapeDtypeStruct((4,), np.float32),
                          (jnp.sin(x * i) @ jnp.cos(x + i))[0, :4])
        for i in range(40)
    ]


jax.block_until_ready(many(jnp.ones((300, 300))))
