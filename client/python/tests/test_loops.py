# SPDX-License-Identifier: Apache-2.0
"""Tests which loops ask whether to go on."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax._src.lib.mlir import ir

from fairway import loops


def asked(function, *arguments):
    """Returns how many loops it has, and the numbers of those whose condition asks."""
    lowered = jax.jit(function).lower(*arguments).compiler_ir("stablehlo")
    with lowered.context:
        module = ir.Module.parse(str(lowered))
        loops.guard(module, "mhlo.backend_config")
        assert module.operation.verify()
        total, numbers = 0, []

        def look(op):
            nonlocal total
            if op.name == "stablehlo.while":
                total += 1
                condition = op.regions[0].blocks[0]
                made = condition.operations[len(condition.operations) - 1].operands[0].owner
                if made.name == "stablehlo.custom_call":
                    assert ir.StringAttr(made.attributes["call_target_name"]).value == "fairway_go_on"
                    numbers.append(ir.IntegerAttr(made.attributes["mhlo.backend_config"]["loop"]).value)
            return ir.WalkResult.ADVANCE

        module.operation.walk(look)
        return total, numbers


@pytest.mark.parametrize("function", [
    lambda x: lax.fori_loop(0, 10, lambda i, x: x * 2 + i, x),
    lambda x: lax.scan(lambda c, y: (c + y, c), x, jnp.arange(5.0)),
    lambda x: lax.fori_loop(0, 10, lambda i, x: lax.fori_loop(0, 5, lambda j, x: x * j, x), x),
])
def test_loops_that_count_to_a_constant_do_not(function):
    total, numbers = asked(function, 1.0)
    assert total > 0 and numbers == []


@pytest.mark.parametrize("function", [
    lambda x: lax.while_loop(lambda x: x < 10, lambda x: x + 1, x),  # of floats: 1 may add nothing
    lambda x: lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + c[1], c[1]), (0, jnp.int32(x))),
    lambda x: lax.while_loop(lambda c: c[0] < 10, lambda c: (c[1] + 1, c[0]), (0, jnp.int32(x))),
    lambda x: lax.while_loop(lambda c: c[0] > 10, lambda c: (c[0] + 1, c[1]), (0, x)),
    lambda x: lax.fori_loop(0, jnp.int32(x), lambda i, x: x * 2, x),
])
def test_others_do(function):
    assert asked(function, 1.0) == (1, [0])


def test_each_loop_has_its_number():
    def inner(x):
        return lax.while_loop(lambda y: y.sum() < 100, lambda y: y * 2, x)

    total, numbers = asked(
        lambda x: inner(lax.while_loop(lambda y: y.sum() < 9, lambda y: inner(y) + 1, x)), jnp.ones(4))
    assert total == 3 and sorted(numbers) == [0, 1, 2]
