# SPDX-License-Identifier: Apache-2.0
"""Protobuf's wire format, written and read by hand, so that the package needs no protobuf.

Writing: a message is the bytes of its fields, one after the other; a field of value 0 or without
bytes is left out, as in proto3. Tests read and write it with the real protobuf.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Element types by their number in IFRT (DTypeProto.Kind).
KINDS = {
    "bool": 1, "int2": 26, "int4": 21, "int8": 2, "int16": 3, "int32": 4, "int64": 5,
    "uint2": 27, "uint4": 22, "uint8": 6, "uint16": 7, "uint32": 8, "uint64": 9, "float16": 10,
    "float32": 11, "float64": 12, "bfloat16": 16, "complex64": 15, "complex128": 18,
    "float8_e3m4": 29, "float8_e4m3": 28, "float8_e4m3fn": 20, "float8_e4m3b11fnuz": 23,
    "float8_e4m3fnuz": 25, "float8_e5m2": 19, "float8_e5m2fnuz": 24, "float8_e8m0fnu": 31,
    "float4_e2m1fn": 30,
}


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(int(value)) if value else b""


def message(field: int, value: bytes) -> bytes:
    """Writes the field even if it is empty: a present message differs from none."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def blob(field: int, value: bytes) -> bytes:
    return message(field, value) if value else b""


def text(field: int, value: str) -> bytes:
    return blob(field, value.encode())


def packed(field: int, values: Any) -> bytes:
    return blob(field, b"".join(varint(int(v)) for v in values))


def fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """(number, value) of every field: an int, or a memoryview of its bytes.

    Raises:
      ValueError: the bytes are not a message.
    """
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _read_varint(data, at)
        elif kind in (1, 2, 5):
            size, at = _read_varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = data[at:at + size], at + size
            if at > len(data):
                raise ValueError("a field ends beyond its message")
        else:
            raise ValueError(f"a field of wire type {kind}")
        yield tag >> 3, value


def numbers(value: Any) -> list[int]:
    """The values of one occurrence of a repeated number, packed or not."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        one, at = _read_varint(value, at)
        found.append(one)
    return found


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number that does not end")
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
