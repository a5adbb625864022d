# SPDX-License-Identifier: Apache-2.0
"""Putting and fetching: every dtype, scalars, empty and large arrays, trees, odd views."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from places import islands

device = islands()[1][2]
mesh = Mesh(np.array(islands()[0]), ("x",))
rng = np.random.default_rng(0)

for dtype in (
    np.bool_, np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32,
    np.float16, np.float32, np.complex64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
):
    value = (rng.random((8, 5)) * 7).astype(dtype)
    for place in (device, NamedSharding(mesh, P("x"))):
        put = jax.device_put(value, place)
        assert put.dtype == value.dtype
        np.testing.assert_array_equal(np.asarray(put).view(np.uint8), value.view(np.uint8))
        same = jax.jit(lambda v: v.reshape(4, 10))(put)
        np.testing.assert_array_equal(np.asarray(same), value.reshape(4, 10))

assert float(jax.device_put(np.float32(2.5), device)) == 2.5
assert int(jnp.int32(7) + 1) == 8
assert np.asarray(jax.device_put(np.zeros((3, 0, 2), np.int32), device)).shape == (3, 0, 2)

base = np.arange(60, dtype=np.float32).reshape(5, 12)
for view in (base.T, base[::2], base[:, ::3], np.asfortranarray(base), base[1:1]):
    np.testing.assert_array_equal(jax.device_put(view, device), view)

large = rng.random((1 << 21,), dtype=np.float32)  # 8 MiB: above every limit for small results
np.testing.assert_array_equal(jax.device_put(large, device) * 1, large)
spread = jax.device_put(large, NamedSharding(mesh, P("x")))
np.testing.assert_array_equal(spread * 1, large)

put = jax.device_put(base, device)
tree = jax.device_get({"a": put * 2, "b": (jnp.arange(3), 1.5)})
assert isinstance(tree["a"], np.ndarray) and tree["b"][1] == 1.5
np.testing.assert_array_equal(tree["b"][0], [0, 1, 2])

many = [jnp.float32(k) * 2 for k in range(100)]
assert [float(v) for v in many] == [2.0 * k for k in range(100)]
jax.block_until_ready(many)
