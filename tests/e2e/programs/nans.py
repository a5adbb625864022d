# SPDX-License-Identifier: Apache-2.0
"""NaN passes through max and min, as in JAX; XLA's own default for CPUs drops it.

The expected values come from JAX's CPU backend and from numpy, whose maximum and minimum keep NaN.
"""

import jax
import jax.numpy as jnp
import numpy as np

for dtype in (jnp.float32, jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn):
    x = jnp.array([1, np.nan, 3], dtype)

    def check(what, got, wanted):
        np.testing.assert_array_equal(np.asarray(got, np.float32), np.float32(wanted),
                                      f"{what} of {dtype}")

    check("max", jnp.max(x), np.nan)
    check("min", jnp.min(x), np.nan)
    check("maximum", jnp.maximum(jnp.zeros(3, dtype), x), [1, np.nan, 3])
    check("minimum", jnp.minimum(jnp.full(3, 2, dtype), x), [1, np.nan, 2])
    check("clip", jnp.clip(x, -1, 1), [1, np.nan, 1])
    check("cummax", jax.lax.cummax(x), [1, np.nan, np.nan])
    window = jax.lax.reduce_window(x, jnp.array(-448, dtype), jax.lax.max, (2,), (1,), "VALID")
    check("reduce_window", window, [np.nan, np.nan])
x = jnp.array([1.0, np.nan, 3.0])
np.testing.assert_array_equal(jax.grad(jnp.max)(x), [np.nan] * 3)
assert np.isnan(jnp.linalg.norm(x, np.inf))
assert np.isnan(jnp.max(jnp.abs(x - x)))
print("nans ok")
