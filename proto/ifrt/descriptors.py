# SPDX-License-Identifier: Apache-2.0
"""Reads the protobuf descriptors inside a jaxlib, and says where our .proto files differ."""

import functools
import mmap
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")

HERE = pathlib.Path(__file__).resolve().parent
Field = descriptor_pb2.FieldDescriptorProto

# Left out on purpose: Fairway does not read them, and keeps them as unknown fields where it passes a message on.
LEFT_OUT = {
    "xla.OpSharding": {"tile_shape", "metadata"},
    "xla.NamedShardingProto": {"metadata"},
    "xla.LayoutProto": {
        "dim_level_types", "dim_unique", "dim_ordered", "tiles", "index_primitive_type", "pointer_primitive_type",
        "physical_shape", "split_configs",
    },
    "xla.ExecutableBuildOptionsProto": {"comp_envs", "debug_options", "optimization_level", "memory_fitting_level"},
    "xla.CompileOptionsProto": {"target_config", "matrix_unit_operand_precision"},
}  # fmt: skip


def library(jaxlib):
    """The shared object with the descriptors in the package directory `jaxlib`."""
    libraries = [p for p in (jaxlib / "libjax_common.so", jaxlib / "xla_extension.so") if p.exists()]
    assert libraries, f"no library with descriptors in {jaxlib}"
    return libraries[0]


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("no varint")


def _file_at(data, start):
    """The FileDescriptorProto that begins at `start`: its top-level fields up to the first that is none, or None."""
    at = end = start
    names = 0
    try:
        while True:
            tag, at = _varint(data, at)
            number, wire_type = tag >> 3, tag & 7
            names += number == 1
            if not 1 <= number <= 14 or names > 1 or wire_type not in (0, 2):
                break
            length, at = _varint(data, at)
            if wire_type == 2:
                if length > 2_000_000:
                    break
                at += length
            end = at
    except (ValueError, IndexError):
        pass
    for last in range(end, start + 20, -1):
        try:
            return descriptor_pb2.FileDescriptorProto.FromString(data[start:last])
        except Exception:  # the last field was not one: try without it
            if end - last > 64:
                return None
    return None


def _symbols(files):
    """All messages and enums by full name."""
    messages, enums = {}, {}

    def visit(prefix, message):
        name = f"{prefix}.{message.name}"
        messages[name] = message
        for nested in message.nested_type:
            visit(name, nested)
        for enum in message.enum_type:
            enums[f"{name}.{enum.name}"] = enum

    for file in files:
        for message in file.message_type:
            visit(file.package, message)
        for enum in file.enum_type:
            enums[f"{file.package}.{enum.name}"] = enum
    return messages, enums


@functools.cache
def theirs(jaxlib):
    """(messages, enums) of the package directory `jaxlib`, by full name."""
    files = {}
    path = library(jaxlib)
    with open(path, "rb") as handle:
        data = mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ)
        for match in re.finditer(rb"\x0a[\x05-\x7f](?:xla|tsl)/[a-zA-Z0-9_/]+\.proto\x12", data):
            file = _file_at(data, match.start())
            if file is not None and file.package:
                files.setdefault(file.name, file)
    assert len(files) > 50, f"only {len(files)} descriptors found in {path}"
    return _symbols(files.values())


@functools.cache
def ours():
    """(messages, enums) of the .proto files beside this one."""
    protoc = shutil.which("protoc")
    if protoc is None:
        pytest.skip("protoc is not installed")
    with tempfile.TemporaryDirectory() as directory:
        out = os.path.join(directory, "set")
        subprocess.run(
            [protoc, "-I", str(HERE.parent), f"--descriptor_set_out={out}"]
            + [f"ifrt/{p.name}" for p in sorted(HERE.glob("*.proto"))],
            check=True,
        )
        return _symbols(descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out).read_bytes()).file)


def _shape(field, message):
    """What must agree of a field."""
    oneof = ""
    if field.HasField("oneof_index") and not field.proto3_optional:
        oneof = message.oneof_decl[field.oneof_index].name
    return {
        "name": field.name,
        "type": Field.Type.Name(field.type),
        "label": Field.Label.Name(field.label),
        "type_name": field.type_name,
        "optional": field.proto3_optional,
        "oneof": oneof,
    }


def message_differences(name, jaxlib):
    """One text per field of our message `name` that is not the same in `jaxlib`."""
    their_messages, _ = theirs(jaxlib)
    if name not in their_messages:
        return ["the message is not in jaxlib"]
    mine = {f.number: _shape(f, ours()[0][name]) for f in ours()[0][name].field}
    them = {f.number: _shape(f, their_messages[name]) for f in their_messages[name].field}
    differences = []
    for number in sorted(mine.keys() | them.keys()):
        if number not in mine:
            if them[number]["name"] not in LEFT_OUT.get(name, ()):
                differences.append(f"{them[number]['name']} = {number} is missing")
        elif number not in them:
            differences.append(f"{mine[number]['name']} = {number} is not in jaxlib")
        else:
            differences += [
                f"{mine[number]['name']} = {number}: {key} is {mine[number][key]!r}, in jaxlib {them[number][key]!r}"
                for key in mine[number]
                if mine[number][key] != them[number][key]
            ]
    return differences


def enum_differences(name, jaxlib):
    """One text per value of our enum `name` that is not the same in `jaxlib`."""
    their_enums = theirs(jaxlib)[1]
    if name not in their_enums:
        return ["the enum is not in jaxlib"]
    them = {v.name: v.number for v in their_enums[name].value}
    differences = []
    for value in ours()[1][name].value:
        if value.name not in them:
            differences.append(f"{value.name} = {value.number} is not in jaxlib")
        elif them[value.name] != value.number:
            differences.append(f"{value.name} = {value.number}, in jaxlib {them[value.name]}")
    return differences


def known_differences(version):
    """The lines of tests/versions/differences-VERSION.txt."""
    path = HERE.parents[1] / "tests" / "versions" / f"differences-{version}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return {line for line in lines if line and not line.startswith("#")}


def differences(jaxlib):
    """All of them, one line each, sorted."""
    lines = [f"{name}: {text}" for name in ours()[0] for text in message_differences(name, jaxlib)]
    lines += [f"{name}: {text}" for name in ours()[1] for text in enum_differences(name, jaxlib)]
    return sorted(lines)
