# SPDX-License-Identifier: Apache-2.0
"""Runs a loop over devices 0 to 3 that ends when a function of this process says so, which it never does.

The argument names what the function does in the third round: raise, or wait for ever. Prints CALLED
then, and how the run ended.
"""

import os
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def is_done(number):
    if number == 2:
        print("CALLED", flush=True)
        if sys.argv[1] == "raise":
            raise ValueError("the third round")
        threading.Event().wait()
    return np.bool_(False)


def body(state):
    _, number, x = state
    return io_callback(is_done, jax.ShapeDtypeStruct((), bool), number), number + 1, x / x.sum()


@jax.jit
def loop(x):
    return jax.lax.while_loop(lambda state: ~state[0], body, (jnp.bool_(False), jnp.int32(0), x))


x = jax.device_put(
    np.ones(16, np.float32), NamedSharding(Mesh(np.array(jax.devices()[:4]), ("x",)), P("x")))
try:
    jax.block_until_ready(loop(x))
except jax.errors.JaxRuntimeError as error:
    print("FAILED", str(error).replace("\n", " "), flush=True)
os._exit(0)  # the function's thread never ends
