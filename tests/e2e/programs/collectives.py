# SPDX-License-Identifier: Apache-2.0
"""shard_map with psum and its relatives, over the devices of each island."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from places import islands

for devices in islands():
    mesh = Mesh(np.array(devices), ("i",))
    split = NamedSharding(mesh, P("i"))
    x = np.arange(8, dtype=np.float32)
    here = jax.device_put(x, split)

    def mapped(function, out):
        return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=P("i"), out_specs=out))

    total = mapped(lambda v: jax.lax.psum(v, "i"), P())(here)
    np.testing.assert_array_equal(total, x.reshape(4, 2).sum(axis=0))

    mean = mapped(lambda v: jax.lax.pmean(v.sum(), "i"), P())(here)
    assert float(mean) == x.sum() / 4

    turned = mapped(
        lambda v: jax.lax.ppermute(v, "i", [(k, (k + 1) % 4) for k in range(4)]), P("i")
    )(here)
    np.testing.assert_array_equal(turned, np.roll(x, 2))

    gathered = mapped(lambda v: jax.lax.all_gather(v, "i", tiled=True) + 0 * v.sum(), P("i"))(here)
    np.testing.assert_array_equal(gathered, np.tile(x, 4))

    scattered = mapped(
        lambda v: jax.lax.psum_scatter(jnp.tile(v, 4), "i", tiled=True), P("i")
    )(here)
    np.testing.assert_array_equal(scattered, np.tile(x.reshape(4, 2).sum(axis=0), 4))

    index = mapped(lambda v: v * 0 + jax.lax.axis_index("i"), P("i"))(here)
    np.testing.assert_array_equal(index, np.repeat(np.arange(4), 2))

    # A chain of dependent gangs; only the last result is fetched.
    step = mapped(lambda v: v + jax.lax.psum(v, "i") / 8, P("i"))
    expected, value = x.astype(np.float64), here
    for _ in range(20):
        value = step(value)
        expected = expected + np.tile(expected.reshape(4, 2).sum(axis=0), 4) / 8
    np.testing.assert_allclose(value, expected, rtol=1e-5)

    # If a program declares a value replicated that is not, each device keeps its own value.
    unchecked = jax.shard_map(
        lambda v: v, mesh=mesh, in_specs=P("i"), out_specs=P(), check_vma=False)
    for k, shard in enumerate(jax.jit(unchecked)(here).addressable_shards):
        np.testing.assert_array_equal(shard.data, x.reshape(4, 2)[k])
