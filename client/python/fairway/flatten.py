# SPDX-License-Identifier: Apache-2.0
"""Takes the jaxpr of a program's body apart, into a flat list of operations.

JAX itself traces and differentiates the body. This module finds the operations that have a place. A
call that holds operations of several places is replaced by its contents.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jax._src import core, source_info_util
from jax._src.ad_checkpoint import remat_p
from jax._src.state.types import RefEffect
from jax.extend.core import ClosedJaxpr, Jaxpr  # the same class from JAX 0.12 on
from jax.sharding import Mesh, NamedSharding, Sharding


class ProgramError(ValueError):
    """A function cannot be a program; the text names the line."""


@dataclasses.dataclass(eq=False)
class Value:
    """A value between operations. Compared by identity."""

    aval: Any
    constant: Any = None  # a literal, or an array that the body closes over
    op: Op | None = None  # the operation that makes it
    devices: tuple | None = None  # None: no place yet, it is made again wherever it is used
    wanted: tuple | None = None  # the place of its first use


@dataclasses.dataclass(eq=False)
class Op:
    """One operation: an equation of a jaxpr."""

    eqn: Any
    inputs: list[Value]
    outputs: list[Value]
    place: tuple | None  # the devices that it names; None: it runs where its inputs are
    devices: tuple | None = None  # where it runs

    @property
    def name(self) -> str:
        return str(self.eqn.params.get("name") or self.eqn.primitive.name)

    @property
    def source(self) -> str:
        return source_info_util.summarize(self.eqn.source_info)

    @property
    def effects(self) -> set:
        """Its effects beyond its results, except that it makes a reference for itself."""
        return set(self.eqn.effects) - {core.internal_mutable_array_effect}

    @property
    def moves(self) -> bool:
        return self.eqn.primitive.name == "device_put"


def devices_of(sharding: Any) -> tuple | None:
    """The devices of a sharding, in its order; None: it names none."""
    if not isinstance(sharding, Sharding):
        return None
    if isinstance(sharding, NamedSharding) and not isinstance(sharding.mesh, Mesh):
        return None  # over an abstract mesh
    return tuple(sharding._device_assignment)


def _subjaxprs(eqn: Any):
    for param in eqn.params.values():
        for item in param if isinstance(param, (tuple, list)) else (param,):
            if isinstance(item, ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, Jaxpr):
                yield item


def _places(eqn: Any, known: dict) -> set:
    """The places that an equation names itself or in its inner jaxprs."""
    found = set()
    for key in ("in_shardings", "out_shardings", "devices", "sharding"):
        param = eqn.params.get(key, ())
        for sharding in param if isinstance(param, (tuple, list)) else (param,):
            if isinstance(sharding, jax.Device):
                found.add((sharding,))
            elif (devices := devices_of(sharding)) is not None:
                found.add(devices)
    mesh = eqn.params.get("mesh")
    if isinstance(mesh, Mesh) and mesh.size:
        found.add(tuple(mesh.devices.flat))
    for inner in _subjaxprs(eqn):
        if inner not in known:
            known[inner] = set().union(*(_places(e, known) for e in inner.eqns))
        found |= known[inner]
    return found


class Flattener:
    """Takes one jaxpr apart; `ops` is the result, in program order."""

    def __init__(self):
        self.ops: list[Op] = []
        self._known: dict = {}  # places by jaxpr, which it keeps, so that no other gets its id

    def run(self, closed: Any, inputs: list[Value]) -> list[Value]:
        """Appends the operations of `closed`; returns the values of its outputs."""
        env: dict = dict(zip(closed.jaxpr.invars, inputs, strict=True))
        for var, constant in zip(closed.jaxpr.constvars, closed.consts, strict=True):
            env[var] = Value(var.aval, constant=constant)

        def read(atom):
            return Value(atom.aval, constant=atom.val) if isinstance(atom, core.Literal) else env[atom]

        for eqn in closed.jaxpr.eqns:
            outputs = self._equation(eqn, [read(atom) for atom in eqn.invars])
            env.update(zip(eqn.outvars, outputs, strict=True))
        return [read(atom) for atom in closed.jaxpr.outvars]

    def _equation(self, eqn: Any, inputs: list[Value]) -> list[Value]:
        name = eqn.primitive.name
        if name == "device_put":
            return [self._move(eqn, x, i) for i, x in enumerate(inputs)]
        if name == "reshard" and eqn.params.get("concrete_mesh") is None:
            return inputs  # marks the start of a replicated scalar's cotangent; has no effect here
        places = _places(eqn, self._known)
        if len(places) > 1:
            return self.run(self._inside(eqn, places), inputs)
        return self._append(eqn, inputs, [v.aval for v in eqn.outvars], *places)

    def _append(self, eqn, inputs, avals, place=None) -> list[Value]:
        op = Op(eqn, inputs, [], place)
        _check_effects(op)
        op.outputs = [Value(aval, op=op) for aval in avals]
        self.ops.append(op)
        return op.outputs

    def _move(self, eqn: Any, value: Value, index: int) -> Value:
        target = eqn.params["devices"][index]
        if isinstance(target, jax.Device):
            target = jax.sharding.SingleDeviceSharding(target)
        if devices_of(target) is None:
            return value
        # One operation per value, so that none waits for another.
        params = dict(eqn.params, devices=(target,))
        (moved,) = self._append(eqn.replace(params=params), [value], [value.aval], devices_of(target))
        return moved

    def _inside(self, eqn: Any, places: set) -> Any:
        """The contents of an equation with several places, as a jaxpr."""
        name = eqn.primitive.name
        if eqn.primitive is remat_p:  # no pass merges the recomputed nodes with the first ones
            inner = eqn.params["jaxpr"]
            return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
        for key in ("call_jaxpr", "jaxpr", "fun_jaxpr"):
            inner = eqn.params.get(key)
            if name != "scan" and isinstance(inner, ClosedJaxpr) and len(
                    inner.jaxpr.invars) == len(eqn.invars) and name not in ("while", "cond"):
                return inner
        if name == "scan":
            return jax.make_jaxpr(_unrolled(eqn.params))(*(v.aval for v in eqn.invars))
        names = sorted(str([d.id for d in place]) for place in places)
        raise ProgramError(
            f"{source_info_util.summarize(eqn.source_info)}: {name} over several places "
            f"(devices {', '.join(names)}) cannot be part of a program; loops of a known length "
            "(for, jax.lax.fori_loop, jax.lax.scan) can"
        )


def _check_effects(op: Op) -> None:
    """Refuses changes to a reference, because no node can change a value that another holds."""
    if any(isinstance(effect, RefEffect) for effect in op.effects):
        names = ", ".join(sorted({type(effect).__name__ for effect in op.effects}))
        raise ProgramError(
            f"{op.source}: {op.name} has an effect ({names}) that a program cannot have: take its "
            "value as an argument and return the new one; a reference that a placed function makes "
            "can be used in it")


def _scan_counts(params: dict) -> tuple[int, int]:
    """How many of a scan's inputs are constants, and how many after them are carried."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].update(params["jaxpr"].in_avals).unpack()  # from JAX 0.11 on
    return len(list(consts)), len(list(carry))


def _unrolled(params: dict):
    """The function of a scan, step by step."""
    body = core.jaxpr_as_fun(params["jaxpr"])
    num_consts, num_carry = _scan_counts(params)

    def run(*flat):
        consts, carry = flat[:num_consts], flat[num_consts:num_consts + num_carry]
        xs = flat[num_consts + num_carry:]
        ys: list = [None] * params["length"]
        if not ys:
            avals = params["jaxpr"].out_avals[num_carry:]
            return [*carry, *(jax.numpy.zeros((0, *a.shape), a.dtype) for a in avals)]
        steps = range(params["length"])
        for i in reversed(steps) if params["reverse"] else steps:
            out = body(*consts, *carry, *(x[i] for x in xs))
            carry, ys[i] = out[:num_carry], out[num_carry:]
        return [*carry, *(jax.numpy.stack(y) for y in zip(*ys, strict=True))]

    return run


def is_scalar(value: Any) -> bool:
    return np.ndim(value) == 0 and not isinstance(value, jax.Array)
