# SPDX-License-Identifier: Apache-2.0
"""Large things, one per run: `large.py NAME`. Plain JAX with its own assertions."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

GIB = 1 << 30


def put_and_get_of_a_gib():
    value = np.arange(GIB // 4, dtype=np.uint32)
    there = jax.device_put(value, jax.devices()[1])
    same = np.array_equal(np.asarray(there), value)
    assert same, "other bytes came back"


def put_and_get_of_a_gib_in_four_shards():
    value = np.arange(GIB // 4, dtype=np.uint32).reshape(4096, -1)
    split = NamedSharding(Mesh(np.array(jax.devices()[:4]), ("x",)), P("x"))
    there = jax.device_put(value, split)
    total = jax.jit(lambda v: v.astype(jnp.float32).sum())(there)
    np.testing.assert_allclose(float(total), value.sum(dtype=np.float64), rtol=1e-3)
    assert np.array_equal(np.asarray(there), value), "other bytes came back"


def many_small_arrays():
    one = jax.jit(lambda v: v + 1)
    arrays = [jax.device_put(np.full(3, i, np.float32), jax.devices()[i % 8]) for i in range(5000)]
    arrays += [one(array) for array in arrays]
    assert len({id(array) for array in jax.live_arrays()} & {id(a) for a in arrays}) == 10000
    jax.block_until_ready(arrays)
    for i in range(0, 10000, 997):
        np.testing.assert_array_equal(arrays[i], np.full(3, i % 5000 + i // 5000, np.float32))
    total = sum(float(v[0]) for v in jax.device_get(arrays))
    assert total == 2 * sum(range(5000)) + 5000


def tree_of_many_leaves():
    tree = {f"layer{i}": {"w": np.full((4, 2), i, np.float32), "b": np.float32(i)}
            for i in range(2500)}
    split = NamedSharding(Mesh(np.array(jax.devices()[:4]), ("x",)), P())
    step = jax.jit(lambda t: jax.tree.map(lambda v: v * 2 + 1, t), donate_argnums=0)
    placed = jax.device_put(tree, split)
    assert len(jax.tree.leaves(placed)) == 5000
    for _ in range(2):
        placed = step(placed)
    got = jax.device_get(placed)
    for i in (0, 1, 1234, 2499):
        np.testing.assert_array_equal(got[f"layer{i}"]["w"], np.full((4, 2), 4 * i + 3))
        assert got[f"layer{i}"]["b"] == 4 * i + 3


def program_of_20_mb():
    constant = np.random.default_rng(0).integers(0, 255, 20 << 20, dtype=np.uint8)
    text = jax.jit(lambda i: jnp.asarray(constant)[i])
    assert int(text(jnp.int32(12345))) == int(constant[12345])
    assert int(text(jnp.int32((20 << 20) - 1))) == int(constant[-1])


if __name__ == "__main__":
    globals()[sys.argv[1]]()
