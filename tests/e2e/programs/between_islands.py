# SPDX-License-Identifier: Apache-2.0
"""device_put between islands and between devices, to every kind of target."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

from places import islands

left, right = islands()
mesh_left, mesh_right = Mesh(np.array(left), ("x",)), Mesh(np.array(right), ("x",))
a = np.arange(4096, dtype=np.float32).reshape(64, 64)

for spec in (P(), P("x"), P(None, "x")):
    here = jax.device_put(a, NamedSharding(mesh_left, spec))
    there = jax.device_put(here, NamedSharding(mesh_right, spec))
    assert there.sharding.device_set == set(right)
    np.testing.assert_array_equal(there, a)
    doubled = jax.jit(lambda v: v * 2)(there)
    back = jax.device_put(doubled, NamedSharding(mesh_left, spec))
    np.testing.assert_array_equal(back, a * 2)
    np.testing.assert_array_equal(here, a)  # a copy, not a move

one = jax.device_put(a, left[1])
for target in (left[2], right[0], right[3], SingleDeviceSharding(left[0])):
    moved = jax.device_put(one, target)
    np.testing.assert_array_equal(moved, a)
    np.testing.assert_array_equal(moved + 1, a + 1)

# Another spec on the target island.
rows = jax.device_put(a, NamedSharding(mesh_left, P("x")))
columns = jax.device_put(rows, NamedSharding(mesh_right, P(None, "x")))
np.testing.assert_array_equal(columns, a)

# A tree at once, and results that are still being computed.
tree = {"a": jnp.ones((8, 8)), "b": [jnp.arange(16.0)]}
tree = jax.device_put(tree, NamedSharding(mesh_left, P("x")))
for _ in range(10):
    tree = jax.jit(lambda t: jax.tree.map(lambda v: v * 2, t))(tree)
    tree = jax.device_put(tree, NamedSharding(mesh_right, P("x")))
    tree = jax.jit(lambda t: jax.tree.map(lambda v: v / 2 + 1, t))(tree)
    tree = jax.device_put(tree, NamedSharding(mesh_left, P("x")))
np.testing.assert_array_equal(tree["a"], np.full((8, 8), 11.0))
np.testing.assert_array_equal(tree["b"][0], np.arange(16.0) + 10)

# 32 MiB: many chunks.
big = np.random.default_rng(0).random((8, 1 << 20), dtype=np.float32)
there = jax.device_put(jax.device_put(big, NamedSharding(mesh_left, P("x"))),
                       NamedSharding(mesh_right, P("x")))
np.testing.assert_array_equal(there, big)

# A transfer may have nothing to send.
empty = jax.device_put(jax.device_put(np.zeros((0, 4), np.float32), left[0]), right[0])
assert np.asarray(empty).shape == (0, 4)
