# SPDX-License-Identifier: Apache-2.0
"""Runs a program on device 0 whose function waits for ever, as many times as the first argument says. Prints
CALLED when it is called, and how the first run ended. With a second argument, "own", the function waits for
the next computation of the same device."""

import os
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np


OWN = sys.argv[2:] == ["own"]
launched = threading.Event()


def wait_for_ever(x):
    print("CALLED", flush=True)
    if OWN:
        launched.wait()
        later.block_until_ready()
        return np.asarray(x)
    threading.Event().wait()


@jax.jit
def waits(x):
    return jax.pure_callback(wait_for_ever, jax.ShapeDtypeStruct((), np.float32), x)


x = jnp.float32(1)
runs = [waits(x) for _ in range(int(sys.argv[1]))]
later = jax.jit(lambda v: v + 1)(x)
launched.set()
try:
    jax.block_until_ready(runs[0])
except jax.errors.JaxRuntimeError as error:
    print("FAILED", str(error).replace("\n", " "), flush=True)
os._exit(0)  # the function's thread never ends
