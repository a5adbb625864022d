# SPDX-License-Identifier: Apache-2.0
"""Turns operations into a graph of nodes: where each runs, and which of them run as one."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jax._src.lax import lax

from fairway.computation import Builder, Computation, Type, default_sharding, mesh_of, moved_to
from fairway.flatten import Op, ProgramError, Value, devices_of, is_scalar


@dataclasses.dataclass(frozen=True)
class Ref:
    """Output `output` of node `node`."""

    node: int
    output: int = 0


@dataclasses.dataclass
class Node:
    """One node: an argument (nothing set), a constant, a computation, or a transfer."""

    name: str
    source: str
    types: list[Type]
    inputs: list[Ref] = dataclasses.field(default_factory=list)
    constant: Any = None
    computation: Computation | None = None
    donated: bool = False


@dataclasses.dataclass
class Graph:
    """Arguments come first, in order; every node comes after those whose values it takes."""

    name: str
    nodes: list[Node]
    arguments: int
    results: list[Ref]
    done: list[Ref] = dataclasses.field(default_factory=list)  # each marks the end of some effects

    def type_of(self, ref: Ref) -> Type:
        return self.nodes[ref.node].types[ref.output]

    @property
    def result_types(self) -> list[Type]:
        """The types of the results, followed by those of `done`."""
        return [self.type_of(ref) for ref in self.results + self.done]

    def run(self, arguments: list[Any]) -> list[Any]:
        """Runs it op by op, with JAX alone. The arguments must be in their places."""
        values: dict[Ref, Any] = {}
        for i, node in enumerate(self.nodes):
            if i < self.arguments:
                outputs = [arguments[i]]
            elif node.computation is not None:
                tokens = node.computation.tokens  # JAX adds tokens of its own
                moved = [jax.device_put(values[ref], t.sharding) for ref, t in
                         zip(node.inputs[len(tokens):], node.computation.inputs, strict=True)]
                outputs = [*tokens, *node.computation.jitted(*moved)]
            else:
                what = node.constant if node.constant is not None else values[node.inputs[0]]
                outputs = [jax.device_put(what, node.types[0].sharding)]
                if node.types[0].weak:
                    outputs = [lax._convert_element_type(outputs[0], weak_type=True)]
            values.update({Ref(i, o): x for o, x in enumerate(outputs)})
        return [values[ref] for ref in self.results]


def place(ops: list[Op], arguments: list[Value], results: list[Value], shardings: list) -> tuple:
    """Decides the place of every operation and value.

    An operation without a place runs where its inputs are. If none of its inputs has a place, as
    for a constant, it has no place: it is made again in every computation that uses it. An argument
    without a sharding goes to the place of its first use.

    Args:
      ops: in order; changed.
      arguments: changed.
      results: changed.
      shardings: those of the arguments; None: an argument has none.

    Returns:
      The first place that any operation or value names, for results without one.
    """
    for op in reversed(ops):
        wanted = op.place or next((v.wanted for v in op.outputs if v.wanted), None)
        for value in op.inputs:
            value.wanted = wanted or value.wanted
    for value, sharding in zip(arguments, shardings, strict=True):
        value.devices = devices_of(sharding)
    named = [v.devices for v in arguments if v.devices] + [op.place for op in ops if op.place]
    home = named[0] if named else (jax.devices()[0],)
    for value in arguments:
        value.devices = value.devices or value.wanted or home
    for op in ops:
        op.devices = op.place or _common_place(op) or (home if op.effects else None)
        for value in op.outputs:
            value.devices = op.devices
    return home


def _common_place(op: Op) -> tuple | None:
    places = {v.devices for v in op.inputs if v.devices}
    if len(places) <= 1:
        return places.pop() if places else None
    text = " and ".join(str([d.id for d in devices]) for devices in places)
    raise ProgramError(
        f"{op.source}: {op.name} takes values on devices {text}; move one of them there by "
        "jax.device_put, or place the operation by fairway.on")


class GraphMaker:
    """Makes the nodes, in the order of the operations.

    Operations that name no place run together with those before them on the same devices, up to the
    next one that names a place: a backward pass and the sum that takes its gradients are one
    computation. (Runs are not longer, because sums of gradients would keep all their terms until
    the end.) An operation does not join a run if the run would have to wait for it. A node
    elsewhere never waits for operations that joined a run after it needed the run's values.
    """

    def __init__(self, builder: Builder, ops: list[Op], results: list[Value]):
        self._builder = builder
        self._ops = ops
        self._results = results
        self._users: dict[int, set[int]] = {}  # id of a value -> ids of the operations that take it
        for op in ops:
            for value in op.inputs:
                self._users.setdefault(id(value), set()).add(id(op))
        self._nodes: list[Node] = []
        self._refs: dict[int, Ref] = {}  # id of a value that a node makes -> its Ref
        self._open: dict[tuple, list[Op]] = {}  # by devices: operations that are not in a node yet
        self._pending: dict[int, tuple] = {}  # id of a value that they make -> its devices
        self._done: list[Ref] = []
        self._ordered: Ref | None = None  # must be ready before the next ordered effects begin

    def run(self, name: str, arguments: list[Value], shardings: list, donated: set[int],
            home: tuple) -> Graph:
        for i, (value, sharding) in enumerate(zip(arguments, shardings, strict=True)):
            sharding = sharding or self._argument_sharding(value)
            self._nodes.append(Node(f"argument {i}", "", [Type(value.aval, sharding)],
                                    donated=i in donated))
            self._refs[id(value)] = Ref(i)
        for op in self._ops:
            if op.devices is None:
                continue
            if op.place is None:
                self._join(op)
            else:
                self._close(op.devices)
                if op.moves:
                    self._emit([op])
                else:
                    self._start(op)
        for devices in list(self._open):
            self._close(devices)
        results = [self._result(value, home) for value in self._results]
        return Graph(name, self._nodes, len(arguments), results, self._done)

    def _argument_sharding(self, value: Value) -> Any:
        """The sharding that the first operation wants for it."""
        for op in self._ops:
            if op.devices == value.devices and any(v is value for v in op.inputs):
                asked = _asked_of_input(op, [v is value for v in op.inputs].index(True))
                return asked or default_sharding(value.devices, mesh_of([op]))
        return default_sharding(value.devices)

    def _join(self, op: Op) -> None:
        if any(self._came(value) for value in op.inputs):
            self._close(op.devices)
        self._start(op)

    def _came(self, value: Value) -> bool:
        """Whether it is the result of a transfer."""
        ref = self._refs.get(id(value))
        node = self._nodes[ref.node] if ref is not None else None
        return node is not None and node.computation is None and bool(node.inputs)

    def _start(self, op: Op) -> None:
        self._open.setdefault(op.devices, []).append(op)
        for value in op.outputs:
            self._pending[id(value)] = op.devices

    def _close(self, devices: tuple | None) -> None:
        if ops := self._open.pop(devices, None):
            self._emit(ops)

    def _emit(self, ops: list[Op]) -> None:
        """Makes a node of operations on the same devices."""
        for op in ops:
            for value in op.inputs:
                self._close(self._pending.get(id(value)))
        if ops[0].moves:
            return self._transfer(ops[0])
        inside = {id(op) for op in ops}
        made = {id(value) for op in ops for value in op.outputs}
        late: list[Op] = []  # operations without a place that these need
        inputs: list[Value] = []
        for op in ops:
            for value in op.inputs:
                if id(value) not in made:
                    self._gather(value, inputs, late)
        outputs = [v for op in ops for v in op.outputs if self._users.get(id(v), set()) - inside
                   or any(v is r for r in self._results)]
        if not outputs and not any(op.effects for op in ops):
            return
        self._compute(ops, late, inputs, outputs)

    def _compute(self, ops: list[Op], late: list[Op], inputs: list[Value],
                 outputs: list[Value]) -> None:
        named = [op for op in ops if op.place]
        op, devices = (named or ops)[-1], ops[0].devices
        mesh = mesh_of(ops)
        refs = [self._ref(value, devices, mesh) for value in inputs]
        types = []
        for value, ref in zip(inputs, refs, strict=True):
            have = self._nodes[ref.node].types[ref.output]
            types.append(Type(value.aval, self._input_sharding(ops, value, have, mesh)))
        donated = _donated(op, inputs) if len(ops) == 1 else ()
        name = op.name if named else "_".join(dict.fromkeys(o.name for o in ops))[:60]
        name = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
        computation = self._builder.build(name, late + ops, inputs, types, outputs, donated, devices)
        tokens = computation.tokens
        if computation.ordered:
            after = computation.inputs[-1]
            refs.append(self._ordered or self._constant(after, np.zeros((), np.bool_)))
        # JAX's order tokens have no bytes, so no node waits for their transfer.
        refs = [self._constant(t, np.zeros(0, np.bool_)) for t in tokens] + refs
        node = Node(name, op.source, tokens + computation.outputs, refs, computation=computation)
        self._add(node, outputs, len(tokens))
        if computation.effects:
            self._done.append(Ref(len(self._nodes) - 1, len(node.types) - 1))
        if computation.ordered:
            self._ordered = self._done[-1]

    def _constant(self, kind: Type, value: np.ndarray) -> Ref:
        self._nodes.append(Node("constant", "", [kind], constant=value))
        return Ref(len(self._nodes) - 1)

    def _input_sharding(self, ops, value, have: Type, mesh) -> Any:
        for op in ops:
            for i, v in enumerate(op.inputs):
                if v is value and (asked := _asked_of_input(op, i)) is not None:
                    return asked
        if have.devices == ops[0].devices:
            return have.sharding
        return moved_to(have.sharding, have.aval, ops[0].devices, mesh)

    def _transfer(self, op: Op) -> None:
        (value,), target = op.inputs, op.eqn.params["devices"][0]
        if value.devices is None:  # it is made at the target
            ref = self._nowhere(value, op.devices, mesh_of([op]))
        else:
            ref = self._refs[id(value)]
        if self._nodes[ref.node].types[ref.output].sharding == target:
            self._refs[id(op.outputs[0])] = ref
            return
        node = Node("device_put", op.source, [Type(value.aval, target)], [ref])
        self._add(node, op.outputs)

    def _add(self, node: Node, outputs: list[Value], first: int = 0) -> None:
        for i, value in enumerate(outputs, first):
            self._refs[id(value)] = Ref(len(self._nodes), i)
            self._pending.pop(id(value), None)
        self._nodes.append(node)

    def _gather(self, value: Value, inputs: list[Value], late: list[Op]) -> None:
        """Adds the inputs to be passed for `value`, and the operations to be made with it."""
        if value.op is not None and value.op.devices is None:
            if value.op not in late:
                for other in value.op.inputs:
                    self._gather(other, inputs, late)
                late.append(value.op)
        elif not (value.op is None and value.constant is not None and is_scalar(value.constant)):
            if not any(v is value for v in inputs):
                inputs.append(value)

    def _ref(self, value: Value, devices: tuple, mesh: Any) -> Ref:
        """Returns the value as an input of a node on `devices`."""
        if id(value) in self._refs:
            return self._refs[id(value)]
        # The body closes over the array: a constant of the program, on the devices of its use.
        node = Node("constant", "", [Type(value.aval, default_sharding(devices, mesh))],
                    constant=np.asarray(value.constant))
        self._nodes.append(node)
        self._refs[id(value)] = Ref(len(self._nodes) - 1)
        return self._refs[id(value)]

    def _nowhere(self, value: Value, devices: tuple, mesh: Any) -> Ref:
        """Makes a value without a place on `devices`, for a user that is no computation."""
        if value.op is None and not is_scalar(value.constant):
            return self._ref(value, devices, mesh)
        if value.op is None:
            constant = np.asarray(value.constant, value.aval.dtype)
            self._nodes.append(Node("constant", "", [
                Type(value.aval, default_sharding(devices, mesh))], constant=constant))
            return Ref(len(self._nodes) - 1)
        inputs: list[Value] = []
        late: list[Op] = []
        self._gather(value, inputs, late)
        refs = [self._ref(v, devices, mesh) for v in inputs]
        types = [self._nodes[ref.node].types[ref.output] for ref in refs]
        types = [t if t.devices == devices else
                 Type(t.aval, moved_to(t.sharding, t.aval, devices, mesh)) for t in types]
        computation = self._builder.build(late[-1].name, late, inputs, types, [value], (), devices)
        self._nodes.append(Node(late[-1].name, late[-1].source, computation.outputs, refs,
                                computation=computation))
        return Ref(len(self._nodes) - 1)

    def _result(self, value: Value, home: tuple) -> Ref:
        self._close(self._pending.get(id(value)))
        if id(value) in self._refs:
            return self._refs[id(value)]
        return self._nowhere(value, home, None)


def _asked_of_input(op: Op, index: int) -> Any:
    """The sharding that an operation wants for an input; None: any."""
    if op.moves:
        return op.eqn.params["devices"][0]
    shardings = op.eqn.params.get("in_shardings") if op.eqn.primitive.name in ("jit", "pjit") else None
    sharding = shardings[index] if shardings is not None else None
    return sharding if devices_of(sharding) is not None else None


def _donated(op: Op, inputs: list[Value]) -> tuple:
    flags = op.eqn.params.get("donated_invars", ())
    given = {id(v) for v, flag in zip(op.inputs, flags, strict=False) if flag}
    return tuple(i for i, v in enumerate(inputs) if id(v) in given)
