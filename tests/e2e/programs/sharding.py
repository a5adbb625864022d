# SPDX-License-Identifier: Apache-2.0
"""NamedSharding over the four devices of an island: put, jit, reshard, matmul, fetch."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from places import islands

devices = islands()[0]
line = Mesh(np.array(devices), ("x",))
square = Mesh(np.array(devices).reshape(2, 2), ("x", "y"))
a = np.arange(64 * 32, dtype=np.float32).reshape(64, 32) / 100
b = np.arange(32 * 16, dtype=np.float32).reshape(32, 16) / 100

for mesh, spec in [
    (line, P()), (line, P("x")), (line, P(None, "x")),
    (square, P("x", "y")), (square, P("y", "x")), (square, P(("x", "y"))), (square, P("y")),
]:
    put = jax.device_put(a, NamedSharding(mesh, spec))
    assert put.sharding.device_set == set(devices)
    np.testing.assert_array_equal(put, a)
    for shard in put.addressable_shards:
        np.testing.assert_array_equal(shard.data, a[shard.index])
    np.testing.assert_allclose(jnp.square(put), a * a, rtol=1e-6)

rows = jax.device_put(a, NamedSharding(square, P("x", None)))
columns = jax.device_put(b, NamedSharding(square, P(None, "y")))
product = jax.jit(jnp.matmul)(rows, columns)
np.testing.assert_allclose(product, a @ b, rtol=1e-4)
assert product.sharding.is_equivalent_to(NamedSharding(square, P("x", "y")), 2)

contracted = jax.jit(jnp.matmul, out_shardings=NamedSharding(square, P()))(
    jax.device_put(a, NamedSharding(square, P(None, "x"))),
    jax.device_put(b, NamedSharding(square, P("x", None))),
)
np.testing.assert_allclose(contracted, a @ b, rtol=1e-4)

transposed = jax.jit(lambda v: v.T, out_shardings=NamedSharding(line, P("x")))(
    jax.device_put(a, NamedSharding(line, P("x")))
)
np.testing.assert_array_equal(transposed, a.T)

constrained = jax.jit(
    lambda v: jax.lax.with_sharding_constraint(v + 1, NamedSharding(line, P(None, "x"))) * 2
)(jax.device_put(a, NamedSharding(line, P("x"))))
np.testing.assert_array_equal(constrained, (a + 1) * 2)

# Results whose dimensions the axes do not divide.
for mesh, spec in [(line, P("x")), (square, P("x", "y")), (square, P(("x", "y"))),
                   (square, P(("y", "x"), None))]:
    put = jax.device_put(a, NamedSharding(mesh, spec))
    for count in (1, 2, 3, 6, 10, 32, 62):
        cut = jax.jit(lambda v, n=count: v[:n] + 1)(put)
        np.testing.assert_array_equal(cut, a[:count] + 1)
        for shard in cut.addressable_shards:
            np.testing.assert_array_equal(shard.data, (a[:count] + 1)[shard.index])
uneven = jax.jit(
    lambda v: jax.lax.with_sharding_constraint(v[:6], NamedSharding(line, P("x")))
)(jax.device_put(a, NamedSharding(line, P("x"))))
np.testing.assert_array_equal(uneven, a[:6])

reversed_line = Mesh(np.array(devices[::-1]), ("x",))
backwards = jax.device_put(a, NamedSharding(reversed_line, P("x")))
np.testing.assert_array_equal(jax.jit(lambda v: v * 3)(backwards), a * 3)

built = jax.make_array_from_callback(
    a.shape, NamedSharding(line, P("x")), lambda index: a[index] * 2
)
np.testing.assert_array_equal(built, a * 2)

pair = Mesh(np.array(devices[1:3]), ("x",))
half = jax.jit(lambda v: v.sum(axis=0))(jax.device_put(a, NamedSharding(pair, P("x"))))
np.testing.assert_allclose(half, a.sum(axis=0), rtol=1e-5)
