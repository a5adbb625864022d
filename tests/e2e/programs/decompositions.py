# SPDX-License-Identifier: Apache-2.0
"""Decompositions of matrices of order 100, judged by their defining properties.

Two libraries may return different decompositions that are equally good: signs, phases and, in a
Schur form, the order of eigenvalues are the algorithm's choice, and rounding decides it. So nothing
is compared element by element; each must reproduce its matrix and have its form. The bound is the
multiple of the type's epsilon that LAPACK's own tests use (threshold 30, relative to order times
norm).
"""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg as numpy_linalg
from jax.scipy import linalg

jax.config.update("jax_enable_x64", True)
ORDER = 100


def check(what, got, wanted, matrix):
    scale = ORDER * np.linalg.norm(matrix, 1) * np.finfo(matrix.dtype).eps
    error = np.linalg.norm(np.asarray(got) - np.asarray(wanted), 1) / scale
    assert error < 30, f"{what} of {matrix.dtype}: {error} times what rounding explains"


def unitary(what, q):
    q = np.asarray(q)
    check(f"{what}: Q^H Q", q.conj().T @ q, np.eye(q.shape[1]), np.eye(ORDER, dtype=q.dtype))


for dtype in (np.float32, np.complex128):
    random = np.random.default_rng(7)
    a = random.standard_normal((ORDER, ORDER))
    if np.issubdtype(dtype, np.complexfloating):
        a = a + 1j * random.standard_normal((ORDER, ORDER))
    a = a.astype(dtype)
    both = (a + a.conj().T) / 2
    positive = (a @ a.conj().T + ORDER * np.eye(ORDER)).astype(dtype)

    t, z = map(np.asarray, jax.jit(linalg.schur)(a))
    check("schur", z @ t @ z.conj().T, a, a)
    unitary("schur", z)
    assert not np.tril(t, -2).any(), "a Schur form is triangular, but for blocks of order 2"
    if np.issubdtype(dtype, np.complexfloating):
        assert not np.tril(t, -1).any(), "a complex Schur form is triangular"
    else:
        below = np.diag(t, -1) != 0
        assert not (below[1:] & below[:-1]).any(), "blocks are of order 2 at most"

    h, q = map(np.asarray, linalg.hessenberg(a, calc_q=True))
    check("hessenberg", q @ h @ q.conj().T, a, a)
    unitary("hessenberg", q)
    assert not np.tril(h, -2).any()

    q, r = map(np.asarray, jnp.linalg.qr(a))
    check("qr", q @ r, a, a)
    unitary("qr", q)
    assert not np.tril(r, -1).any()

    p, l, u = map(np.asarray, linalg.lu(a))
    check("lu", p @ l @ u, a, a)
    assert np.abs(l).max() <= 1.5, "pivots are the largest, by the sum of their parts"

    u, s, vh = map(np.asarray, jnp.linalg.svd(a))
    check("svd", u * s @ vh, a, a)
    unitary("svd, left", u)
    unitary("svd, right", vh)
    assert (np.diff(s) <= 0).all() and s[-1] >= 0, "singular values fall"

    w, v = map(np.asarray, jnp.linalg.eigh(both))
    check("eigh", v * w @ v.conj().T, both, both)
    unitary("eigh", v)
    assert (np.diff(w) >= 0).all(), "eigenvalues rise"

    w, v = map(np.asarray, jnp.linalg.eig(a))
    check("eig", a @ v, v * w, a)

    l = np.asarray(jnp.linalg.cholesky(positive))
    check("cholesky", l @ l.conj().T, positive, positive)

    # Where the answer is unique, it equals scipy's.
    x = np.asarray(linalg.cho_solve((jnp.asarray(l), True), jnp.asarray(a)))
    check("cho_solve", positive @ x, a, positive)
    check("expm", linalg.expm(a / ORDER), numpy_linalg.expm(a / ORDER), a)

print("decomposed")
