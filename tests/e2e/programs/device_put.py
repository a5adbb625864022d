# SPDX-License-Identifier: Apache-2.0
"""Arrays from every sharding to every other: device_put, and jit of arrays that lie elsewhere.

Shardings: one device, cut by rows, columns, both, replicated over all or one axis, devices in
another order, fewer and more devices, the other island, both islands, and JAX's GSPMDSharding.
Everything is compared with numpy, shard by shard. Sources that JAX keeps must not change.
Arguments: the functions to leave out.
"""

import gc
import itertools
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax._src.sharding_impls import GSPMDSharding
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

D = np.array(jax.devices())
HERE, THERE = D[:4], D[4:8]


def named(devices, axes, spec, memory_kind=None):
    return NamedSharding(Mesh(devices, axes), spec, memory_kind=memory_kind)


ROWS = named(HERE, ("x",), P("x"))
SHARDINGS = {
    "one": SingleDeviceSharding(D[0]),
    "one there": SingleDeviceSharding(D[5]),
    "rows": ROWS,
    "columns": named(HERE, ("x",), P(None, "x")),
    "both": named(HERE.reshape(2, 2), ("x", "y"), P("x", "y")),
    "crossed": named(HERE.reshape(2, 2), ("x", "y"), P("y", "x")),
    "copies": named(HERE, ("x",), P()),
    "pairs": named(HERE.reshape(2, 2), ("x", "y"), P("x")),
    "reordered": named(HERE[[2, 0, 3, 1]], ("x",), P("x")),
    "fewer": named(HERE[1:3], ("x",), P("x")),
    "one of a mesh": named(HERE[2:3], ("x",), P("x")),
    "rows there": named(THERE, ("x",), P("x")),
    "columns there": named(THERE, ("x",), P(None, "x")),
    "copies there": named(THERE, ("x",), P()),
    "everywhere": named(D, ("x",), P("x")),
    "copies everywhere": named(D, ("x",), P()),
    "everywhere reordered": named(D[::-1].reshape(4, 2), ("x", "y"), P("x", "y")),
    "pairs everywhere": named(D.reshape(2, 4), ("x", "y"), P(None, "y")),
    "gspmd": GSPMDSharding(tuple(HERE), ROWS._to_xla_hlo_sharding(2)),
}


def check(array, value, sharding, what):
    assert array.sharding == sharding, (what, array.sharding)
    assert array.dtype == value.dtype and array.shape == value.shape, what
    assert array.committed, what
    for shard in array.addressable_shards:
        np.testing.assert_array_equal(
            np.asarray(shard.data), value[shard.index], err_msg=f"{what}: {shard.device}")
    np.testing.assert_array_equal(np.asarray(array), value, err_msg=str(what))


def value_of(shape, kind=np.float32):
    return (np.arange(np.prod(shape)) % 7).reshape(shape).astype(kind)


def every_pair():
    """JAX itself needs NamedShardings if the same devices come in another order."""
    value = value_of((8, 16))
    for a, source in SHARDINGS.items():
        x = jax.device_put(value, source)
        for b, target in SHARDINGS.items():
            if {a, b} != {"reordered", "gspmd"}:
                check(jax.device_put(x, target), value, target, f"{a} to {b}")
        check(x, value, source, f"{a}, afterwards")


def every_type():
    kinds = [np.bool_, np.int8, np.uint16, np.int32, np.float16, np.complex64, ml_dtypes.bfloat16,
             ml_dtypes.float8_e4m3fn, ml_dtypes.int4, ml_dtypes.uint4]
    names = "one", "rows", "columns", "copies there", "everywhere"
    for kind in kinds:
        value = value_of((8, 16), kind)
        for a, b in itertools.permutations(names, 2):
            moved = jax.device_put(jax.device_put(value, SHARDINGS[a]), SHARDINGS[b])
            check(moved, value, SHARDINGS[b], f"{value.dtype} {a} to {b}")


