# SPDX-License-Identifier: Apache-2.0
"""Collectives inside shard_map, on each island and over both axes of a mesh."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from cases import case, islands, main, rows, split

x = rows(16, 8)


def mapped(devices, function, out_specs=P("x"), **keywords):
    mesh = Mesh(np.array(devices), ("x",))
    call = jax.jit(jax.shard_map(
        function, mesh=mesh, in_specs=P("x"), out_specs=out_specs, **keywords))
    return np.asarray(call(jax.device_put(x, NamedSharding(mesh, P("x")))))


@case
def every_collective_on_each_island():
    parts = x.reshape(4, 4, 8)
    swapped = parts.reshape(4, 4, 1, 8).transpose(1, 0, 2, 3).reshape(16, 8)
    for devices in islands():
        same = np.testing.assert_array_equal
        near = np.testing.assert_allclose
        near(mapped(devices, lambda v: lax.psum(v, "x"), P()), parts.sum(0), rtol=1e-5, atol=1e-6)
        near(mapped(devices, lambda v: lax.pmean(v, "x"), P()), parts.mean(0), rtol=1e-5, atol=1e-6)
        same(mapped(devices, lambda v: lax.pmax(v, "x"), P()), parts.max(0))
        same(mapped(devices, lambda v: lax.pmin(v, "x"), P()), parts.min(0))
        same(mapped(devices, lambda v: lax.all_gather(v, "x", tiled=True), P(), check_vma=False), x)
        same(mapped(devices, lambda v: lax.ppermute(v, "x", [(i, (i + 1) % 4) for i in range(4)])),
             np.roll(parts, 1, axis=0).reshape(16, 8))
        same(mapped(devices, lambda v: lax.ppermute(v, "x", [(0, 3)])),
             np.concatenate([np.zeros((12, 8), np.float32), parts[0]]))
        same(mapped(devices, lambda v: lax.all_to_all(v, "x", 0, 0, tiled=True)), swapped)
        near(mapped(devices, lambda v: lax.psum_scatter(v, "x", tiled=True)), parts.sum(0),
             rtol=1e-5, atol=1e-6)
        same(mapped(devices, lambda v: v + lax.axis_index("x")),
             x + np.repeat(np.arange(4), 4)[:, None].astype(np.float32))


@case
def two_axes_and_groups():
    (devices, _) = islands()
    mesh = Mesh(np.array(devices).reshape(2, 2), ("a", "b"))
    placed = jax.device_put(x, NamedSharding(mesh, P("a", "b")))
    blocks = x.reshape(2, 8, 2, 4)
    results = []
    for axes, out, expected in (
        ("a", P(None, "b"), blocks.sum(0).reshape(8, 8)),
        ("b", P("a"), blocks.sum(2).reshape(16, 4)),
        (("a", "b"), P(), blocks.sum((0, 2))),
    ):
        got = jax.jit(jax.shard_map(
            lambda v: lax.psum(v, axes), mesh=mesh, in_specs=P("a", "b"), out_specs=out))(placed)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
        results.append(got)
    pairs = jax.jit(jax.shard_map(
        lambda v: lax.psum(v, "x", axis_index_groups=[[0, 2], [1, 3]]), check_vma=False,
        mesh=Mesh(np.array(devices), ("x",)), in_specs=P("x"), out_specs=P("x")))(
            jax.device_put(x, split(devices)))
    parts = x.reshape(4, 4, 8)
    even, odd = parts[0] + parts[2], parts[1] + parts[3]
    np.testing.assert_allclose(pairs, np.concatenate([even, odd] * 2), rtol=1e-6)
    return results, pairs


@case
def a_ring_of_matrix_products_and_its_gradient():
    (_, devices) = islands()
    mesh = Mesh(np.array(devices), ("x",))
    a, b = rows(16, 16, 1), rows(16, 16, 2)

    def ring(a, b):
        """a: this device's rows; b: its rows, which are sent around. Returns the rows of a @ b."""
        def turn(i, carry):
            total, b = carry
            which = (lax.axis_index("x") - i) % 4
            columns = lax.dynamic_slice_in_dim(a, which * 4, 4, axis=1)
            return total + columns @ b, lax.ppermute(b, "x", [(j, (j + 1) % 4) for j in range(4)])

        return lax.fori_loop(0, 4, turn, (jnp.zeros_like(a) * lax.axis_index("x"), b))[0]

    product = jax.shard_map(ring, mesh=mesh, in_specs=(P("x"), P("x")), out_specs=P("x"))
    placed = jax.device_put((a, b), NamedSharding(mesh, P("x")))
    got = jax.jit(product)(*placed)
    np.testing.assert_allclose(got, a @ b, rtol=1e-4, atol=1e-5)
    slope = jax.jit(jax.grad(lambda a, b: (product(a, b) ** 2).sum()))(*placed)
    np.testing.assert_allclose(slope, 2 * (a @ b) @ b.T, rtol=1e-3, atol=1e-3)
    return got, slope


@case
def pipelined_steps_of_both_islands_overlap():
    """Forty gangs on each island are in flight together; each island keeps its own order."""
    totals = []
    for devices in islands():
        mesh = Mesh(np.array(devices), ("x",))
        step = jax.jit(jax.shard_map(
            lambda v: v + lax.psum(v, "x") / 8, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
        totals.append((step, jax.device_put(np.ones((4, 8), np.float32), split(devices))))
    for _ in range(40):
        totals = [(step, step(v)) for step, v in totals]
    left, right = (np.asarray(v) for _, v in totals)
    np.testing.assert_array_equal(left, right)
    np.testing.assert_allclose(left, np.full((4, 8), 1.5**40), rtol=1e-5)
    return left


if __name__ == "__main__":
    main()
