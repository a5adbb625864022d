# SPDX-License-Identifier: Apache-2.0
"""pathwaysutils' helpers for arrays: `pathways_helpers.py split|concatenate|reshard`."""

import sys

import pathwaysutils

pathwaysutils.initialize()

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402
from pathwaysutils.experimental.concatenate_by_mesh_axis import concatenate_by_mesh_axis  # noqa: E402
from pathwaysutils.experimental.split_by_mesh_axis import split_by_mesh_axis  # noqa: E402

devices = np.array(sorted(jax.devices(), key=lambda d: (d.slice_index, d.id)))
both = Mesh(devices.reshape(2, 4), ("island", "x"))
x = np.arange(64, dtype=np.float32).reshape(8, 8)


def placed():
    """One sharding cut by island and one not, over all devices."""
    return {
        "cut": jax.device_put(x, NamedSharding(both, P("island", "x"))),
        "whole": jax.device_put(x + 100, NamedSharding(both, P(None, "x"))),
    }


def split():
    tree = placed()
    parts = split_by_mesh_axis(tree, "island")
    assert len(parts) == 2
    for number, part in enumerate(parts):
        mine = set(devices[4 * number : 4 * number + 4])
        assert all(leaf.sharding.device_set == mine for leaf in jax.tree.leaves(part))
        np.testing.assert_array_equal(part["cut"], x[4 * number : 4 * number + 4])
        np.testing.assert_array_equal(part["whole"], x + 100)
        doubled = jax.jit(lambda t: jax.tree.map(lambda v: v * 2, t))(part)
        np.testing.assert_array_equal(doubled["cut"], x[4 * number : 4 * number + 4] * 2)
    np.testing.assert_array_equal(tree["cut"], x)  # the parts are views: the whole is still there
    gone = split_by_mesh_axis(tree, "x", [1], donate=True)
    assert tree["cut"].is_deleted()
    np.testing.assert_array_equal(gone[0]["cut"], x[:, :2])
    np.testing.assert_array_equal(gone[1]["cut"], x[:, 2:])


def concatenate():
    parts = split_by_mesh_axis(placed(), "island")
    # Given, because a jit may not tell P(None, "x") from P("island", "x") if "island" has one device.
    parts = [
        jax.jit(lambda t: jax.tree.map(lambda v: v + 1, t),
                out_shardings=jax.tree.map(lambda v: v.sharding, part))(part)
        for part in parts
    ]
    whole = concatenate_by_mesh_axis(parts, "island")
    assert whole["cut"].sharding == NamedSharding(parts_mesh(whole), P("island", "x"))
    np.testing.assert_array_equal(whole["cut"], x + 1)
    np.testing.assert_array_equal(whole["whole"], x + 101)


def parts_mesh(tree):
    mesh = tree["cut"].sharding.mesh
    assert mesh.devices.shape == (2, 4) and mesh.axis_names == ("island", "x")
    return mesh


def reshard():
    from pathwaysutils.reshard import reshard as to

    tree = placed()
    right = Mesh(devices[4:].reshape(2, 2), ("a", "b"))
    targets = {"cut": NamedSharding(right, P("b", "a")), "whole": NamedSharding(right, P(("a", "b")))}
    there = to(tree, targets)
    for name, expected in (("cut", x), ("whole", x + 100)):
        assert there[name].sharding == targets[name]
        np.testing.assert_array_equal(there[name], expected)
        np.testing.assert_array_equal(jax.jit(lambda v: v.T)(there[name]), expected.T)
    one = jax.sharding.SingleDeviceSharding(devices[2])
    back = to(there, one, donate=True)
    np.testing.assert_array_equal(back["cut"], x)
    assert there["cut"].is_deleted()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("done")
