# SPDX-License-Identifier: Apache-2.0
"""Arguments that jaxlib's client alone refuses: some strides, moves to and from the local CPU."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

from places import islands

island = islands()[0]
split = NamedSharding(Mesh(np.array(island), ("x",)), P("x"))
base = np.arange(64, dtype=np.float32).reshape(8, 8)

double = jax.jit(lambda v: v * 2)
for view in (
    base[::-1], base[:, ::-1], base[::-2, ::3], base.T[::-1], base[0, ::-1][:0],
    np.broadcast_to(base[0], (8, 8)), np.broadcast_to(base[:, :1], (8, 8)),
    np.broadcast_to(np.float32(7), (2, 3)), np.broadcast_to(base[0], (4, 8))[:, ::-1],
):
    assert min(view.strides) <= 0
    np.testing.assert_array_equal(jax.device_put(view, island[1]), view)
    np.testing.assert_array_equal(jnp.asarray(view), view)
    for _ in range(3):  # later calls take another way through JAX than the first
        np.testing.assert_array_equal(double(view), view * 2)
np.testing.assert_array_equal(jax.device_put(base[::-1], split), base[::-1])
for _ in range(3):
    np.testing.assert_array_equal(jax.jit(jnp.sum, in_shardings=split)(base[::-1]), base.sum())

local = jax.devices("cpu")[0]
here = [local, SingleDeviceSharding(local), NamedSharding(Mesh(np.array([local]), ("x",)), P("x"))]
for there in (island[1], split):
    put = jax.device_put(base, there)
    for target in here:
        fetched = jax.device_put(put, target)
        assert fetched.devices() == {local}
        np.testing.assert_array_equal(fetched, base)
        back = jax.device_put(fetched, there)
        assert back.sharding == put.sharding, back.sharding
        np.testing.assert_array_equal(back * 2, base * 2)

trees = {"far": jax.device_put(base, split), "near": jax.device_put(base, local), "host": base}
trees = jax.device_put(trees, here[2])
assert all(leaf.devices() == {local} for leaf in jax.tree.leaves(trees))
jax.tree.map(lambda leaf: np.testing.assert_array_equal(leaf, base), trees)

weak = jax.device_put(jnp.asarray(2.0), here[1])
assert weak.weak_type == jnp.asarray(2.0).weak_type
for key in (jax.random.key(3), jax.random.PRNGKey(3)):
    moved = jax.device_put(key, here[1])
    with jax.default_device(local):
        expected = jax.random.normal(moved, (4,))
    np.testing.assert_array_equal(jax.random.normal(key, (4,)), expected)

gone = jax.device_put(base, split)
gone.delete()
try:
    jax.device_put(gone, here[2])
    raise AssertionError("a deleted array was put")
except RuntimeError as error:
    assert "deleted" in str(error), error
