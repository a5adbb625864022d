# SPDX-License-Identifier: Apache-2.0
"""Every element type of JAX on CPUs: put, fetched, computed with, cut, moved between islands.

Integers of 2 bits are only put, moved and fetched: docs/jax-compatibility.md.
"""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from places import islands

jax.config.update("jax_enable_x64", True)

NAMES = (
    "bool int2 uint2 int4 uint4 int8 uint8 int16 uint16 int32 uint32 int64 uint64 float4_e2m1fn "
    "float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 "
    "float8_e5m2fnuz float8_e8m0fnu bfloat16 float16 float32 float64 complex64 complex128"
).split()
DEVICES, ISLANDS = jax.devices(), islands()
HERE = NamedSharding(Mesh(np.array(ISLANDS[0][:2]), "x"), P("x"))
THERE = NamedSharding(Mesh(np.array(ISLANDS[-1][:2]), "x"), P("x"))
EVERYWHERE = NamedSharding(HERE.mesh, P())


def values(dtype, shape):
    """All values that the type can distinguish up to 4, negative ones where it has them."""
    n = int(np.prod(shape))
    if dtype.name == "bool":
        numbers = np.arange(n) % 2
    elif dtype.name in ("int2", "int4", "int8", "int16", "int32", "int64", "float4_e2m1fn"):
        numbers = np.arange(n) % 4 - 2
    elif dtype.name == "float8_e8m0fnu":  # it has powers of two only
        numbers = 2.0 ** (np.arange(n) % 4)
    else:
        numbers = np.arange(n) % 4
    if dtype.kind == "c":
        numbers = numbers - 1j * numbers[::-1]
    return numbers.astype(dtype).reshape(shape)


def check(got, wanted):
    got = np.asarray(got)
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, (got.dtype, got.shape)
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    np.testing.assert_array_equal(got.astype(wide), wanted.astype(wide), str(wanted.dtype))
    assert got.tobytes() == wanted.tobytes(), (wanted.dtype, got.tobytes(), wanted.tobytes())


def round_trips(dtype):
    for shape in ((8, 4), (3, 5), (), (0, 4)):
        x = values(dtype, shape)
        check(jax.device_put(x), x)
        check(jax.device_put(x, EVERYWHERE), x)
        if x.size or dtype.name not in ("int2", "uint2"):  # XLA makes a constant of an empty array
            check(jax.jit(lambda v: v)(x), x)
            check(jax.device_put(jax.jit(lambda v: v)(x), DEVICES[-1]), x)
        check(jax.device_put(jax.device_put(x, DEVICES[0]), DEVICES[-1]), x)
    x = values(dtype, (8, 4))
    check(jax.device_put(x.T), x.T)  # strides
    cut = jax.device_put(x, HERE)
    check(cut, x)
    for shard in cut.addressable_shards:
        check(shard.data, x[shard.index])
    check(jax.device_put(cut, THERE), x)
    check(jax.jit(lambda v: v)(jax.device_put(cut, THERE)), x)
    check(jax.make_array_from_callback(x.shape, HERE, lambda index: x[index]), x)
    assert cut.nbytes == x.nbytes and cut.on_device_size_in_bytes() > 0


def computes(dtype):
    x = values(dtype, (8, 4))
    wide = jnp.complex128 if dtype.kind == "c" else jnp.float64
    if dtype.name in ("int4", "uint4"):  # docs/jax-compatibility.md
        wide = jnp.float32
    check(jax.jit(lambda v: v.T)(x), x.T)
    check(jax.jit(lambda v: v[::-1], donate_argnums=0)(jax.device_put(x)), x[::-1])
    check(jax.jit(lambda v: v.astype(wide))(x), x.astype(wide))
    check(jax.jit(lambda v: v.astype(wide).astype(dtype))(x), x)
    check(jax.jit(lambda v: v == v)(jax.device_put(x, HERE)), np.ones((8, 4), bool))
    check(jax.jit(lambda v: jax.lax.scan(lambda c, r: (c, r), v[0], v)[1])(x), x)
    check(jnp.ones((3,), dtype), np.ones((3,), dtype))
    check(jax.jit(lambda v: jnp.concatenate([v, v]))(x), np.concatenate([x, x]))
    check(jax.jit(lambda v: v[::-1].T)(jax.device_put(x, HERE)), x[::-1].T)  # a collective
    check(jax.device_put(x, HERE)[3:5], x[3:5])
    swap = jax.shard_map(lambda v: jax.lax.ppermute(v[::-1], "x", [(0, 1), (1, 0)]),
                         mesh=HERE.mesh, in_specs=P("x"), out_specs=P("x"))
    check(jax.jit(swap)(x), x[::-1])


def keys(implementation):
    split = jax.random.split(jax.random.key(7, impl=implementation), 8)
    data = np.asarray(jax.random.key_data(split))
    for array in (jax.device_put(split, HERE), jax.device_put(jax.device_put(split, HERE), THERE),
                  jax.jit(lambda k: k)(jax.device_put(split, HERE))):
        assert array.dtype == split.dtype and array.shape == (8,)
        check(jax.random.key_data(array), data)
    draw = jax.jit(jax.vmap(lambda k: jax.random.normal(k, (2,))))
    if implementation == "threefry2x32":  # others' bits depend on how they are computed
        check(draw(jax.device_put(split, THERE)), np.asarray(draw(split)))


def counts(dtype):
    """Everything that is computed with 2 bits."""
    for shape in (2,), (5,), (2, 3, 4), (1001,), (7, 14_287):
        numbers = np.arange(np.prod(shape)).reshape(shape)
        wrapped = numbers % 4 if dtype.name == "uint2" else (numbers + 2) % 4 - 2
        here = jnp.arange(numbers.size, dtype=dtype).reshape(shape)
        assert here.dtype == dtype
        np.testing.assert_array_equal(np.asarray(here).astype(np.int8), wrapped, err_msg=f"{dtype}{shape}")


def types_without_bytes():
    nothing = np.zeros((4, 3), jax.dtypes.float0)
    assert jax.device_put(nothing).dtype == jax.dtypes.float0
    assert jax.jit(lambda v: v)(nothing).dtype == jax.dtypes.float0
    counts = jax.grad(lambda i: 1.0 * jnp.sum(i), allow_int=True)(jnp.arange(3))
    assert counts.dtype == jax.dtypes.float0
    token = jax.jit(jax.lax.create_token)()
    assert type(token).__name__ == "Token"
    check(jax.jit(lambda v, t: (v + 1, jax.lax.after_all(t)))(np.arange(3), token)[0],
          np.arange(1, 4))
    try:
        np.asarray(token._buf)
    except RuntimeError as error:
        assert "token-shape" in str(error), error
    else:
        raise AssertionError("a token was fetched")


if __name__ == "__main__":
    for name in NAMES:
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        round_trips(dtype)
        (counts if dtype.name in ("int2", "uint2") else computes)(dtype)
    for implementation in ("threefry2x32", "rbg", "unsafe_rbg"):
        keys(implementation)
    types_without_bytes()
    print("OK")
