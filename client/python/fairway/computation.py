# SPDX-License-Identifier: Apache-2.0
"""Computations: a node's work, as a function that JAX compiles by itself."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
from jax._src import core, xla_bridge
from jax._src import effects as effects_lib
from jax._src.interpreters import mlir
from jax._src.lib import _jax
from jax._src.lib.mlir.dialects import hlo
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from fairway import callbacks
from fairway.flatten import Op, Value, devices_of


_LOWERED_AS = {"gpu": "cuda"}  # by the platform that JAX shows


@dataclasses.dataclass(frozen=True)
class Type:
    """The type of an array: shape, dtype and sharding."""

    aval: Any
    sharding: Any

    @property
    def devices(self) -> tuple:
        return devices_of(self.sharding)

    @property
    def weak(self) -> bool:
        """Whether its dtype yields to that of other operands, as a Python number's does."""
        return getattr(self.aval, "weak_type", False)

    @property
    def struct(self) -> Any:
        return jax.ShapeDtypeStruct(
            self.aval.shape, self.aval.dtype, sharding=self.sharding, weak_type=self.weak)


@dataclasses.dataclass(eq=False)
class Computation:
    """One sharded computation. Nodes that do the same share it."""

    name: str
    jitted: Any
    inputs: list[Type]
    outputs: list[Type]
    effects: bool = False  # it has effects; a last output marks their end
    ordered: bool = False  # its effects are ordered; a last input marks the end of those before
    keep: Any = None  # keeps the objects alive that its cache key refers to
    callbacks: tuple = ()  # Python functions that it calls; they live as long as it does

    @functools.cached_property
    def orders(self) -> list:
        """Its ordered effects. For each, JAX adds a token before the inputs and the outputs."""
        if not self.ordered:
            return []
        return list(self._lower()._lowering.compile_args.get("ordered_effects", ()))

    @property
    def tokens(self) -> list[Type]:
        return [Type(core.ShapedArray((0,), np.bool_), default_sharding(self.outputs[0].devices))
                for _ in self.orders]

    def stablehlo(self) -> bytes:
        """A portable artifact. All parameters are kept, those of tokens included.

        Raises:
          NotImplementedError: it calls Python in a way that no worker can.
          ControllerError: the controller calls no Python.
        """
        lowered = self._lower()
        functions = lowered._lowering.compile_args.get("host_callbacks", ())
        if functions or self.orders:  # jax.export serializes none of these
            client = self.outputs[0].devices[0].client
            module, left = callbacks.for_controller(
                client, lowered.compiler_ir("stablehlo"), functions)
            if left:
                raise NotImplementedError("a callback that cannot be part of a program")
            self.callbacks = tuple(functions)
            return _artifact(module)
        # Workers have their own list of custom calls, and name the ones that are not on it.
        checks = [jax.export.DisabledSafetyCheck.custom_call(name)
                  for name in _custom_calls(lowered.as_text())]
        # Without platforms it would export for this process's.
        exported = jax.export.export(
            self.jitted, platforms=lowered._lowering._platforms, disabled_checks=checks)
        written = exported(*(t.struct for t in self.inputs)).mlir_module_serialized
        with mlir.make_ir_context() as context:
            return _artifact(hlo.deserialize_portable_artifact(context, written))

    def _lower(self) -> Any:
        """For the platform of its devices; that of the session is its first device's."""
        platform = self.outputs[0].devices[0].platform
        return self.jitted.trace(*(t.struct for t in self.inputs)).lower(
            lowering_platforms=(_LOWERED_AS.get(platform, platform),))


def _artifact(module: Any) -> bytes:
    """Serializes as jaxlib's proxy client does for a jit: for compilers up to 12 weeks older.
    jax.export does so for 4 weeks, with operations that workers' plugins do not know
    (vhlo.custom_call_v2)."""
    version = hlo.get_version_from_compatibility_requirement(
        hlo.StablehloCompatibilityRequirement.WEEK_12)
    with_sdy = xla_bridge.get_backend().serialize_with_sdy
    try:
        return _jax.mlir.serialize_portable_artifact(module, version, with_sdy)
    except TypeError:  # jaxlib 0.9 and earlier take the module's bytes
        return _jax.mlir.serialize_portable_artifact(
            mlir.module_to_bytecode(module), version, with_sdy)


def _custom_calls(text: str) -> list[str]:
    return sorted({part.split("(")[0].strip('"') for part in text.split("custom_call @")[1:]})


def default_sharding(devices: tuple, mesh: Any = None) -> Any:
    """The sharding with the whole array on each device."""
    if len(devices) == 1:
        return SingleDeviceSharding(devices[0])
    return NamedSharding(mesh or Mesh(np.array(devices), ("all",)), PartitionSpec())


def moved_to(sharding: Any, aval: Any, devices: tuple, mesh: Any) -> Any:
    """The sharding of an array after it came to other devices: cut as before if their mesh has the
    same axes, otherwise whole on each."""
    if (isinstance(sharding, NamedSharding) and mesh is not None and len(devices) > 1
            and sharding.mesh.shape == mesh.shape):
        return NamedSharding(mesh, sharding.spec)
    return default_sharding(devices, mesh)


