# SPDX-License-Identifier: Apache-2.0
"""Lets loops of programs with callbacks end when a callback has failed.

A callback that fails, because its function raised or its client died, returns zeros, and the program
goes on: one of several devices must not stop alone. With those zeros a loop might never end. So the
condition of each loop that does not merely count also asks the worker whether to go on; the worker
gives all devices of the launch the same answer (docs/design/0046-callbacks.md).
"""

from __future__ import annotations

from typing import Any

_TARGET = "fairway_go_on"


def guard(module: Any, config: str) -> None:
    """Changes the loops of a module that has callbacks.

    Args:
      module: an MLIR module; its context is the current one.
      config: the attribute that holds a custom call's own attributes.
    """
    from jax._src.lib.mlir import ir

    loops = []

    def look(op):
        if op.name == "stablehlo.while" and not _counts(op):
            loops.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    for number, loop in enumerate(loops):
        _ask(loop, number, config)


def _ask(loop: Any, number: int, config: str) -> None:
    from jax._src.lib.mlir import ir

    end = _last(loop.regions[0].blocks[0])
    go = end.operands[0]

    # It declares no side effect, because XLA would then need its sharding. Its operand changes from
    # round to round, so it is called in each.
    with ir.InsertionPoint(end), loop.location:
        asked = ir.Operation.create("stablehlo.custom_call", results=[go.type], operands=[go], attributes={
            "call_target_name": ir.StringAttr.get(_TARGET),
            config: ir.DictAttr.get({"loop": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)}),
        })
    end.operands[0] = asked.results[0]


def _counts(loop: Any) -> bool:
    """Whether it goes on while a number is below a constant, and each round adds one to it."""
    condition, body = (region.blocks[0] for region in loop.regions)
    test = _owner(_last(condition).operands[0])
    if test is None or test.name != "stablehlo.compare" or "LT" not in str(
            test.attributes["comparison_direction"]):
        return False
    number, limit = test.operands
    position = next((i for i, x in enumerate(condition.arguments) if x == number), None)
    if position is None or "f" in str(number.type) or not _is_constant(limit):
        return False
    step = _owner(_last(body).operands[position])
    return (step is not None and step.name == "stablehlo.add"
            and step.operands[0] == body.arguments[position] and _is_constant(step.operands[1], "dense<1>"))


def _last(block: Any) -> Any:
    return block.operations[len(block.operations) - 1].operation


def _owner(value: Any) -> Any:
    """The operation that makes the value; None for an argument of a block."""
    from jax._src.lib.mlir import ir

    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _is_constant(value: Any, text: str = "") -> bool:
    owner = _owner(value)
    return owner is not None and owner.name == "stablehlo.constant" and text in str(owner)
