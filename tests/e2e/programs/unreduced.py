# SPDX-License-Identifier: Apache-2.0
"""Unreduced shardings: parts on the devices, whose sum is the value."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec as P

from places import islands


def mesh_of(places):
    devices = np.array([islands()[0][place] for place in places]).reshape(2, -1)
    return Mesh(devices, ("x", "y"), axis_types=(AxisType.Explicit,) * 2)


jax.set_mesh(mesh_of([0, 1, 2, 3]))
a = np.arange(16, dtype=np.int32).reshape(4, 4) + 1


def parts(array):
    return [np.asarray(shard.data) for shard in array.addressable_shards]


# The first devices of the island, other devices, and all of them in other orders.
for places in [0, 1, 2, 3], [2, 3], [0, 2, 1, 3], [3, 2, 1, 0]:
    jax.set_mesh(mesh_of(places))
    for before, unreduced in [
        (P(), P(unreduced={"x"})), (P(), P(unreduced={"x", "y"})),
        (P("x"), P("x", unreduced={"y"})), (P("x", "y"), P(unreduced={"x", "y"})),
        (P(None, "y"), P(None, "y", unreduced={"x"})),
    ]:
        whole = jax.device_put(a, before)
        split = jax.reshard(whole, unreduced)
        assert split.sharding.spec.unreduced == unreduced.unreduced
        np.testing.assert_array_equal(jax.reshard(split, before), a)
        np.testing.assert_array_equal(jax.reshard(split + split, before), 2 * a)

    split = jax.reshard(jax.device_put(a, P()), P(unreduced={"x"}))
    half = len(places) // 2
    for part, expected in zip(parts(split), half * [a] + half * [0 * a], strict=True):
        np.testing.assert_array_equal(part, expected)
jax.set_mesh(mesh_of([0, 1, 2, 3]))

# In another memory: there and back.
split = jax.reshard(jax.device_put(a, P()), P(unreduced={"x"}))
host = jax.device_put(split, split.sharding.with_memory_kind("pinned_host"))
for array in host, jax.device_put(host, split.sharding):
    np.testing.assert_array_equal(parts(array), 2 * [a] + 2 * [0 * a])

# Within a loop, and within a function that the loop calls.
@jax.jit
def halves(x):
    return jax.reshard(x, P(unreduced={"y"}))

@jax.jit
def twice(x):
    return jax.lax.scan(lambda c, _: (jax.reshard(halves(c), P()) * 2, None), x, length=3)[0]

np.testing.assert_array_equal(twice(jax.device_put(a, P())), 8 * a)

# The compiler itself makes this one unreduced.
left = jax.device_put(a, P("x", "y"))
right = jax.device_put(a, P("y", None))
product = jax.jit(lambda l, r: jnp.dot(l, r, out_sharding=P("x", unreduced={"y"})))(left, right)
np.testing.assert_array_equal(jax.reshard(product, P("x")), a @ a)
away = jax.device_put(product, product.sharding.with_memory_kind("pinned_host"))
back = jax.device_put(away, product.sharding)
np.testing.assert_array_equal(jax.reshard(back, P("x")), a @ a)

# Gradients of arrays that are replicated for this purpose ("reduced").
weights = jax.device_put(np.ones(4, np.float32), P(reduced={"x"}))
gradient = jax.jit(jax.grad(lambda w, b: (jax.reshard(w, P("x")) * b).sum()))(
    weights, jax.device_put(np.arange(4, dtype=np.float32), P("x")))
np.testing.assert_array_equal(jax.reshard(gradient, P()), np.arange(4, dtype=np.float32))