def mesh_of(ops: list[Op]) -> Any:
    """The mesh that operations of one place name, or None."""
    for op in ops:
        for key in ("in_shardings", "out_shardings", "devices"):
            for sharding in op.eqn.params.get(key, ()):
                if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
                    return sharding.mesh
    return None


class Builder:
    """Makes computations of operations; the same operations give the same computation."""

    def __init__(self):
        self._known: dict = {}

    def build(self, name: str, ops: list[Op], inputs: list[Value], types: list[Type],
              outputs: list[Value], donated: tuple, devices: tuple) -> Computation:
        """Returns the computation of `ops`, in order.

        Args:
          name: for messages.
          ops: each input is in `inputs`, a literal, or the output of an earlier one.
          inputs: the parameters.
          types: the parameters' types, on `devices`.
          outputs: the results.
          donated: numbers of the parameters whose buffers the results may take over.
          devices: where it runs.
        """
        wanted = [_asked(value) for value in outputs]
        key = (_key(ops, inputs, outputs), tuple(_type_key(t) for t in types), tuple(wanted),
               donated, devices)
        if key in self._known:
            return self._known[key]
        effects = any(op.effects for op in ops)
        ordered = any(effects_lib.ordered_effects.contains(e) for op in ops for e in op.effects)
        mesh = mesh_of(ops)
        if ordered:
            types = [*types, Type(core.ShapedArray((), np.bool_), default_sharding(devices, mesh))]
        fun = _function(ops, inputs, outputs, effects)
        fun.__name__ = fun.__qualname__ = name
        avals = [value.aval for value in outputs]
        if effects:
            avals.append(core.ShapedArray((), np.bool_))
            wanted.append(default_sharding(devices, mesh))
        if len(devices) == 1:
            shardings = [w or default_sharding(devices, mesh) for w in wanted]
        elif all(w is not None for w in wanted):
            shardings = wanted
        else:  # as in a jit: the compiler decides
            open_ended = _jit(fun, types, tuple(wanted), ())
            compiled = open_ended.lower(*(t.struct for t in types)).compile()
            shardings = [w or s for w, s in zip(wanted, compiled.output_shardings, strict=True)]
        result = Computation(
            name, _jit(fun, types, tuple(shardings), donated), types,
            [Type(aval, s) for aval, s in zip(avals, shardings, strict=True)], effects, ordered, ops)
        self._known[key] = result
        return result


def _jit(fun, types, out_shardings, donated):
    return jax.jit(fun, in_shardings=tuple(t.sharding for t in types), keep_unused=True,
                   out_shardings=out_shardings, donate_argnums=donated)


def _asked(value: Value) -> Any:
    """The sharding that a jit names for its output; None: it names none."""
    op = value.op
    shardings = op.eqn.params.get("out_shardings") if op.eqn.primitive.name in ("jit", "pjit") else None
    if shardings is None:
        return None
    sharding = shardings[op.outputs.index(value)]
    return sharding if devices_of(sharding) is not None else None


def _function(ops: list[Op], inputs: list[Value], outputs: list[Value], effects: bool):
    def run(*arguments):
        env = {id(value): x for value, x in zip(inputs, arguments)}

        def read(value):
            return env[id(value)] if id(value) in env else value.constant

        for op in ops:
            for value, result in zip(op.outputs, _bind(op.eqn, map(read, op.inputs)), strict=True):
                env[id(value)] = result
        results = [read(value) for value in outputs]
        return tuple(results + [jax.numpy.zeros((), bool)] if effects else results)

    return run


def _bind(eqn: Any, arguments: Any) -> list:
    if eqn.primitive.name in ("jit", "pjit"):  # the computation has its shardings
        return core.jaxpr_as_fun(eqn.params["jaxpr"])(*arguments)
    found = eqn.primitive.get_bind_params(eqn.params)
    functions, params = found if isinstance(found, tuple) else ((), found)  # before jax 0.10
    result = eqn.primitive.bind(*functions, *arguments, **params)
    return result if eqn.primitive.multiple_results else [result]


def _key(ops: list[Op], inputs: list[Value], outputs: list[Value]) -> tuple:
    """A key that is equal for operations that do the same. Objects that cannot be compared count by
    identity: JAX keeps one jaxpr per traced function and types."""
    number = {id(value): i for i, value in enumerate(inputs)}
    lines = []
    for op in ops:
        operands = tuple(
            number[id(v)] if id(v) in number else ("=", str(v.aval), _comparable(v.constant))
            for v in op.inputs)
        params = tuple((k, _comparable(v)) for k, v in sorted(op.eqn.params.items()))
        lines.append((op.eqn.primitive, operands, params))
        for value in op.outputs:
            number[id(value)] = len(number)
    return tuple(lines), tuple(number[id(v)] for v in outputs)


def _comparable(x: Any) -> Any:
    # Not by ==: 0.0 == -0.0 and 1 == 1.0 == True, but they compute different things.
    if isinstance(x, (np.ndarray, np.generic)):
        return x.dtype.str, x.shape, x.tobytes()
    if isinstance(x, (float, complex)):
        return type(x), np.complex128(x).tobytes()
    if isinstance(x, tuple):
        return type(x), tuple(map(_comparable, x))
    try:
        hash(x)
        return type(x), x
    except TypeError:
        return type(x), id(x)


def _type_key(t: Type) -> tuple:
    return t.aval.shape, str(t.aval.dtype), t.weak, t.sharding
