# SPDX-License-Identifier: Apache-2.0
"""A program written for Pathways: to connect, it only calls pathwaysutils.initialize()."""

import pathwaysutils

pathwaysutils.initialize()

import jax  # noqa: E402
import numpy as np  # noqa: E402

assert pathwaysutils.is_pathways_backend_used()
assert len(jax.devices()) == 8 and {d.slice_index for d in jax.devices()} == {0, 1}
x = np.arange(8, dtype=np.float32)
there = jax.device_put(x, jax.devices()[5])
np.testing.assert_array_equal(jax.jit(lambda v: v * 2)(there), x * 2)
# Our package adds this for every client, whichever package registered it.
np.testing.assert_array_equal(jax.device_put(x[::-1], jax.devices()[1]), x[::-1])
np.testing.assert_array_equal(jax.device_put(there, jax.devices("cpu")[0]), x)
print("connected")
