# SPDX-License-Identifier: Apache-2.0
"""Encodes a graph as a BoundProgram (proto/fairway/v1/program.proto), in protobuf's wire format.

The package needs no protobuf (`fairway.wire`); a test reads the result with the real one.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from fairway import wire
from fairway.computation import Computation, Type
from fairway.flatten import ProgramError
from fairway.graph import Graph, Node, Ref


def encode(graph: Graph, sequential: bool = False) -> bytes:
    """The serialized BoundProgram.

    Raises:
      ProgramError: a value cannot be part of a program, such as an array of PRNG keys.
    """
    return _Encoder(graph).run() + wire.number(3, sequential)


class _Encoder:
    def __init__(self, graph: Graph):
        self._graph = graph
        self._slices: dict[tuple, int] = {}
        self._computations: dict[int, int] = {}  # id(computation) -> index
        self._code: list[bytes] = []

    def run(self) -> bytes:
        nodes = [self._node(i, node) for i, node in enumerate(self._graph.nodes)]
        graph = b"".join(wire.message(1, n) for n in nodes)
        results = self._graph.results + self._graph.done
        graph += b"".join(wire.message(2, _ref(r)) for r in results)
        slices = [wire.text(1, f"devices {[d.id for d in devices]}") + wire.number(2, len(devices))
                  for devices in self._slices]
        program = wire.text(1, self._graph.name)
        program += b"".join(wire.message(2, s) for s in slices)
        program += b"".join(wire.message(3, c) for c in self._code)
        program += wire.message(4, graph)
        bound = [wire.packed(1, [d.id for d in devices]) for devices in self._slices]
        return wire.message(1, program) + b"".join(wire.message(2, b) for b in bound)

    def _slice(self, devices: tuple) -> int:
        return self._slices.setdefault(devices, len(self._slices))

    def _slice_type(self, t: Type, what: str) -> bytes:
        return wire.number(1, self._slice(t.devices)) + wire.message(2, _array_type(t, what))

    def _node(self, index: int, node: Node) -> bytes:
        out = wire.text(1, node.name) + wire.text(2, node.source)
        what = f"{node.source or self._graph.name}: {node.name}"
        if index < self._graph.arguments:
            op = wire.message(1, self._slice_type(node.types[0], what)) + wire.number(2, node.donated)
            return out + wire.message(3, op)
        if node.computation is not None:
            op = wire.number(1, self._computation(node.computation, what))
            op += wire.number(2, self._slice(node.computation.outputs[0].devices))
            return out + wire.message(5, op + b"".join(wire.message(3, _ref(r)) for r in node.inputs))
        kind = self._slice_type(node.types[0], what)
        if node.constant is None:
            return out + wire.message(6, wire.message(1, _ref(node.inputs[0])) + wire.message(2, kind))
        return out + wire.message(4, wire.message(1, kind) + wire.blob(2, node.constant.tobytes()))

    def _computation(self, computation: Computation, what: str) -> int:
        if id(computation) in self._computations:
            return self._computations[id(computation)]
        out = wire.text(1, computation.name) + wire.blob(2, self._stablehlo(computation, what))
        out += wire.number(4, bool(jax.config.jax_use_shardy_partitioner))
        out += wire.number(5, len(computation.outputs[0].devices))
        out += b"".join(wire.message(6, _array_type(t, what))
                        for t in computation.tokens + computation.inputs)
        out += b"".join(wire.message(7, _array_type(t, what))
                        for t in computation.tokens + computation.outputs)
        self._code.append(out)
        return self._computations.setdefault(id(computation), len(self._code) - 1)

    def _stablehlo(self, computation: Computation, what: str) -> bytes:
        try:
            return computation.stablehlo()
        except NotImplementedError as error:
            raise ProgramError(f"{what}: {error}") from None


def _array_type(t: Type, what: str) -> bytes:
    kind = wire.KINDS.get(str(t.aval.dtype))
    if kind is None:
        raise ProgramError(f"{what}: a value of type {t.aval.dtype} cannot be part of a program"
                           + ("; pass jax.random.key_data" if "key" in str(t.aval.dtype) else ""))
    tiles, tile_of = _tiles(t, what)
    out = wire.number(1, kind) + wire.packed(2, t.aval.shape) + wire.packed(3, tiles) + wire.packed(4, tile_of)
    memory = getattr(t.sharding, "memory_kind", None)
    default = t.devices[0].default_memory().kind
    return out + (wire.text(5, memory) if memory not in (None, default) else b"")


def _tiles(t: Type, what: str) -> tuple[list[int], list[int]]:
    """Returns the pieces per dimension, and the row-major number of the piece on each device."""
    if t.sharding.is_fully_replicated or not t.aval.shape:
        return [], []
    where = t.sharding.devices_indices_map(t.aval.shape)
    starts = [[s.indices(n)[0] for s, n in zip(where[d], t.aval.shape, strict=True)]
              for d in t.devices]
    cuts = [sorted(set(column)) for column in zip(*starts, strict=True)]
    tiles = [len(cut) for cut in cuts]
    if int(np.prod(tiles)) > len(t.devices):
        raise ProgramError(f"{what}: {t.sharding} is no sharding that a program can have")
    at = [tuple(cut.index(s) for cut, s in zip(cuts, start, strict=True)) for start in starts]
    return tiles, [int(np.ravel_multi_index(a, tiles)) for a in at]


def _ref(ref: Ref) -> bytes:
    return wire.number(1, ref.node) + wire.number(2, ref.output)
