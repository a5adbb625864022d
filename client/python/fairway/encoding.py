# SPDX-License-Identifier: Apache-2.0
"""A graph as a fairway.v1.BoundProgram (proto/fairway/v1/program.proto), in protobuf's wire format.

Written by hand, so that the package needs no protobuf; a test reads it back with the real one.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from fairway.computation import Computation, Type
from fairway.flatten import ProgramError
from fairway.graph import Graph, Node, Ref

# Element types by the number that IFRT gives them (DTypeProto.Kind).
_DTYPES = {
    "bool": 1, "int2": 26, "int4": 21, "int8": 2, "int16": 3, "int32": 4, "int64": 5,
    "uint2": 27, "uint4": 22, "uint8": 6, "uint16": 7, "uint32": 8, "uint64": 9, "float16": 10,
    "float32": 11, "float64": 12, "bfloat16": 16, "complex64": 15, "complex128": 18,
    "float8_e3m4": 29, "float8_e4m3": 28, "float8_e4m3fn": 20, "float8_e4m3b11fnuz": 23,
    "float8_e4m3fnuz": 25, "float8_e5m2": 19, "float8_e5m2fnuz": 24, "float8_e8m0fnu": 31,
    "float4_e2m1fn": 30,
}


def encode(graph: Graph, sequential: bool = False) -> bytes:
    """The serialized BoundProgram.

    Raises:
      ProgramError: a value that a program cannot have, such as an array of PRNG keys.
    """
    return _Encoder(graph).run() + _number(3, sequential)


class _Encoder:
    def __init__(self, graph: Graph):
        self._graph = graph
        self._slices: dict[tuple, int] = {}
        self._computations: dict[int, int] = {}  # index by id
        self._code: list[bytes] = []

    def run(self) -> bytes:
        nodes = [self._node(i, node) for i, node in enumerate(self._graph.nodes)]
        graph = b"".join(_message(1, n) for n in nodes)
        graph += b"".join(_message(2, _ref(r)) for r in self._graph.results)
        slices = [_text(1, f"devices {[d.id for d in devices]}") + _number(2, len(devices))
                  for devices in self._slices]
        program = _text(1, self._graph.name)
        program += b"".join(_message(2, s) for s in slices)
        program += b"".join(_message(3, c) for c in self._code)
        program += _message(4, graph)
        bound = [_packed(1, [d.id for d in devices]) for devices in self._slices]
        return _message(1, program) + b"".join(_message(2, b) for b in bound)

    def _slice(self, devices: tuple) -> int:
        return self._slices.setdefault(devices, len(self._slices))

    def _slice_type(self, t: Type, what: str) -> bytes:
        return _number(1, self._slice(t.devices)) + _message(2, _array_type(t, what))

    def _node(self, index: int, node: Node) -> bytes:
        out = _text(1, node.name) + _text(2, node.source)
        what = f"{node.source or self._graph.name}: {node.name}"
        if index < self._graph.arguments:
            op = _message(1, self._slice_type(node.types[0], what)) + _number(2, node.donated)
            return out + _message(3, op)
        if node.computation is not None:
            op = _number(1, self._computation(node.computation, what))
            op += _number(2, self._slice(node.computation.outputs[0].devices))
            return out + _message(5, op + b"".join(_message(3, _ref(r)) for r in node.inputs))
        kind = self._slice_type(node.types[0], what)
        if node.constant is None:
            return out + _message(6, _message(1, _ref(node.inputs[0])) + _message(2, kind))
        return out + _message(4, _message(1, kind) + _bytes(2, node.constant.tobytes()))

    def _computation(self, computation: Computation, what: str) -> int:
        if id(computation) in self._computations:
            return self._computations[id(computation)]
        out = _text(1, computation.name) + _bytes(2, self._stablehlo(computation, what))
        out += _number(4, bool(jax.config.jax_use_shardy_partitioner))
        out += _number(5, len(computation.outputs[0].devices))
        out += b"".join(_message(6, _array_type(t, what)) for t in computation.inputs)
        out += b"".join(_message(7, _array_type(t, what)) for t in computation.outputs)
        self._code.append(out)
        return self._computations.setdefault(id(computation), len(self._code) - 1)

    def _stablehlo(self, computation: Computation, what: str) -> bytes:
        advice = ("no controller calls Python (jax.debug.print, jax.pure_callback): leave it out, "
                  "or run the program on JAX's own devices")
        try:
            code = computation.stablehlo()
        except NotImplementedError as error:
            raise ProgramError(f"{what}: {error}; {advice}") from None
        if not computation.outputs:
            raise ProgramError(f"{what} runs for its effect only; {advice}")
        return code


def _array_type(t: Type, what: str) -> bytes:
    kind = _DTYPES.get(str(t.aval.dtype))
    if kind is None:
        raise ProgramError(f"{what}: a value of type {t.aval.dtype} cannot be part of a program"
                           + ("; pass jax.random.key_data" if "key" in str(t.aval.dtype) else ""))
    tiles, tile_of = _tiles(t, what)
    out = _number(1, kind) + _packed(2, t.aval.shape) + _packed(3, tiles) + _packed(4, tile_of)
    memory = getattr(t.sharding, "memory_kind", None)
    default = t.devices[0].default_memory().kind
    return out + (_text(5, memory) if memory not in (None, default) else b"")


def _tiles(t: Type, what: str) -> tuple[list[int], list[int]]:
    """Pieces per dimension, and the row-major number of the piece on each device."""
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
    return _number(1, ref.node) + _number(2, ref.output)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(int(value)) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    return _message(field, value) if value else b""


def _message(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _packed(field: int, values: Any) -> bytes:
    return _bytes(field, b"".join(_varint(int(v)) for v in values))
