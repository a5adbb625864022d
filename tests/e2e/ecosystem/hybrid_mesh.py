# SPDX-License-Identifier: Apache-2.0
"""create_hybrid_device_mesh groups the devices by island. JAX's CPU backend has no islands."""

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

devices = mesh_utils.create_hybrid_device_mesh((2, 2), (2, 1), jax.devices())
assert devices.shape == (4, 2)
assert [d.slice_index for d in devices[:2].flat] == [0] * 4
assert [d.slice_index for d in devices[2:].flat] == [1] * 4
assert sorted(d.id for d in devices.flat) == list(range(8))

devices = mesh_utils.create_hybrid_device_mesh((1, 4), (2, 1))
x = np.arange(32, dtype=np.float32).reshape(4, 8)
placed = jax.device_put(x, NamedSharding(Mesh(devices, ("island", "x")), P("island", "x")))
for shard in placed.addressable_shards:
    assert shard.device.slice_index == shard.index[0].start // 2
np.testing.assert_array_equal(placed, x)

try:
    mesh_utils.create_hybrid_device_mesh((1, 2), (4, 1))
except ValueError as error:
    assert "slices" in str(error), error
else:
    raise AssertionError("four islands were found")
