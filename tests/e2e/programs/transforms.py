# SPDX-License-Identifier: Apache-2.0
"""jit, grad, vmap, scan, while_loop, cond and custom rules on one device, against numpy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)
w = np.linspace(1, -1, 18, dtype=np.float32).reshape(6, 3)

f = jax.jit(lambda a, b: jnp.tanh(a @ b).sum())
np.testing.assert_allclose(f(x, w), np.tanh(x @ w).sum(), rtol=1e-5)

grad_w = jax.jit(jax.grad(f, argnums=1))(x, w)
np.testing.assert_allclose(grad_w, x.T @ (1 - np.tanh(x @ w) ** 2), rtol=1e-4, atol=1e-5)

value, (grad_x, _) = jax.value_and_grad(f, argnums=(0, 1))(x, w)
np.testing.assert_allclose(grad_x, (1 - np.tanh(x @ w) ** 2) @ w.T, rtol=1e-4, atol=1e-5)
assert value.shape == ()

rows = jax.vmap(lambda row: jnp.dot(row, row))(x)
np.testing.assert_allclose(rows, (x * x).sum(axis=1), rtol=1e-5)

hessian = jax.jit(jax.hessian(lambda v: (v**3).sum()))(jnp.arange(3.0))
np.testing.assert_allclose(hessian, np.diag(6 * np.arange(3.0)), rtol=1e-6)


@jax.jit
def cumulative(v):
    return jax.lax.scan(lambda carry, e: (carry + e, carry + e), jnp.float32(0), v)[1]


np.testing.assert_allclose(cumulative(x[0]), np.cumsum(x[0]), rtol=1e-5)

collatz = jax.jit(
    lambda n: jax.lax.while_loop(
        lambda s: s[0] != 1,
        lambda s: (jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1),
        (n, 0),
    )[1]
)
assert int(collatz(27)) == 111

chosen = jax.jit(lambda p, v: jax.lax.cond(p, lambda u: u * 2, lambda u: u - 1, v))
assert float(chosen(True, 4.0)) == 8.0 and float(chosen(False, 4.0)) == 3.0


@functools.partial(jax.custom_vjp)
def clipped(v):
    return v


clipped.defvjp(lambda v: (v, None), lambda _, g: (jnp.clip(g, -1, 1),))
assert float(jax.grad(lambda v: 5 * clipped(v))(2.0)) == 1.0

trees = jax.jit(lambda t: {"sum": t["a"] + t["b"][0], "n": t["b"][1]})
out = trees({"a": jnp.ones(3), "b": (jnp.ones(3), 7)})
np.testing.assert_array_equal(out["sum"], [2, 2, 2])
assert int(out["n"]) == 7

eager = jnp.arange(10).reshape(2, 5).T[1:3] + 1
np.testing.assert_array_equal(eager, np.arange(10).reshape(2, 5).T[1:3] + 1)



def kept(v):
    jax.lax.dce_sink(v + 5, prevent_mlir_dce=True)  # computed, although nothing takes it
    return v * 2


for kind in "float32", "int32", "bool", "complex64", "float8_e5m2":
    ones = jnp.ones(3).astype(kind)
    np.testing.assert_array_equal(jax.jit(kept)(ones), ones * 2)
assert "dce_sink" in jax.jit(kept).lower(1.0).compile().as_text()

numbers, token = jax.jit(lambda v, t: (v + 1, t))(jnp.arange(3), jax.lax.create_token(None))
numbers, token = jax.jit(lambda v, t: (v + 1, t))(numbers, token)
np.testing.assert_array_equal(numbers, [2, 3, 4])
