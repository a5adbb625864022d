# SPDX-License-Identifier: Apache-2.0
"""Resharding (as pathwaysutils does) of unreduced arrays: to the same cut, shard by shard; other
cuts are refused. Also computations, copies and fetches of them."""

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from jaxlib import _pathways

from places import islands


def mesh_of(island):
    return Mesh(np.array(islands()[island]).reshape(2, 2), ("x", "y"),
                axis_types=(AxisType.Explicit,) * 2)


def parts(array):
    return [np.asarray(shard.data) for shard in array.addressable_shards]


def reshard(array, spec, donate=False):
    """Moves it to the other island."""
    (made,) = _pathways._transfer_to_shardings((array,), (NamedSharding(mesh_of(1), spec),), donate)
    return made


def refused(array, spec):
    try:
        parts(reshard(array, spec))
    except jax.errors.JaxRuntimeError as error:
        assert "unreduced or manual over axes" in str(error), error
        return
    raise AssertionError(f"{array.sharding} became {spec}")


SPECS = [
    (P(), P(unreduced={"x"})), (P(), P(unreduced={"y"})), (P(), P(unreduced={"x", "y"})),
    (P("x"), P("x", unreduced={"y"})), (P(None, "y"), P(None, "y", unreduced={"x"})),
    (P("y"), P("y", unreduced={"x"})),
]
a = np.arange(16, dtype=np.int32).reshape(4, 4) + 1

for whole, spec in SPECS:
    jax.set_mesh(mesh_of(0))
    array = jax.reshard(jax.device_put(a, whole), spec)
    before = parts(array)

    for other in [P(), P("x"), P(None, "y"), *(s for _, s in SPECS if s != spec)]:
        refused(array, other)
    refused(jax.device_put(a, whole), spec)

    there = reshard(array, spec)
    for part, expected in zip(parts(there), before, strict=True):
        np.testing.assert_array_equal(part, expected)
    jax.set_mesh(mesh_of(1))
    np.testing.assert_array_equal(jax.reshard(there + there, whole), 2 * a)

    jax.set_mesh(mesh_of(0))
    given = reshard(array, spec, donate=True)
    assert array.is_deleted()
    jax.set_mesh(mesh_of(1))
    np.testing.assert_array_equal(jax.reshard(given, whole), a)

print("resharded")
