# SPDX-License-Identifier: Apache-2.0
"""A network of two layers, one on the devices of each island, trained until the file `enough` is there.

Prints each step, and at the end whether the losses are those that NumPy computes.
"""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

ROWS, WIDTH, RATE = 64, 16, 0.1


def start():
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, WIDTH)).astype(np.float32)
    return x, np.sin(x[:, :1]), *(0.3 * random.normal(size=(WIDTH, n)).astype(np.float32) for n in (WIDTH, 1))


def reference(steps):
    """The losses, by NumPy."""
    x, y, a, b = start()
    losses = []
    for _ in range(steps):
        h = np.tanh(x @ a)
        error = h @ b - y
        losses.append(float(np.mean(error**2)))
        dh = 2 / ROWS * error @ b.T
        b = b - RATE * 2 / ROWS * h.T @ error
        a = a - RATE * x.T @ (dh * (1 - h**2))
    return losses


@jax.jit
def forward(a, x):
    return jnp.tanh(x @ a)


@jax.jit
def upper(b, h, y):
    def loss(b, h):
        return jnp.mean((h @ b - y) ** 2)
    value, (db, dh) = jax.value_and_grad(loss, (0, 1))(b, h)
    return value, b - RATE * db, dh


@jax.jit
def backward(a, x, dh):
    return a - RATE * jax.vjp(lambda a: jnp.tanh(x @ a), a)[1](dh)[0]


def main():
    islands = {}
    for device in jax.devices():
        islands.setdefault(device.slice_index, []).append(device)
    assert len(islands) == 2, islands
    rows, whole = zip(*((NamedSharding(mesh, P("rows")), NamedSharding(mesh, P())) for mesh in (
        Mesh(np.array(devices), ("rows",)) for _, devices in sorted(islands.items()))))
    x, y, a, b = start()
    x, y = jax.device_put(x, rows[0]), jax.device_put(y, rows[1])
    a, b = jax.device_put(a, whole[0]), jax.device_put(b, whole[1])
    losses = []
    while len(losses) < 20 or not pathlib.Path("enough").exists():
        h = jax.device_put(forward(a, x), rows[1])
        loss, b, dh = upper(b, h, y)
        a = backward(a, x, jax.device_put(dh, rows[0]))
        losses.append(float(loss))
        print("step", len(losses), flush=True)
    assert losses[-1] < 0.5 * losses[0], losses
    np.testing.assert_allclose(losses, reference(len(losses)), rtol=1e-3)
    print("as NumPy computes them")


main()
