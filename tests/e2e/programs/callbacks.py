# SPDX-License-Identifier: Apache-2.0
"""Compiled programs that call functions of this process: printing, pure, with effects, ordered, failing;
on one device and on several, and within transformations."""

import contextlib
import functools
import io
import logging
import threading

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify, io_callback
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

logging.disable(logging.CRITICAL)  # JAX logs exceptions of callbacks

devices = jax.devices()[:4]
mesh = Mesh(np.array(devices), ("x",))
split = NamedSharding(mesh, P("x"))
scalar = jax.ShapeDtypeStruct((), np.float32)


@contextlib.contextmanager
def printing(*expected, ordered=True):
    """Expects the output until the barrier to be `expected`, line by line."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        yield
        jax.effects_barrier()
    lines = out.getvalue().splitlines()
    if not ordered:
        lines, expected = sorted(lines), sorted(expected)
    assert lines == list(expected), (lines, expected)


def failure(make, kind=jax.errors.JaxRuntimeError):
    try:
        jax.block_until_ready(make())
        jax.effects_barrier()
    except kind as error:
        with contextlib.suppress(kind):  # afterwards the token of the failed launch is gone
            jax.effects_barrier()
        return str(error)
    raise AssertionError("it did not fail")


def show(x, **options):
    jax.debug.print("x={}", x, **options)
    return x


def sine(x):
    return jax.pure_callback(lambda a: np.sin(a, dtype=np.float32), scalar, x, vmap_method="sequential")


def prints():
    with printing("x=3.0"):
        jax.jit(show)(jnp.float32(3))
    with printing("x=[1. 2.], y=7 {}"):
        jax.jit(lambda x: jax.debug.print("x={x}, y={y} {{}}", x=x, y=7))(jnp.array([1.0, 2.0]))
    with printing("plain", "nothing", ordered=False):  # XLA may run two programs at once
        jax.jit(lambda: jax.debug.print("plain"))()
        jax.jit(lambda: jax.debug.callback(lambda: print("nothing")))()
    with printing("x=3.0", "x=3.0"):  # once forward, once in the function itself
        f = lambda x: show(x) ** 2
        assert float(jax.jit(jax.grad(f))(jnp.float32(3))) == 6
        assert float(jax.jit(f)(jnp.float32(3))) == 9
    with printing(*(f"x={i}.0" for i in range(4)), ordered=False):
        jax.jit(jax.vmap(show))(jnp.arange(4.0))
    with printing(*(f"x={i}.0" for i in range(5)), ordered=False):
        jax.jit(lambda x: jax.lax.scan(lambda c, e: (c + e, show(e)), 0.0, x))(jnp.arange(5.0))
    with printing(*(f"x={i}" for i in range(3)), ordered=False):
        jax.jit(lambda n: jax.lax.while_loop(lambda i: i < n, lambda i: show(i) + 1, 0))(3)
    with printing("x=1.0"):
        f = jax.jit(lambda p, x: jax.lax.cond(p, show, lambda x: x, x))
        f(True, jnp.float32(1))
        f(False, jnp.float32(2))
    # jnp operations outside of a jit use the first form.
    with printing("x=5.0"):
        show(jnp.float32(5))


def prints_in_order():
    with printing(*(f"x={i}.0" for i in range(50))):
        jax.jit(lambda x: jax.lax.scan(lambda c, e: (c, show(e, ordered=True)), 0, x))(jnp.arange(50.0))
    with printing(*(f"x={i}" for i in range(20))):
        f = jax.jit(lambda i: show(i, ordered=True) + 1)
        i = 0
        for _ in range(20):
            i = f(i)
    with printing(*(f"x={i}" for i in range(10)), ordered=True):
        f = jax.jit(lambda x: show(x, ordered=True) * 0)
        for i in range(10):  # only their order connects them
            f(i)


def prints_on_several_devices():
    x = jax.device_put(jnp.arange(8.0), split)
    with printing("x=[0. 1. 2. 3. 4. 5. 6. 7.]"):  # one line, with the whole array
        jax.jit(show)(x)
    with printing(*(f"x=[{2.0 * i} {2.0 * i + 1}]".replace(".0", ".") for i in range(4)), ordered=False):
        jax.jit(jax.shard_map(show, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(x)

    def between_collectives(x):
        total = jax.lax.psum(x.sum(), "x")
        jax.debug.callback(lambda i, t: print(int(i), float(t)), jax.lax.axis_index("x"), total)
        return jax.lax.psum(total * x, "x")

    with printing(*(f"{i} 28.0" for i in range(4)), ordered=False):
        mapped = jax.shard_map(between_collectives, mesh=mesh, in_specs=P("x"), out_specs=P())
        np.testing.assert_array_equal(jax.jit(mapped)(x), [28 * 12, 28 * 16])


def pure():
    assert np.isclose(float(jax.jit(sine)(2.0)), np.sin(2.0))
    np.testing.assert_allclose(jax.jit(lambda x: sine(sine(x)))(1.0), np.sin(np.sin(1.0)), rtol=1e-6)
    x = jnp.linspace(0, 1, 6).reshape(2, 3)
    for method in "sequential", "sequential_unrolled", "expand_dims", "broadcast_all":
        shapes = []

        def add(a, b):
            shapes.append((np.shape(a), np.shape(b)))
            return np.asarray(a + b, np.float32)

        f = lambda a, b: jax.pure_callback(
            add, jax.ShapeDtypeStruct(jnp.broadcast_shapes(a.shape, b.shape), np.float32), a, b,
            vmap_method=method)
        got = jax.jit(jax.vmap(f, in_axes=(0, None)))(x, jnp.ones(3))
        np.testing.assert_allclose(got, x + 1)
        each = {"expand_dims": [((2, 3), (1, 3))], "broadcast_all": [((2, 3), (2, 3))]}
        assert shapes == each.get(method, [((3,), (3,))] * 2), (method, shapes)
    with_rule = jax.custom_jvp(sine)
    with_rule.defjvps(lambda t, _, x: t * jax.pure_callback(
        lambda a: np.cos(a, dtype=np.float32), scalar, x))
    np.testing.assert_allclose(jax.jit(jax.grad(with_rule))(1.0), np.cos(1.0), rtol=1e-6)
    over = jax.jit(jax.shard_map(
        lambda x: jax.pure_callback(np.cumsum, x, x), mesh=mesh, in_specs=P("x"), out_specs=P("x")))
    y = jax.device_put(jnp.arange(8.0), split)
    np.testing.assert_array_equal(over(y), [0, 1, 2, 5, 4, 9, 6, 13])
    whole = jax.jit(lambda x: jax.pure_callback(np.cumsum, x, x) * 2, out_shardings=split)(y)
    np.testing.assert_array_equal(whole, 2 * np.cumsum(np.arange(8.0)))


def arguments_and_results():
    seen = []

    def function(a, *rest, scale, tree):
        seen.append((a.shape, [str(r.dtype) for r in rest], scale, sorted(tree)))
        return {"sum": np.float32(a.sum() * scale), "tree": (tree["k"], np.zeros((0, 3), np.int8))}

    result = {"sum": scalar, "tree": (jax.ShapeDtypeStruct((2,), jnp.bfloat16),
                                      jax.ShapeDtypeStruct((0, 3), np.int8))}
    f = jax.jit(lambda a, k: jax.pure_callback(
        functools.partial(function, scale=2), result, a, True, jnp.uint8(3), tree={"k": k}))
    got = f(jnp.ones((2, 3)), jnp.array([1, 2], jnp.bfloat16))
    assert float(got["sum"]) == 12 and got["tree"][1].shape == (0, 3)
    assert got["tree"][0].dtype == jnp.bfloat16 and got["tree"][0].tolist() == [1, 2]
    assert seen == [((2, 3), ["bool", "uint8"], 2, ["k"])]
    kinds = [np.bool_, np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32, np.float16,
             np.float32, np.complex64, jnp.bfloat16, jnp.float8_e4m3fn]
    for kind in kinds:
        x = np.array([[0, 1, 1], [1, 0, 1]]).astype(kind)
        y = jax.jit(lambda v: jax.pure_callback(lambda a: np.asarray(a)[::-1], v, v))(x)
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(y), x[::-1], err_msg=str(kind))
    for kind in jnp.int4, jnp.uint4, jnp.int2, jnp.uint2, jnp.float4_e2m1fn:  # several per byte
        for x in np.arange(-20, 13).reshape(3, 11), np.arange(131_080), np.int32(1):
            x = np.asarray(x % (2 if jnp.issubdtype(kind, jnp.floating) else 16)).astype(kind)
            y = np.asarray(jax.jit(
                lambda v: jax.pure_callback(lambda a: np.roll(seen.append(a) or a, 1), v, v))(x))
            got = np.asarray(seen.pop())
            assert got.dtype == y.dtype == x.dtype, (got.dtype, y.dtype)
            np.testing.assert_array_equal(got.astype(np.float32), x.astype(np.float32), err_msg=str(kind))
            np.testing.assert_array_equal(
                y.astype(np.float32), np.roll(x, 1).astype(np.float32), err_msg=str(kind))
    for rows in 80, 8_000:  # 8,000 rows are 3.2 MB
        large = np.arange(rows * 100, dtype=np.float32).reshape(rows, 100)
        flipped = jax.jit(lambda v: jax.pure_callback(lambda a: np.asarray(a).T, v.T, v))(large)
        np.testing.assert_array_equal(flipped, large.T)


def with_effects():
    state = {"n": 0}
    lock = threading.Lock()

    def count(x):
        with lock:
            state["n"] += int(x)
            return np.float32(state["n"])

    f = jax.jit(lambda x: io_callback(count, scalar, x))
    assert [float(f(i)) for i in (1, 2, 3)] == [1, 3, 6]
    g = jax.jit(lambda x: jax.lax.scan(
        lambda c, e: (c, io_callback(count, scalar, e, ordered=True)), 0, x)[1])
    assert g(jnp.arange(5)).tolist() == [6, 7, 9, 12, 16]
    seen = []
    h = jax.jit(lambda x: io_callback(lambda a: seen.append(int(a)), None, x, ordered=True))
    for i in range(30):
        h(i)
    jax.effects_barrier()
    assert seen == list(range(30))
    x = jax.device_put(jnp.arange(4), split)
    jax.jit(jax.shard_map(lambda v: io_callback(count, jax.ShapeDtypeStruct((), np.float32), v[0])[None],
                          mesh=mesh, in_specs=P("x"), out_specs=P("x")))(x).block_until_ready()
    assert state["n"] == 22


def ordered_over_several_devices():
    seen = []
    f = jax.jit(lambda x, i: (io_callback(
        lambda a, i: seen.append((int(i), float(a.sum()))), None, x, i, ordered=True), x + 1)[1])
    half = NamedSharding(Mesh(np.array(devices[2:]), ("x",)), P("x"))
    xs = [jax.device_put(jnp.arange(8.0), place)  # the order passes from each to the next
          for place in (split, devices[0], half, split, devices[3], NamedSharding(mesh, P()))]
    for i in range(18):
        y = f(xs[i % 6], i)
    np.testing.assert_array_equal(y, np.arange(8.0) + 1)
    jax.effects_barrier()
    assert seen == [(i, 28.0) for i in range(18)], seen
    seen.clear()

    def note(x, i):
        return io_callback(lambda a, i: (seen.append(int(i)), a)[1], x, x, i, ordered=True)

    scan = jax.jit(lambda x: jax.lax.scan(lambda c, i: (note(c, i) * 2, None), x, jnp.arange(5))[0])
    loop = jax.jit(lambda x, n: jax.lax.while_loop(
        lambda c: c[0] < n, lambda c: (c[0] + 1, note(c[1], c[0])), (0, x))[1])
    np.testing.assert_array_equal(scan(xs[0]), 32 * np.arange(8.0))
    np.testing.assert_array_equal(loop(xs[0], 3), np.arange(8.0))
    np.testing.assert_array_equal(scan(xs[4]), 32 * np.arange(8.0))
    jax.effects_barrier()
    assert seen == [0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3, 4], seen
    seen.clear()
    # Each device calls, in any order; the runs follow each other.
    each = jax.jit(jax.shard_map(
        lambda x, i: io_callback(lambda a, i: seen.append((int(i), float(a[0]))), None, x, i, ordered=True),
        mesh=mesh, in_specs=(P("x"), P()), out_specs=P()))
    for i in range(3):
        each(xs[0], i)
        f(xs[1], i + 10)
    jax.effects_barrier()
    runs = [seen[at:at + 4] for at in (0, 5, 10)]
    assert [sorted(run) for run in runs] == [[(i, 2.0 * k) for k in range(4)] for i in range(3)], seen
    assert [seen[at] for at in (4, 9, 14)] == [(i, 28.0) for i in (10, 11, 12)], seen


def what_fails_ends_the_order():
    """The next in order fail with the first cause, on all devices, and are not called."""
    seen = []
    f = jax.jit(lambda x: io_callback(lambda a: seen.append(a.shape), None, x, ordered=True))

    def of_no_use(a):
        raise ValueError("of no use")

    bad = jax.jit(lambda x: io_callback(of_no_use, None, x, ordered=True))
    whole, single = jax.device_put(jnp.arange(8.0), split), jnp.float32(4)
    bad(whole)
    for then in whole, single, whole:
        assert "of no use" in failure(lambda: f(then))
    assert seen == []
    jax._src.dispatch.runtime_tokens.clear()  # the state of a new thread
    f(whole)
    f(single)
    jax.effects_barrier()
    assert seen == [(8,), ()], seen


def checks():
    def f(x):
        checkify.check(x > 0, "must be positive: {x}", x=x)
        return jnp.log(x)

    checked = checkify.checkify(jax.jit(f))
    error, value = checked(jnp.float32(1))
    assert error.get() is None and float(value) == 0
    assert "must be positive: -1.0" in checked(jnp.float32(-1))[0].get()
    x = jax.device_put(jnp.arange(8.0), split)
    along = lambda x: jax.lax.scan(lambda c, e: (c + f(e), None), 0.0, x)[0]
    for many in jax.vmap(f), along:
        checked = checkify.checkify(jax.jit(many))
        assert checked(x + 1)[0].get() is None
        assert "must be positive: 0.0" in checked(x)[0].get()
    each = checkify.checkify(jax.jit(jax.shard_map(
        lambda x: jax.vmap(f)(x), mesh=mesh, in_specs=P("x"), out_specs=P("x"))))
    error, value = each(x + 1)
    assert error.get() is None
    np.testing.assert_allclose(value, np.log(np.arange(8.0) + 1), rtol=1e-6)
    assert "must be positive: 0.0" in each(x)[0].get()
    nan = checkify.checkify(jax.jit(lambda x: jnp.sin(x)), errors=checkify.nan_checks)
    assert "nan generated by primitive: sin" in nan(jnp.float32(np.inf))[0].get()


def errors():
    def of_no_use(x):
        raise ValueError("of no use: " + str(float(x)))

    bad = lambda x: jax.pure_callback(of_no_use, scalar, x)
    dependant = jax.jit(lambda x: x * 2)
    text = failure(lambda: dependant(jax.jit(bad)(jnp.float32(4))))
    for part in "INTERNAL: ", "CpuCallback error calling callback: Traceback (most recent call last):\n", \
            "in of_no_use\n", "\nValueError: of no use: 4.0":
        assert part in text, text
    assert "of no use" in failure(lambda: jax.jit(
        lambda x: (jax.debug.callback(of_no_use, x), x + 1)[1])(jnp.float32(4)))
    assert "of no use" in failure(lambda: jax.jit(lambda x: io_callback(of_no_use, scalar, x))(1.0))
    assert "of no use" in failure(lambda: jax.jit(
        lambda x: jax.debug.callback(of_no_use, x))(jnp.float32(4)))  # at the barrier
    wrong = lambda result: jax.jit(lambda x: jax.pure_callback(lambda a: result, scalar, x))(1.0)
    for result, part in ((np.zeros(3, np.float32), "Incorrect output shape for return value #0"),
                         (np.int32(3), "Incorrect output dtype for return value #0"),
                         ((np.float32(1), np.float32(2)), "Mismatched number of outputs")):
        assert part in failure(lambda: wrong(result)), part
    assert np.isclose(float(jax.jit(sine)(2.0)), np.sin(2.0))


def one_of_a_gang_fails():
    """JAX's CPU backend could not go on: the others would wait in a collective for the failed one."""
    x = jax.device_put(jnp.arange(4.0), split)

    def fails_on_one(x):
        if x[0] == 2:
            raise ValueError("the third")
        return np.asarray(x)

    gang = jax.jit(jax.shard_map(lambda x: jax.lax.psum(jax.pure_callback(fails_on_one, x, x), "x"),
                                 mesh=mesh, in_specs=P("x"), out_specs=P()))
    assert "the third" in failure(lambda: gang(x))
    np.testing.assert_array_equal(gang(x * 4), [24])


