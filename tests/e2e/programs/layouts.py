# SPDX-License-Identifier: Apache-2.0
"""Arrays whose dimensions are in another order in memory than by default."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

from places import islands

HERE, THERE = (NamedSharding(Mesh(np.array(group), "x"), P("x")) for group in islands())
ONE = SingleDeviceSharding(islands()[0][0])
ROWS, COLUMNS = Layout(major_to_minor=(0, 1)), Layout(major_to_minor=(1, 0))
X = np.arange(32, dtype=np.float32).reshape(8, 4)


def order(array):
    return array.format.layout.major_to_minor


for sharding in (ONE, HERE):
    in_columns = jax.jit(lambda v: v * 2, out_shardings=Format(COLUMNS, sharding))(X)
    assert order(in_columns) == (1, 0) and in_columns.format.sharding == sharding
    np.testing.assert_array_equal(in_columns, X * 2)
    for shard in in_columns.addressable_shards:
        np.testing.assert_array_equal(shard.data, (X * 2)[shard.index])
    # Programs that accept any order, that ask for columns, and that ask for rows.
    np.testing.assert_array_equal(jax.jit(lambda v: v + 1)(in_columns), X * 2 + 1)
    for layout in (COLUMNS, ROWS):
        add = jax.jit(lambda v: v + 1, in_shardings=Format(layout, sharding))
        np.testing.assert_array_equal(add(jax.device_put(in_columns, Format(layout, sharding))),
                                      X * 2 + 1)
    again = jax.jit(lambda v: v * 2, in_shardings=Format(COLUMNS, sharding),
                    out_shardings=Format(COLUMNS, sharding), donate_argnums=0)(in_columns)
    assert in_columns.is_deleted()
    np.testing.assert_array_equal(again, X * 4)
    # From island to island, and computations on it there.
    target = THERE if sharding is HERE else islands()[1][0]
    moved = jax.device_put(again, target)
    np.testing.assert_array_equal(moved, X * 4)
    if hasattr(jax.devices()[0], "slice_index"):  # JAX's own CPU backend is wrong here (0.10.2)
        np.testing.assert_array_equal(jax.jit(lambda v: v + 1)(moved), X * 4 + 1)
    copied = jax.device_put(X, Format(COLUMNS, sharding))
    assert order(copied) == (1, 0)
    np.testing.assert_array_equal(copied, X)

compiled = jax.jit(lambda a, b: (a @ b.T, b.T), in_shardings=Format(Layout.AUTO),
                   out_shardings=Format(Layout.AUTO)).lower(X, X).compile()
arguments = [jax.device_put(X, f) for f in compiled.input_formats[0]]
product, transposed = compiled(*arguments)
np.testing.assert_array_equal(product, X @ X.T)
np.testing.assert_array_equal(transposed, X.T)
assert [order(product), order(transposed)] == [
    f.layout.major_to_minor for f in compiled.output_formats]

deep = jax.jit(lambda v: v, out_shardings=Format(Layout(major_to_minor=(1, 2, 0)), ONE))(
    jnp.arange(24.0).reshape(2, 3, 4))
np.testing.assert_array_equal(deep, np.arange(24.0).reshape(2, 3, 4))
assert order(jnp.zeros((2, 3, 4))) == (0, 1, 2) and order(jnp.float32(1)) == ()
print("OK")
