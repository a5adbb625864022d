# SPDX-License-Identifier: Apache-2.0
"""Arrays made from parts, and meshes with an axis for islands."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils, multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from cases import case, islands, main, replicated, rows, split

x = rows(16, 8)


def both_meshes():
    for devices in islands():
        yield devices, Mesh(np.array(devices).reshape(2, 2), ("a", "b"))


@case
def made_from_a_callback():
    results = []
    for _, mesh in both_meshes():
        for spec in (P("a", "b"), P(None, "b"), P(("a", "b")), P()):
            sharding, asked = NamedSharding(mesh, spec), []

            def part(index):
                asked.append(index)
                return x[index]

            got = jax.make_array_from_callback(x.shape, sharding, part)
            assert got.sharding == sharding and len(asked) in (1, 2, 4)
            np.testing.assert_array_equal(got, x)
            results.append(jax.jit(lambda v: v @ v.T)(got))
    return results


@case
def made_from_single_device_arrays():
    for devices, mesh in both_meshes():
        sharding = NamedSharding(mesh, P("b", None))
        parts = [jax.device_put(x[index], device)
                 for device, index in sharding.addressable_devices_indices_map(x.shape).items()]
        whole = jax.make_array_from_single_device_arrays(x.shape, sharding, parts)
        np.testing.assert_array_equal(whole, x)
        np.testing.assert_array_equal(jax.jit(lambda v: v + 1)(whole), x + 1)
        again = jax.make_array_from_single_device_arrays(
            x.shape, sharding, [shard.data for shard in whole.addressable_shards])
        del whole, parts
        np.testing.assert_array_equal(jax.jit(lambda v: v * 2)(again), x * 2)


@case
def made_from_process_local_data():
    results = []
    for devices, mesh in both_meshes():
        for sharding in (split(devices), NamedSharding(mesh, P("a", "b")), replicated(devices)):
            got = jax.make_array_from_process_local_data(sharding, x)
            assert got.shape == x.shape and got.sharding == sharding
            np.testing.assert_array_equal(got, x)
            results.append(jax.jit(jnp.sum)(got))
        tree = multihost_utils.host_local_array_to_global_array({"x": x}, mesh, P("a"))
        back = multihost_utils.global_array_to_host_local_array(tree, mesh, P("a"))
        np.testing.assert_array_equal(back["x"], x)
        np.testing.assert_array_equal(multihost_utils.process_allgather(tree["x"], tiled=True), x)
    return results


@case
def over_the_devices_of_two_islands():
    """Such an array is held, moved and fetched; only a computation may not span islands."""
    everywhere = islands()[0] + islands()[1]
    mesh = Mesh(np.array(everywhere).reshape(2, 4), ("island", "x"))
    sharding = NamedSharding(mesh, P("island", "x"))
    got = jax.device_put(x, sharding)
    np.testing.assert_array_equal(got, x)
    made = jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])
    np.testing.assert_array_equal(made, x)
    assert {s.device for s in made.addressable_shards} == set(everywhere)
    halves = []
    for number, devices in enumerate(islands()):
        mine = [s.data for s in got.addressable_shards if s.device in devices]
        half = jax.make_array_from_single_device_arrays(
            (8, 8), split(devices, None, "x"), mine)
        doubled = jax.jit(lambda v: v * 2)(half)
        np.testing.assert_array_equal(doubled, x[8 * number : 8 * number + 8] * 2)
        halves += [s.data for s in doubled.addressable_shards]
    whole = jax.make_array_from_single_device_arrays(x.shape, sharding, halves)
    np.testing.assert_array_equal(whole, x * 2)
    return whole


@case
def a_device_mesh():
    (devices, _) = islands()
    mesh = Mesh(mesh_utils.create_device_mesh((2, 2), devices), ("a", "b"))
    placed = jax.device_put(x, NamedSharding(mesh, P("a", "b")))
    with jax.set_mesh(jax.make_mesh((2, 2), ("a", "b"), devices=devices,
                                    axis_types=(jax.sharding.AxisType.Explicit,) * 2)):
        y = jax.jit(lambda v: jnp.einsum("ij,kj->ik", v, v, out_sharding=P("a", None)))(
            jax.device_put(x, P("a", "b")))
        assert jax.typeof(y).sharding.spec == P("a", None)
    return jax.jit(lambda v: v @ v.T)(placed), y


@case
def moved_between_host_and_device_memory():
    (devices, _) = islands()
    sharding = split(devices)
    on_device = jax.device_put(x, sharding)
    host = jax.device_put(on_device, sharding.with_memory_kind("pinned_host"))
    assert host.sharding.memory_kind == "pinned_host"
    np.testing.assert_array_equal(host, x)
    back = jax.device_put(host, sharding)
    return jax.jit(lambda v: v * 2)(back)


if __name__ == "__main__":
    main()