def no_dimensions_and_no_elements():
    flat = named(HERE, ("x",), P())
    for value in np.float32(3), np.zeros((0,), np.int32), np.zeros((8, 0), np.float32):
        value = np.asarray(value)
        x = jax.device_put(value, D[0])
        for target in flat, named(D, ("x",), P()), SingleDeviceSharding(D[6]):
            check(jax.device_put(jax.device_put(x, target), flat), value, flat, value.shape)
    empty = np.zeros((8, 0), np.float32)
    for a, b in itertools.permutations(("one", "rows", "columns there", "everywhere"), 2):
        check(jax.device_put(jax.device_put(empty, SHARDINGS[a]), SHARDINGS[b]), empty,
              SHARDINGS[b], (a, b))


def trees():
    """Many arrays, some of which stay, some are copied, some cut anew, and some are numpy's."""
    value = value_of((8, 16))
    tree = {
        "stays": jax.device_put(value, ROWS),
        "copied": jax.device_put(value, SHARDINGS["rows there"]),
        "cut": [jax.device_put(value + i, s) for i, s in enumerate(SHARDINGS.values())],
        "host": value + 100,
        "scalar": 3.0,
    }
    want = {"stays": ROWS, "copied": ROWS, "cut": list(SHARDINGS.values())[::-1], "host": ROWS,
            "scalar": SHARDINGS["copies"]}
    moved = jax.device_put(tree, want)
    for i, (array, sharding) in enumerate(zip(moved["cut"], want["cut"], strict=True)):
        check(array, value + i, sharding, f"leaf {i}")
    check(moved["stays"], value, ROWS, "stays")
    check(moved["copied"], value, ROWS, "copied")
    check(moved["host"], value + 100, ROWS, "host")
    assert float(moved["scalar"]) == 3.0


def weak_types_and_keys():
    weak = jnp.asarray(3.0)
    assert weak.weak_type and not weak.committed
    moved = jax.device_put(weak, SHARDINGS["copies there"])
    assert moved.weak_type and moved.committed and float(moved) == 3.0
    again = jax.device_put(moved, SHARDINGS["copies everywhere"])
    assert again.weak_type and float(again) == 3.0
    turned = jax.device_put(again, named(D[::-1], ("x",), P()))
    assert turned.weak_type and float(turned) == 3.0

    keys = jax.random.split(jax.random.key(1), 8)
    cut = jax.device_put(keys, ROWS)
    there = jax.device_put(cut, SHARDINGS["rows there"])
    wide = jax.device_put(there, named(D, ("x",), P("x")))
    for moved in cut, there, wide, jax.device_put(wide, D[3]):
        np.testing.assert_array_equal(jax.random.key_data(moved), jax.random.key_data(keys))
    drawn = jax.vmap(lambda k: jax.random.uniform(k))
    np.testing.assert_array_equal(drawn(cut), drawn(keys))


def memories():
    kinds = [m.kind for m in D[0].addressable_memories()]
    value = value_of((8, 16))
    for kind, other in itertools.product(kinds, kinds):
        x = jax.device_put(value, named(HERE, ("x",), P("x"), kind))
        for target in (named(HERE, ("x",), P(None, "x"), other), named(D, ("x",), P("x"), other),
                       named(THERE, ("x",), P(), other)):
            moved = jax.device_put(x, target)
            check(moved, value, target, (kind, other))
            assert moved.sharding.memory_kind == other


