# SPDX-License-Identifier: Apache-2.0
"""A program whose callback prints "IN" when it is called, and returns once it has read a line.
Arguments: numbers of the devices that call it."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P

mesh = Mesh(np.array([jax.devices()[int(i)] for i in sys.argv[1:]]), ("x",))


def waits(x):
    if x[0] == 0:
        print("IN", flush=True)
        sys.stdin.readline()
    return np.asarray(x) * 2


f = jax.jit(jax.shard_map(lambda x: jax.lax.psum(jax.pure_callback(waits, x, x), "x"), mesh=mesh,
                          in_specs=P("x"), out_specs=P()))
x = jax.device_put(jnp.arange(float(mesh.size)), jax.NamedSharding(mesh, P("x")))
try:
    print("RESULT", float(f(x)[0]), flush=True)
except jax.errors.JaxRuntimeError as error:
    print("FAILED", " ".join(str(error).split()), flush=True)
print("AGAIN", float(jax.jit(lambda v: (v + 1).sum())(x)), flush=True)
