# SPDX-License-Identifier: Apache-2.0
"""A fairway.program that calls functions of this process, in placed functions and between them."""

import contextlib
import io
import logging

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify, io_callback
from jax.sharding import Mesh, PartitionSpec as P

import fairway
from places import islands

logging.disable(logging.CRITICAL)
left, right = (Mesh(np.array(devices[:2]), ("x",)) for devices in islands()[:2])


def printed(call):
    """Returns the output until the barrier, and the function's result."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        result = jax.block_until_ready(call())
        jax.effects_barrier()
    return out.getvalue().split(), result


@fairway.on(left, in_specs=(P("x"),), out_specs=P("x"))
def doubles(x):
    jax.debug.print("doubles")
    return jax.pure_callback(lambda a: np.asarray(a) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x,
                             vmap_method="sequential")


@fairway.on(right, in_specs=(P("x"),), out_specs=P())
def adds(x):
    return x.sum()


def check(f, *arguments):
    """Runs it as a program, twice, and node by node: the results are the same."""
    expected = printed(lambda: f.op_by_op(*arguments))
    for _ in range(2):
        lines, result = printed(lambda: f(*arguments))
        assert sorted(lines) == sorted(expected[0]), (lines, expected)
        jax.tree.map(np.testing.assert_array_equal, result, expected[1])
    return lines, result


lines, total = check(fairway.program(lambda x: adds(doubles(x))), jnp.arange(4.0))
assert lines == ["doubles"] and float(total) == 12


@fairway.program
def between(x):
    y = doubles(x)
    jax.debug.print("{}", adds(y))  # it runs where its input is
    for i in range(3):
        jax.debug.callback(lambda a, i=i: print(f"{i}:{a.shape[0]}"), y)
    return y


lines, _ = check(between, jnp.arange(4.0))
assert sorted(lines) == ["0:4", "12.0", "1:4", "2:4", "doubles"], lines


def one(i, x):  # JAX orders the debug prints of one device only
    jax.debug.print("{}", i, ordered=True)
    return x + 1


def several(i, x):
    io_callback(lambda i, x: print(i), None, i, x, ordered=True)
    return x + 1


def alternating(steps):
    def ordered(x):
        return [steps[i % len(steps)](i, x) for i in range(12)]

    return fairway.program(ordered)


on_one = [fairway.on(island.devices.flat[0], one) for island in (left, right)]
on_several = [fairway.on(island, several, in_specs=(P(), P("x")), out_specs=P("x"))
              for island in (left, right)]
on_several.append(fairway.on(left.devices.flat[1], several))
for steps in on_one, on_several:
    ordered = alternating(steps)
    for run in ordered, ordered, ordered.op_by_op:
        lines, results = printed(lambda: run(jnp.arange(4.0)))
        assert lines == [str(i) for i in range(12)], lines
        for x in results:
            np.testing.assert_array_equal(x, np.arange(4.0) + 1)

seen = []
only = fairway.on(right, lambda x: io_callback(lambda a: seen.append(float(a)), None, x.sum()))
nothing = fairway.program(lambda x: (only(x), x)[1])
nothing(jnp.arange(3.0))
jax.effects_barrier()
assert seen == [3.0], seen


def root(x):
    checkify.check(jnp.all(x > 0), "must be positive: {x}", x=x.min())
    return jnp.sqrt(x)


checked = fairway.on(left, checkify.checkify(root))


@fairway.program
def roots(x):
    error, y = checked(x)
    return error, adds(y)


error, total = roots(jnp.array([1.0, 4.0]))
assert error.get() is None and float(total) == 3
assert "must be positive: -1.0" in roots(jnp.array([-1.0, 4.0]))[0].get()


def raises(x):
    raise ValueError("of no use")


for place in left, right:
    fails = fairway.on(place, lambda x: jax.pure_callback(raises, x, x))
    try:
        fairway.program(lambda x: adds(fails(x)))(jnp.arange(4.0)).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        assert "in raises" in str(error) and "ValueError: of no use" in str(error), error
    else:
        raise AssertionError("it did not fail")

unseen = fairway.program(lambda x: (fairway.on(left, lambda x: jax.debug.callback(raises, x))(x), x)[1])
unseen(jnp.arange(3.0))
try:
    jax.effects_barrier()
except jax.errors.JaxRuntimeError as error:
    assert "ValueError: of no use" in str(error), error
else:
    raise AssertionError("it did not fail")
with contextlib.suppress(jax.errors.JaxRuntimeError):
    jax.effects_barrier()
print("right")
