# SPDX-License-Identifier: Apache-2.0
"""Traced programs on three islands: the example of the paper, gradients, microbatches, errors.

Prints each case and how many Execute requests it cost, as the caller counts them.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P

import fairway

ISLANDS = fairway.islands()
FIRST, SECOND = Mesh(np.array(ISLANDS[0]), ("x",)), Mesh(np.array(ISLANDS[1][:2]), ("x",))


def raises(kind, words, run):
    try:
        jax.block_until_ready(run())
    except kind as error:
        assert all(word in str(error) for word in words), f"{words} not all in: {error}"
    else:
        raise AssertionError(f"expected an error with {words}")


def close(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), a, b)


def example_of_the_paper():
    a, b, c = (fairway.on(ISLANDS[i][0], f) for i, f in enumerate(
        [lambda x: x * 2, lambda x: x + 1, lambda x: x / 2]))

    @fairway.program
    def f(v):
        x = a(v)
        return b(x), a(c(x))

    x = jax.device_put(jnp.array([1.0, 2.0]), ISLANDS[0][0])
    for _ in range(3):
        y, z = f(x)
        assert (y.tolist(), z.tolist()) == ([3, 5], [2, 4])
    assert y.devices() == {ISLANDS[1][0]} and z.devices() == {ISLANDS[0][0]}
    raises(jax.errors.JaxRuntimeError, ["f", "f32[3]"], lambda: wrong_shape(f, x))


def wrong_shape(f, x):
    """An executable that was bound for another shape, through the protocol itself."""
    (bound,) = f._bound.values()
    other = jax.device_put(jnp.ones(3), ISLANDS[0][0])
    many = max(2, len(bound.executable.local_devices()))
    copies = jax.device_put(jnp.ones(3), jax.sharding.NamedSharding(
        Mesh(np.array([i[0] for i in ISLANDS])[:many], ("x",)), P()))
    del other
    results = bound.executable.execute_sharded([copies])
    return results.disassemble_into_single_device_arrays()


def stage1(w, x):
    return jnp.tanh(x @ w)


def stage2(w, h):
    return jnp.mean((h @ w) ** 2)


def weights():
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    return (
        (jax.random.normal(keys[0], (4, 4)), jax.random.normal(keys[1], (4, 3))),
        list(jax.random.normal(keys[2], (3, 8, 4))),
    )


def loss(one, two):
    return lambda ws, xs: sum(two(ws[1], one(ws[0], x)) for x in xs) / len(xs)


def gradients_and_microbatches():
    ws, xs = weights()
    placed = loss(fairway.on(FIRST, stage1, in_specs=(P(), P("x")), out_specs=P("x")),
                  fairway.on(SECOND, stage2, in_specs=(P(), P("x"))))
    step = fairway.program(jax.value_and_grad(placed))
    expected = jax.value_and_grad(loss(stage1, stage2))(ws, xs)
    for _ in range(3):
        found = step(ws, xs)
        close(found, expected)
    close(found, step.op_by_op(ws, xs))
    assert [len(g.devices()) for g in found[1]] == [4, 2]


def results_keep_their_weak_type():
    half = jnp.ones(2, jnp.bfloat16)
    f = fairway.program(lambda x: (2.0, fairway.on(ISLANDS[1][0], lambda v: v * 2)(x)))
    for number in f(jnp.asarray(3.0)) + f.op_by_op(jnp.asarray(3.0)):
        assert jax.eval_shape(lambda x, y: x * y, half, number).dtype == jnp.bfloat16


def donated_and_deleted_arguments():
    double = fairway.on(ISLANDS[1][0], lambda x: x * 2)
    add = fairway.on(ISLANDS[2][0], lambda x: x + 1)
    f = fairway.program(lambda x: (double(x), add(double(x))), donate_argnums=0)
    x = jax.device_put(jnp.ones(8), ISLANDS[1][0])
    f(x + 0)
    y, z = f(x)
    assert (y.tolist(), z.tolist()) == ([2] * 8, [3] * 8)
    assert x.is_deleted()
    known = ["Array has been deleted with shape=float32[8].", "args[0] of the program"]
    raises(RuntimeError, known, lambda: f(x))  # f donates x
    y = jax.device_put(jnp.ones(8), ISLANDS[1][0])
    y.delete()
    raises(RuntimeError, known[:1], lambda: jax.jit(lambda v: v + 1)(y))
    raises(RuntimeError, known, lambda: f(y))
    raises(TypeError, known[1:], lambda: f(jax.ShapeDtypeStruct((8,), jnp.float32)))


def modes_of_jax_that_look_for_errors():
    log = fairway.on(ISLANDS[1][0], lambda x: jnp.log(x))
    f = fairway.program(lambda x: log(x), name="logs")
    with jax.debug_nans(True):
        raises(FloatingPointError, ["nan", "log"], lambda: log(-jnp.ones(2)))
        for _ in range(2):
            raises(FloatingPointError, ["nan", "the program logs"], lambda: f(-jnp.ones(2)))
        assert f(jnp.ones(2)).tolist() == [0, 0]
    with jax.debug_infs(True):
        raises(FloatingPointError, ["inf", "the program logs"], lambda: f(jnp.zeros(2)))
    with jax.disable_jit():
        assert f(jnp.ones(2)).tolist() == log(jnp.ones(2)).tolist() == [0, 0]


def a_node_that_fails_poisons_what_depends_on_it():
    island, other = ISLANDS[0][0], ISLANDS[2][0]
    # No device has this much memory, and the sort needs all of it at once.
    large = fairway.on(island, lambda x: jnp.sort(
        jnp.broadcast_to(x, (1 << 43, x.size)) + jnp.arange(1 << 43, dtype=jnp.float32)[:, None],
        axis=0)[0])
    fine = fairway.on(island, lambda x: x * 2)
    after = fairway.on(other, lambda x: x + 1)
    f = fairway.program(lambda x: (fine(x), after(large(x)), after(fine(x))))
    x = jax.device_put(jnp.ones(4), island)
    good, bad, also_good = f(x)
    assert good.tolist() == [2] * 4 and also_good.tolist() == [3] * 4
    raises(jax.errors.JaxRuntimeError, ["emory"], lambda: bad)
    raises(jax.errors.JaxRuntimeError, ["emory"], lambda: bad * 2)


def a_first_call_that_fails_spoils_nothing():
    island = fairway.islands()[0][0]
    double = fairway.on(island, lambda x: x * 2)
    calls = []

    def flaky(x):
        calls.append(x)
        if len(calls) == 1:
            raise ValueError("the first trace fails")
        return double(x)

    f = fairway.program(flaky)
    x = jax.device_put(jnp.ones(4), island)
    raises(ValueError, ["the first trace fails"], lambda: f(x))
    for _ in range(3):
        assert f(x).tolist() == [2] * 4
    assert len(calls) == 2


def main():
    for case in (example_of_the_paper, a_first_call_that_fails_spoils_nothing, gradients_and_microbatches, results_keep_their_weak_type,
                 donated_and_deleted_arguments, modes_of_jax_that_look_for_errors,
                 a_node_that_fails_poisons_what_depends_on_it):
        case()
        print("OK", case.__name__, flush=True)


if __name__ == "__main__":
    main()
