# SPDX-License-Identifier: Apache-2.0
"""Attention over a sequence that no single device holds, by collectives in shard_map.

Each device of one island has a quarter of the sequence. Keys and values go around in a ring
(ppermute) while every device gathers its part of the result; a second form collects them first
(all_gather), a third splits by heads instead (all_to_all). All give what one device computes.
Nothing here knows of Fairway:

  JAX_PLATFORMS=fairway,cpu FAIRWAY_CONTROLLER=host:port python shard_map_attention.py
  JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=8 \\
      python shard_map_attention.py
"""

import argparse
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

HEADS, WIDTH = 4, 16


def attention(q, k, v):
    """[rows, heads, width] each; the reference, and what is done with whole sequences."""
    scores = jnp.einsum("qhd,khd->hqk", q, k) / WIDTH**0.5
    return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores, axis=-1), v)


def ring(q, k, v):
    """q, k, v: this device's rows. Softmax is kept as maximum, sum and weighted values so far."""
    size = lax.axis_size("x")

    def turn(_, carry):
        top, total, values, k, v = carry
        scores = jnp.einsum("qhd,khd->hqk", q, k) / WIDTH**0.5
        new_top = jnp.maximum(top, scores.max(axis=-1))
        weights = jnp.exp(scores - new_top[..., None])
        old = jnp.exp(top - new_top)
        total = total * old + weights.sum(axis=-1)
        values = values * old.T[..., None] + jnp.einsum("hqk,khd->qhd", weights, v)
        k, v = lax.ppermute((k, v), "x", [(i, (i + 1) % size) for i in range(size)])
        return new_top, total, values, k, v

    start = lax.pcast(
        (jnp.full((HEADS, q.shape[0]), -jnp.inf), jnp.zeros((HEADS, q.shape[0])), jnp.zeros(q.shape)),
        "x", to="varying")
    _, total, values, _, _ = lax.fori_loop(0, size, turn, (*start, k, v))
    return values / total.T[..., None]


def gathered(q, k, v):
    k, v = (lax.all_gather(part, "x", tiled=True) for part in (k, v))
    return attention(q, k, v)


def by_heads(q, k, v):
    to_heads = functools.partial(lax.all_to_all, axis_name="x", split_axis=1, concat_axis=0, tiled=True)
    whole = attention(*(to_heads(part) for part in (q, k, v)))
    return lax.all_to_all(whole, "x", split_axis=0, concat_axis=1, tiled=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=256, help="length of the sequence (default 256)")
    parser.add_argument("--json", metavar="FILE", help="write the result's sums there")
    args = parser.parse_args()

    first = getattr(jax.devices()[0], "slice_index", None)
    devices = [d for d in jax.devices() if getattr(d, "slice_index", None) == first][:4]
    mesh = Mesh(np.array(devices), ("x",))
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((args.rows, HEADS, WIDTH)).astype(np.float32) for _ in range(3)]
    expected = np.asarray(jax.jit(attention)(*parts))
    split = jax.device_put(parts, NamedSharding(mesh, P("x")))

    sums = {}
    for form in (ring, gathered, by_heads):
        mapped = jax.shard_map(form, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
        got = np.asarray(jax.jit(mapped)(*split))
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
        slope = jax.jit(jax.grad(lambda q, k, v: (mapped(q, k, v) ** 2).sum()))(*split)
        sums[form.__name__] = [float(np.abs(got).sum()), float(jnp.abs(slope).sum())]
        worst = np.abs(got - expected).max()
        print(f"{form.__name__}: largest difference from one device {worst:.1e}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(sums, file)


if __name__ == "__main__":
    main()