def arguments_that_lie_elsewhere():
    value = value_of((8, 16))
    add = lambda a, b: a + b
    for b, target in SHARDINGS.items():
        if len({d.id // 4 for d in target.device_set}) > 1:
            continue  # a computation runs on one island
        x = jnp.asarray(value)  # uncommitted, so jit may move it
        y = jax.device_put(value, target)
        np.testing.assert_array_equal(np.asarray(jax.jit(add)(x, y)), value * 2, err_msg=b)
        out = jax.jit(lambda v: v * 2, in_shardings=target, out_shardings=target)(x)
        check(out, value * 2, target, f"in_shardings {b}")
        # Several at once, and once more: the second call takes JAX's fast path.
        many = jax.jit(lambda *v: sum(v), in_shardings=target)
        for _ in range(2):
            np.testing.assert_array_equal(np.asarray(many(x, x + 1, x + 2)), value * 3 + 3)
    moved = jax.jit(lambda v: jax.device_put(v, SHARDINGS["columns"]))(jax.device_put(value, ROWS))
    check(moved, value, moved.sharding, "within jit")


def what_is_being_computed():
    value = value_of((8, 16))
    y = jax.device_put(value, ROWS)
    for _ in range(5):
        y = jax.jit(lambda v: v + 1)(y)
        y = jax.device_put(y, SHARDINGS["columns there"])
        y = jax.jit(lambda v: v * 2)(y)
        y = jax.device_put(y, ROWS)
    want = value
    for _ in range(5):
        want = (want + 1) * 2
    check(y, want, ROWS, "a chain")


def copies_are_copies_and_donation():
    value = value_of((8, 16))
    for a, b in ("rows", "columns"), ("rows", "copies"), ("one", "copies"), ("rows", "everywhere"):
        for may_alias in None, True, False:
            x = jax.device_put(value, SHARDINGS[a])
            y = jax.device_put(x, SHARDINGS[b], may_alias=may_alias)
            y.block_until_ready()
            check(x, value, SHARDINGS[a], (a, b, may_alias))
        x = jax.device_put(value, SHARDINGS["rows"])
        y = jax.device_put(x, SHARDINGS["columns"], donate=True)
        assert not x.is_deleted()  # JAX donates only arrays that keep their cut
        check(y, value, SHARDINGS["columns"], "donated")
    x = jax.device_put(value, SHARDINGS["rows"])
    y = jax.device_put(x, SHARDINGS["reordered"], donate=True)
    check(y, value, SHARDINGS["reordered"], "reordered")
    x = jax.device_put(value, SHARDINGS["rows"])
    y = jax.device_put(x, SHARDINGS["columns there"])
    jax.jit(lambda v: v + 1, donate_argnums=0)(x).block_until_ready()
    check(y, value, SHARDINGS["columns there"], "the source was donated afterwards")
    del x
    gc.collect()
    check(y, value, SHARDINGS["columns there"], "and dropped")


def what_is_deleted_is_refused():
    for target in SHARDINGS["columns"], SHARDINGS["reordered"], SHARDINGS["rows there"]:
        x = jax.device_put(value_of((8, 16)), ROWS)
        x.delete()
        try:
            jax.device_put(x, target)
        except RuntimeError as error:
            assert "deleted" in str(error), error
        else:
            raise AssertionError("a deleted array was moved")


def what_does_not_divide_is_refused():
    x = jax.device_put(value_of((6, 5)), D[0])
    try:
        jax.device_put(x, ROWS)
    except ValueError as error:
        assert "axis 0" in str(error) or "dimension 0" in str(error), error
    else:
        raise AssertionError("6 rows were cut in 4")


def fetching_ahead():
    value = value_of((8, 16))
    x = jax.device_put(jax.device_put(value, ROWS), SHARDINGS["columns there"])
    x.copy_to_host_async()
    check(x, value, SHARDINGS["columns there"], "copy_to_host_async")


def layouts():
    from jax.experimental.layout import Format, Layout

    value = value_of((8, 16))
    turned = Format(Layout((1, 0)), ROWS)
    x = jax.jit(lambda v: v, out_shardings=turned)(jax.device_put(value, ROWS))
    check(jax.device_put(x, SHARDINGS["columns"]), value, SHARDINGS["columns"], "a layout")
    check(jax.device_put(x, SHARDINGS["copies there"]), value, SHARDINGS["copies there"], "layout")
    back = jax.device_put(jax.device_put(value, SHARDINGS["columns"]), turned)
    np.testing.assert_array_equal(np.asarray(back), value)


for check_all in (
        every_pair, every_type, no_dimensions_and_no_elements, trees, weak_types_and_keys,
        memories, arguments_that_lie_elsewhere, what_is_being_computed,
        copies_are_copies_and_donation, what_is_deleted_is_refused,
        what_does_not_divide_is_refused, fetching_ahead, layouts):
    if check_all.__name__ not in sys.argv[1:]:
        check_all()
print("moved")
