# SPDX-License-Identifier: Apache-2.0
"""Resharding, splitting and concatenating: the helpers that pathwaysutils uses, on random arrays.

Every value is compared with numpy's, whole and shard by shard. Seeded: RESHARD_SEED, RESHARD_CASES.
"""

import os

import jax
import ml_dtypes
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jaxlib import _pathways

KINDS = [
    np.bool_, np.int8, np.uint16, np.int32, np.float16, np.float32, np.complex64,
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
]
SEED = int(os.environ.get("RESHARD_SEED", "1"))
CASES = int(os.environ.get("RESHARD_CASES", "150"))
random = np.random.default_rng(SEED)


def islands():
    groups = {}
    for device in jax.devices():
        groups.setdefault(device.slice_index, []).append(device)
    return [groups[index] for index in sorted(groups)]


ISLANDS = islands()
ALL = [device for island in ISLANDS for device in island]


def random_mesh():
    """A sharding over some devices of one island, or of both, in any order."""
    devices = list(ALL if random.random() < 0.3 else ISLANDS[random.integers(len(ISLANDS))])
    if random.random() < 0.4:
        random.shuffle(devices)
    count = int(random.choice([n for n in (1, 2, 4, 6, 8) if n <= len(devices)]))
    shapes = [(count,)] + [(a, count // a) for a in (1, 2, 3, 4) if count % a == 0]
    shape = shapes[random.integers(len(shapes))]
    return Mesh(np.array(devices[:count]).reshape(shape), ("x", "y")[: len(shape)])


def random_sharding(shape):
    mesh = random_mesh()
    axes = list(mesh.axis_names)
    random.shuffle(axes)
    spec = []
    for extent in shape:
        here = []
        while axes and random.random() < 0.6:
            size = int(np.prod([mesh.shape[a] for a in here + axes[-1:]]))
            if extent % size:
                break
            here.append(axes.pop())
        spec.append(tuple(here) if len(here) > 1 else here[0] if here else None)
    return NamedSharding(mesh, P(*spec))


def random_value(shape):
    kind = KINDS[random.integers(len(KINDS))]
    return random.integers(0, 100, shape).astype(kind)


def check(array, value, sharding, what):
    assert array.sharding.is_equivalent_to(sharding, value.ndim), (what, array.sharding, sharding)
    assert array.dtype == value.dtype and array.shape == value.shape, what
    for shard in array.addressable_shards:
        np.testing.assert_array_equal(
            np.asarray(shard.data), value[shard.index], err_msg=f"{what}: {shard.device}"
        )


def reshard_random_arrays():
    for case in range(CASES):
        many = int(random.integers(1, 4))
        values, sources, targets = [], [], []
        for _ in range(many):
            rank = int(random.integers(0, 4))
            shape = tuple(int(n) for n in random.choice([0, 1, 2, 3, 4, 6, 8, 12, 24], rank))
            values.append(random_value(shape))
            sources.append(random_sharding(shape))
            targets.append(random_sharding(shape))
        arrays = [jax.device_put(v, s) for v, s in zip(values, sources)]
        donate = bool(random.random() < 0.3)
        made = _pathways._transfer_to_shardings(tuple(arrays), tuple(targets), donate)
        for i, (array, value, target) in enumerate(zip(made, values, targets)):
            check(array, value, target, f"seed {SEED} case {case}.{i}: {sources[i]} to {target}")
        for array, value, source in zip(arrays, values, sources):
            assert array.is_deleted() == donate
            if not donate:
                check(array, value, source, f"seed {SEED} case {case}: the source")


def reshard_what_is_being_computed():
    mesh = Mesh(np.array(ISLANDS[0][:4]), ("x",))
    x = jax.device_put(np.arange(64.0, dtype=np.float32).reshape(8, 8), NamedSharding(mesh, P("x")))
    there = NamedSharding(Mesh(np.array(ISLANDS[-1][:4]).reshape(2, 2), ("a", "b")), P("b", "a"))
    y = x
    for _ in range(5):
        y = jax.jit(lambda v: v * 2)(y)
    (z,) = _pathways._transfer_to_shardings((y,), (there,), True)
    out = jax.jit(lambda v: v + 1)(z)
    np.testing.assert_array_equal(np.asarray(out), np.asarray(x) * 32 + 1)


def large_shards():
    """So large that it is copied outside the event loops."""
    mesh = Mesh(np.array(ISLANDS[0][:4]), ("x",))
    value = random.standard_normal((1024, 1030)).astype(np.float32)
    x = jax.device_put(value, NamedSharding(mesh, P("x")))
    for devices in (ISLANDS[0][:2], ISLANDS[-1][:2]):
        there = NamedSharding(Mesh(np.array(devices), ("y",)), P(None, "y"))
        (y,) = _pathways._transfer_to_shardings((x,), (there,), False)
        check(y, value, there, f"to {there}")


def device_put_to_another_spec():
    for case in range(20):
        value = random_value((8, 12))
        source, target = random_sharding(value.shape), random_sharding(value.shape)
        check(jax.device_put(jax.device_put(value, source), target), value, target, case)


def split_and_concatenate():
    """The requests of pathwaysutils' split_by_mesh_axis and concatenate_by_mesh_axis."""
    devices = np.array(ALL[:8]).reshape(4, 2)
    mesh = Mesh(devices, ("a", "b"))
    value = np.arange(192, dtype=np.int32).reshape(16, 12)
    for spec, donate in ((P("a", "b"), False), (P("b", "a"), True), (P(None, "b"), True)):
        x = jax.device_put(value, NamedSharding(mesh, spec))
        dimension = spec.index("a") if "a" in spec else -1
        sections = [1, 4]
        parts = [
            NamedSharding(Mesh(devices[begin:end], ("a", "b")), spec)
            for begin, end in ((0, 1), (1, 4))
        ]
        (pieces,) = _pathways._split_by_mesh_axis(
            arrays=[x], sharded_dim_idxs=[dimension], mesh_axis_sizes=mesh.axis_sizes,
            mesh_axis_idx=0, mesh_axis_sections=sections, submesh_shardings=[parts],
            donate=donate,
        )
        assert x.is_deleted() == donate
        cut = value.shape[dimension] // 4
        wanted = [value, value] if dimension < 0 else np.split(value, [cut], axis=dimension)
        for piece, want, sharding in zip(pieces, wanted, parts):
            check(piece, want, sharding, f"split of {spec}")
        if not hasattr(_pathways, "_concatenate_by_mesh_axis"):
            continue
        (whole,) = _pathways._concatenate_by_mesh_axis(
            arrays=[tuple(pieces)], sharded_dim_idxs=[dimension], mesh_axis_sizes=mesh.axis_sizes,
            mesh_axis_idx=0, mesh_axis_sections=sections,
            out_shardings=[NamedSharding(mesh, spec)], donate=True,
        )
        check(whole, value, NamedSharding(mesh, spec), f"concatenation of {spec}")
        assert all(piece.is_deleted() for piece in pieces)


if __name__ == "__main__":
    reshard_random_arrays()
    reshard_what_is_being_computed()
    large_shards()
    device_put_to_another_spec()
    split_and_concatenate()
    print("resharded")
