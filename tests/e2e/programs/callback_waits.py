# SPDX-License-Identifier: Apache-2.0
"""Runs a program on device 0 whose function waits for ever, as often as the argument says; prints CALLED
when it is called, and how the first run ended."""

import os
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np


def wait_for_ever(x):
    print("CALLED", flush=True)
    threading.Event().wait()


@jax.jit
def waits(x):
    return jax.pure_callback(wait_for_ever, jax.ShapeDtypeStruct((), np.float32), x)


x = jnp.float32(1)
runs = [waits(x) for _ in range(int(sys.argv[1]))]
try:
    jax.block_until_ready(runs[0])
except jax.errors.JaxRuntimeError as error:
    print("FAILED", str(error).replace("\n", " "), flush=True)
os._exit(0)  # the function's thread never ends
