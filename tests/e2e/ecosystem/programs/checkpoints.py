# SPDX-License-Identifier: Apache-2.0
"""Orbax: saves, restores, asynchronous saves; restores onto another sharding and another island."""

import pathlib
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from cases import case, islands, main, replicated, rows, split

folder = pathlib.Path(tempfile.mkdtemp())


def tree_on(devices):
    """Every kind of leaf: split, replicated, one device, bfloat16, scalar, a typed key's data."""
    tree = {
        "split": jax.device_put(rows(8, 4), split(devices)),
        "columns": jax.device_put(rows(8, 4, 1), split(devices, None, "x")),
        "replicated": jax.device_put(rows(3, 5, 2), replicated(devices)),
        "one": jax.device_put(jnp.arange(7), devices[2]),
        "half": jax.device_put(jnp.ones((4, 4), jnp.bfloat16) / 3, split(devices)),
        "step": jax.device_put(jnp.int32(17), replicated(devices)),
        "list": [jax.device_put(jnp.arange(4.0) + i, devices[0]) for i in range(3)],
    }
    return tree


def abstract(tree, sharding):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)


def assert_same(got, wanted, devices=None):
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), got, wanted)
    for leaf in jax.tree.leaves(got):
        assert isinstance(leaf, jax.Array)
        assert devices is None or leaf.sharding.device_set <= set(devices), leaf.sharding


@case
def save_and_restore_where_it_was():
    (devices, _) = islands()
    tree = tree_on(devices)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "plain", tree)
        checkpointer.wait_until_finished()
        shardings = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)
        got = checkpointer.restore(folder / "plain", shardings)
    assert_same(got, tree, devices)
    jax.tree.map(lambda a, b: None if a.sharding.is_equivalent_to(b.sharding, a.ndim) else 1 / 0,
                 got, tree)
    return jax.jit(lambda t: t["split"] @ t["columns"].T)(got)


@case
def restore_onto_another_island_and_another_sharding():
    (left, right) = islands()
    tree = {"w": jax.device_put(rows(16, 8), split(left)), "b": jax.device_put(rows(1, 8), left[1])}
    mesh = Mesh(np.array(right).reshape(2, 2), ("a", "b"))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "moved", tree)
        checkpointer.wait_until_finished()
        results = []
        for sharding in (split(right), NamedSharding(mesh, P("b", None)), replicated(right[1:3])):
            got = checkpointer.restore(folder / "moved", {
                "w": jax.ShapeDtypeStruct((16, 8), np.float32, sharding=sharding),
                "b": jax.ShapeDtypeStruct((1, 8), np.float32, sharding=replicated(right)),
            })
            assert_same(got, tree, right)
            assert got["w"].sharding == sharding
            results.append(jax.jit(lambda w: w * 2)(got["w"]))
    return results


@case
def restore_without_saying_where():
    (devices, _) = islands()
    tree = {"w": jax.device_put(rows(8, 4), split(devices))}
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(folder / "unsaid", tree)
    got = checkpointer.restore(folder / "unsaid")
    np.testing.assert_array_equal(np.asarray(got["w"]), rows(8, 4))
    return got["w"]


@case
def asynchronous_saves_of_arrays_that_are_donated_next():
    (_, devices) = islands()
    step = jax.jit(lambda t: jax.tree.map(lambda v: v + 1, t), donate_argnums=0)
    tree = {"a": jax.device_put(np.zeros((64, 256), np.float32), split(devices)),
            "b": jax.device_put(np.zeros(8, np.float32), replicated(devices))}
    options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=True)
    with ocp.CheckpointManager(folder / "managed", options=options) as manager:
        for number in range(4):
            assert manager.save(number, args=ocp.args.StandardSave(tree))
            tree = step(tree)
        manager.wait_until_finished()
        assert sorted(manager.all_steps()) == [2, 3] and manager.latest_step() == 3
        got = manager.restore(3, args=ocp.args.StandardRestore(abstract(tree, replicated(devices))))
    for leaf in jax.tree.leaves(got):
        np.testing.assert_array_equal(np.asarray(leaf), np.full(leaf.shape, 3, np.float32))
    return got, tree


@case
def a_training_state_with_extra_items():
    (left, right) = islands()
    params = jax.device_put({"w": rows(8, 4)}, replicated(left))
    optimizer = optax.adam(1e-3)
    state = {"params": params, "opt": jax.jit(optimizer.init)(params)}
    with ocp.CheckpointManager(folder / "composite") as manager:
        manager.save(0, args=ocp.args.Composite(
            state=ocp.args.StandardSave(state), data=ocp.args.JsonSave({"epoch": 3})))
        manager.wait_until_finished()
        got = manager.restore(0, args=ocp.args.Composite(
            state=ocp.args.StandardRestore(abstract(state, replicated(right))),
            data=ocp.args.JsonRestore()))
    assert got["data"] == {"epoch": 3}
    assert_same(got["state"], state, right)
    return got["state"]


if __name__ == "__main__":
    main()