def nested():
    """JAX computations within a callback run on the local CPU."""
    inner = jax.jit(lambda a: jnp.cumsum(a) * 2)

    def function(a):
        assert isinstance(a, jax.Array) and a.devices() == {jax.devices("cpu")[0]}
        return inner(a) + jnp.ones(a.shape)

    f = jax.jit(lambda x: jax.pure_callback(function, x, x))
    np.testing.assert_array_equal(f(jnp.arange(4.0)), 2 * np.cumsum(np.arange(4.0)) + 1)


def many_at_once():
    x = jax.device_put(jnp.arange(4.0), split)
    barrier = threading.Barrier(4)

    def meet(a):  # returns only while the calls of all devices are under way
        barrier.wait(60)
        return np.asarray(a)

    f = jax.jit(jax.shard_map(lambda v: jax.pure_callback(meet, v, v), mesh=mesh, in_specs=P("x"),
                              out_specs=P("x")))
    for _ in range(10):
        np.testing.assert_array_equal(f(x), x)
    results = [jax.jit(sine)(float(i)) for i in range(200)]
    np.testing.assert_allclose(results, np.sin(np.arange(200.0)), rtol=1e-5, atol=1e-6)


def what_follows_rounds_as_elsewhere():
    """This includes numbers so small that XLA makes them zero."""
    small = jnp.float32(1e-36)
    alone = jax.jit(lambda x: x * jnp.float32(1e-3))
    behind = jax.jit(lambda x: jax.pure_callback(lambda a: np.asarray(a), scalar, x) * jnp.float32(1e-3))
    assert float(behind(small)) == float(alone(small)), (behind(small), alone(small))


def functions_that_are_gone():
    """A launch keeps its function alive, whatever Python has dropped meanwhile."""
    x = jnp.float32(0)
    for i in range(20):
        x = jax.jit(lambda v: jax.pure_callback(lambda a, i=i: np.float32(a + i), scalar, v))(x)
    assert float(x) == sum(range(20))


CASES = [prints, prints_in_order, prints_on_several_devices, pure, arguments_and_results,
         with_effects, ordered_over_several_devices, what_fails_ends_the_order, checks, errors, nested,
         many_at_once, what_follows_rounds_as_elsewhere, functions_that_are_gone]
if jax.devices("cpu")[0].client is not jax.devices()[0].client:  # on a cluster
    CASES.append(one_of_a_gang_fails)

if __name__ == "__main__":
    for case in CASES:
        case()
        print("ok", case.__name__, flush=True)
