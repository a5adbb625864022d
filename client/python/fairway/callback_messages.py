# SPDX-License-Identifier: Apache-2.0
"""The messages of a stream of callbacks: proto/fairway/v1/callbacks.proto, the client's side."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes  # noqa: F401  it registers bfloat16 and similar types with numpy
import numpy as np

from fairway import wire

CHUNK = 1 << 20  # bytes of one message
_INLINE = 64 << 10  # results up to here are in the Return itself, until they fill a chunk together
_TEXT = 64 << 10

_NAMES = {kind: name for name, kind in wire.KINDS.items()}


@dataclasses.dataclass
class Call:
    """A call, perhaps before all of its arguments have come."""

    number: int
    function: int
    device: int
    program: str
    arguments: list[np.ndarray]
    wanted: list[tuple[tuple, np.dtype]]  # shape and dtype of each result
    missing: list[memoryview] = dataclasses.field(default_factory=list)  # chunks fill these

    def fill(self, data: memoryview) -> None:
        """Takes the bytes of a chunk.

        Raises:
          ValueError: there are more of them than the arguments have.
        """
        while data:
            if not self.missing:
                raise ValueError("a chunk of more bytes than the arguments have")
            room = self.missing[0]
            size = min(len(room), len(data))
            room[:size], data = data[:size], data[size:]
            if size == len(room):
                self.missing.pop(0)
            else:
                self.missing[0] = room[size:]


@dataclasses.dataclass
class Chunk:
    call: int
    data: memoryview


@dataclasses.dataclass
class Cancel:
    call: int
    reason: str


@dataclasses.dataclass
class Opened:
    limit_ms: int


def decode(data: bytes) -> Call | Chunk | Cancel | Opened | None:
    """Decodes a CallbackServerMessage; None: its kind is unknown to this version.

    Raises:
      ValueError: the bytes are not such a message.
    """
    readers = {1: _opened, 2: _call, 3: _chunk, 4: _cancel}
    for field, value in wire.fields(memoryview(data)):
        if field in readers:
            return readers[field](value)
    return None


def open_message(channel: bytes) -> bytes:
    return wire.message(1, wire.blob(1, channel))


def returned(call: Call, results: list[np.ndarray]) -> Iterator[bytes]:
    """Encodes the return of a call with `results`, as wanted. The messages hold a copy."""
    encoded, later, room = b"", [], CHUNK
    for x in results:
        out = wire.number(1, wire.KINDS[x.dtype.name]) + wire.packed(2, x.shape)
        out += wire.number(3, x.nbytes)
        data = x.tobytes()
        if len(data) <= min(_INLINE, room):
            out += wire.blob(4, data)
            room -= len(data)
        else:
            later.append(memoryview(data))
        encoded += wire.message(4, out)
    first = wire.message(2, wire.number(1, call.number) + encoded)
    return itertools.chain([first], _chunks(call.number, later))


def _chunks(call: int, arrays: list[memoryview]) -> Iterator[bytes]:
    for data in arrays:
        for at in range(0, len(data), CHUNK):
            piece = wire.number(1, call) + wire.blob(2, bytes(data[at:at + CHUNK]))
            yield wire.message(3, piece)


def failed(call: int, code: int, text: str) -> bytes:
    """Encodes the end of a call with an error. A long text loses its middle."""
    data = text.encode(errors="replace")
    if len(data) > _TEXT:
        gap = b"\n... (left out) ...\n"
        half = (_TEXT - len(gap)) // 2
        data = data[:half] + gap + data[-half:]
        data = data.decode(errors="ignore").encode()
    return wire.message(2, wire.number(1, call) + wire.number(2, code) + wire.blob(3, data))


def _opened(data: memoryview) -> Opened:
    return Opened(dict(wire.fields(data)).get(1, 0))


def _chunk(data: memoryview) -> Chunk:
    found = dict(wire.fields(data))
    return Chunk(found.get(1, 0), found.get(2, memoryview(b"")))


def _cancel(data: memoryview) -> Cancel:
    found = dict(wire.fields(data))
    return Cancel(found.get(1, 0), bytes(found.get(2, b"")).decode(errors="replace"))


def _call(data: memoryview) -> Call:
    simple: dict[int, Any] = {}
    arrays: dict[int, list] = {3: [], 4: []}
    for field, value in wire.fields(data):
        if field in arrays:
            arrays[field].append(_array(value))
        else:
            simple[field] = value
    call = Call(simple.get(1, 0), simple.get(2, 0), simple.get(5, 0),
                bytes(simple.get(6, b"")).decode(errors="replace"), [],
                [(shape, dtype) for shape, dtype, _, _ in arrays[4]])
    for shape, dtype, size, content in arrays[3]:
        if size and not len(content):
            content = bytearray(size)
            call.missing.append(memoryview(content))
        x = np.frombuffer(content, dtype).reshape(shape)
        x.flags.writeable = False  # as on JAX's CPU backend
        call.arguments.append(x)
    return call


def _array(data: memoryview) -> tuple[tuple, np.dtype, int, memoryview]:
    kind, dims, size, content = 0, [], 0, memoryview(b"")
    for field, value in wire.fields(data):
        if field == 1:
            kind = value
        elif field == 2:
            dims += wire.numbers(value)
        elif field == 3:
            size = value
        elif field == 4:
            content = value
    if kind not in _NAMES:
        raise ValueError(f"an array of element type {kind}")
    dtype = np.dtype(_NAMES[kind])
    if size != math.prod(dims) * dtype.itemsize or len(content) not in (0, size):
        raise ValueError(f"an array of {dtype}{dims} with {size} bytes")
    return tuple(dims), dtype, size, content
