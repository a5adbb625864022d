# SPDX-License-Identifier: Apache-2.0
"""Computations that ask for more memory than an address space has, on one device and as a gang.
Results that depend on them report that first cause; everything else goes on."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TOO_MUCH = 1 << 47  # bytes on one device


def failure(make):
    try:
        jax.block_until_ready(make())
    except jax.errors.JaxRuntimeError as error:
        return str(error)
    raise AssertionError("it did not fail")


def goes_on():
    assert float(jax.jit(lambda x: x + 1)(jnp.float32(41))) == 42.0


one = jnp.int8(1)
half = jax.jit(lambda x: x / 2)(jnp.float32(3))

too_large = jax.jit(lambda x: x + jnp.arange(TOO_MUCH, dtype=jnp.int8))
dependant = jax.jit(lambda x: x[:4] * 2)
print("ONE", failure(lambda: dependant(too_large(one))))
goes_on()

devices = jax.devices()[:4]
split = NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))
gang = jax.jit(
    lambda x: x + jnp.arange(TOO_MUCH * len(devices), dtype=jnp.int8), out_shardings=split
)
print("GANG", failure(lambda: gang(one)))
goes_on()

assert float(half) == 1.5  # earlier results are still there
