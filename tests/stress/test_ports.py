# SPDX-License-Identifier: Apache-2.0
"""Bytes that no client or worker of ours would send, on every port of a controller and an executor.

These must hold: no process dies (the fixture checks it), others are served meanwhile, memory stays
bounded, and a peer that can be answered is told the reason.
"""

import contextlib
import random
import re
import socket
import struct
import zlib

import grpc
import numpy as np
import pytest

from accounting import anonymous_memory
from cluster import wait_for
from conftest import program
from ports import listening
from raw_client import SERVICE, Refused, Session, message
from test_sessions import MIB, Neighbour, controller, ones

MAGIC = 0x59575246


def crc32c(data):
    """CRC-32C, bit by bit: for small payloads."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def frame(payload=b"", *, magic=MAGIC, version=1, kind=1, flags=0, number=1, offset=0, length=None,
          crc=None):
    """One frame of transport/frame.h, correct by default."""
    return struct.pack(
        "<IBBHQQII", magic, version, kind, flags, number, offset,
        len(payload) if length is None else length, crc32c(payload) if crc is None else crc,
    ) + payload


def ports(cluster):
    """{what: port} of everything that listens."""
    flags = {
        name: int(controller(cluster).flag(name))
        for name in ("port", "http-port", "link-port", "data-port")
    }
    # The log has the ports that were given as 0.
    line = re.findall(r"listening on .*?clients (\d+), HTTP (\d+), workers (\d+), data (\d+)",
                      cluster.logs())[-1]
    found = dict(zip(flags, map(int, line)))
    for executor in cluster.executors():
        found[f"data of executor {executor.pid}"] = listening(executor.pid)[0]
    return found


def say(port, data):
    """Sends bytes, ends its side, and returns all that comes back until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as peer:
        # It may have answered and closed before all is sent.
        with contextlib.suppress(OSError):
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
        received = b""
        try:
            while part := peer.recv(65536):
                received += part
        except ConnectionResetError:
            pass
        return received


HOSTILE = {
    "zeros": bytes(4096),
    "ones": b"\xff" * 4096,
    "text": b"hello, is there anybody?\r\n\r\n" * 50,
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\xff\xff\xff\x04" * 40,
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "another magic": frame(b"x", magic=0x12345678),
    "another version": frame(b"x", version=9),
    "too long": frame(length=2**32 - 1),
    "half a header": frame()[:17],
    "half a payload": frame(b"abcdef", length=6)[:-3],
    "wrong checksum": frame(b"abc", crc=1),
    "unknown type": frame(b"abc", kind=250),
    "no protobuf": frame(b"\xff" * 100),
    "empty message": frame(b""),
    "deep protobuf": frame(b"\x0a\x7f" * 64),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_on_every_port(cluster, name):
    with Neighbour(cluster) as neighbour:
        for what, port in ports(cluster).items():
            answer = say(port, HOSTILE[name])
            print(what, len(answer), answer[:60])
        neighbour.goes_on()


def test_random_bytes_on_every_port(cluster):
    random_bytes = random.Random(7)
    with Neighbour(cluster) as neighbour:
        for port in ports(cluster).values():
            for _ in range(50):
                data = random_bytes.randbytes(random_bytes.randrange(1, 2000))
                say(port, data if random_bytes.random() < 0.5 else frame(data))
        neighbour.goes_on()


def test_a_frame_that_claims_a_gibibyte_costs_what_it_sends(cluster):
    found = ports(cluster)
    pid = controller(cluster).pid
    before = anonymous_memory(pid)
    open_ones = []
    try:
        with Neighbour(cluster) as neighbour:
            for port in (found["link-port"], found["data-port"]):
                for _ in range(20):
                    peer = socket.create_connection(("127.0.0.1", port), timeout=120)
                    open_ones.append(peer)
                    with contextlib.suppress(OSError):  # it may have closed before all is sent
                        peer.sendall(frame(length=2**30 - 1, crc=0) + bytes(100000))
            neighbour.goes_on()
            grown = anonymous_memory(pid) - before
            print(f"{grown / MIB:.0f} MiB more for 40 such frames")
            assert grown < 100 * MIB
    finally:
        for peer in open_ones:
            peer.close()


def test_idle_connections_do_not_keep_others_out(cluster):
    found = ports(cluster)
    idle = []
    try:
        with Neighbour(cluster) as neighbour:
            for port in found.values():
                for _ in range(100):
                    idle.append(socket.create_connection(("127.0.0.1", port), timeout=120))
            neighbour.goes_on()
            assert cluster.get("/healthz") == "ok\n"
            assert cluster.status()["islands"]
    finally:
        for peer in idle:
            peer.close()


def test_pulls_of_what_is_not_there_are_refused(cluster):
    for what, port in ports(cluster).items():
        if "data" not in what:
            continue
        requests = b"".join(
            # transfer, index, zero, incarnation, bytes, the puller's incarnation (data_client.cc)
            frame(struct.pack("<QiIQqQ", transfer, index, 0, incarnation, size, 1), number=number)
            for number, (transfer, index, incarnation, size) in enumerate([
                (1, 0, 0, 4), (2**64 - 1, -1, 2**64 - 1, 2**62), (5, 2**31 - 1, 7, 0),
                (1, 0, 1, -1),
            ])
        )
        with socket.create_connection(("127.0.0.1", port), timeout=120) as peer:
            peer.sendall(requests)
            answers = 0
            data = b""
            while answers < 4:
                part = peer.recv(65536)
                assert part, "the connection was ended"
                data += part
                while len(data) >= 32 and len(data) >= 32 + struct.unpack_from("<I", data, 24)[0]:
                    length = struct.unpack_from("<I", data, 24)[0]
                    assert data[5] == 3, "an error"
                    print(what, data[36 : 32 + length].decode())
                    data = data[32 + length :]
                    answers += 1


def test_http_refuses_what_is_too_large_or_no_request(cluster):
    port = ports(cluster)["http-port"]
    assert b" 405 " in say(port, b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")[:40]
    large = b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 10000 + b"\r\n"
    assert b" 413 " in say(port, large)[:40]
    body = b"GET / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" + bytes(1000)
    assert b" 413 " in say(port, body)[:40]
    assert b" 404 " in say(port, b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n")[:40]


def test_requests_that_are_no_messages_end_their_own_session_only(cluster):
    with Neighbour(cluster) as neighbour:
        for data in (b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x0f", b"\x12" * 50):
            session = Session(cluster.address)
            session.send_bytes(data)
            wait_for(lambda: session.error is not None, "the end of the stream")
            assert session.error.code() == grpc.StatusCode.CANCELLED, session.error
            assert "no valid IfrtRequest" in session.error.details()
            session.close()
        # Messages that parse, but are empty or of an unknown kind: an error; the session goes on.
        with Session(cluster.address) as session:
            empty = message("IfrtRequest")()
            empty.request_metadata.op_id = 1000
            session.send_bytes(empty.SerializeToString())
            with pytest.raises(Refused) as caught:
                session.answer(1000)
            assert caught.value.code == 12, caught.value
            empty.request_metadata.op_id = 1001
            # Field 200, a message.
            session.send_bytes(empty.SerializeToString() + b"\xc2\x0c\x00")
            with pytest.raises(Refused):
                session.answer(1001)
            session.put(1, ones)
            assert session.get(1, 2) == ones.tobytes()
        neighbour.goes_on()


def test_every_request_kind_survives_empty_and_random_fields(cluster):
    kinds = [f.name for f in message("IfrtRequest").DESCRIPTOR.fields if f.name != "request_metadata"]
    chaos = random.Random(11)
    with Neighbour(cluster) as neighbour, Session(cluster.address) as session:
        session.put(1, ones)
        add = session.compile(program("add"))
        numbers = [0, 1, 2, add, 77, 2**60, 2**63, 2**64 - 1]
        sent = []
        for kind in kinds:
            if kind == "init_request":
                continue
            for _ in range(12):
                request = session.make(kind)
                scramble(getattr(request, kind), chaos, numbers)
                session.send_bytes(request.SerializeToString())
                sent.append(request.request_metadata.op_id)
        with contextlib.suppress(Refused):  # so that all of them have been read
            session.call("is_array_deleted_request", array_handle=1)
        answered = 0
        for op_id in sent:
            try:
                session.answer(op_id, 5)
                answered += 1
            except Refused:
                answered += 1
            except AssertionError:
                pass  # it waits for a future or a buffer that never comes
        print(f"{answered} of {len(sent)} answered")
        assert answered > 0.9 * len(sent)
        neighbour.goes_on()


def scramble(body, chaos, numbers, depth=0):
    """Fills the fields of a message with values of any meaning."""
    for field in body.DESCRIPTOR.fields:
        if chaos.random() < 0.25 or (field.message_type and depth > 4):
            continue
        for _ in range(chaos.randrange(4) if field.is_repeated else 1):
            set_field(body, field, chaos, numbers, depth)


def set_field(body, field, chaos, numbers, depth):
    target = getattr(body, field.name)
    if field.message_type is not None:
        if field.message_type.GetOptions().map_entry:
            return
        if field.is_repeated:
            scramble(target.add(), chaos, numbers, depth + 1)
        else:
            target.SetInParent()
            scramble(target, chaos, numbers, depth + 1)
        return
    kind = field.cpp_type
    if kind in (field.CPPTYPE_INT32, field.CPPTYPE_ENUM):
        value = chaos.choice([-1, 0, 1, 2, 3, 11, 2**31 - 1, -(2**31)])
        if kind == field.CPPTYPE_ENUM:
            value = chaos.choice([v.number for v in field.enum_type.values])
    elif kind == field.CPPTYPE_INT64:
        value = chaos.choice([-1, 0, 1, 4, 2**62, -(2**63)])
    elif kind == field.CPPTYPE_UINT32:
        value = chaos.choice([0, 1, 2**32 - 1])
    elif kind == field.CPPTYPE_UINT64:
        value = chaos.choice(numbers)
    elif kind == field.CPPTYPE_BOOL:
        value = chaos.random() < 0.5
    elif kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        value = chaos.choice([0.0, float("nan"), 1e30])
    elif field.type == field.TYPE_BYTES:
        value = chaos.choice([b"", b"\xff" * 20, chaos.randbytes(40)])
    else:
        value = chaos.choice(["", "device", "xla::ifrt::HloSharding", "xla::ifrt::XlaProgram", "é" * 30])
    if field.is_repeated:
        target.append(value)
    else:
        setattr(body, field.name, value)


def test_a_program_too_new_for_the_plugin_names_both_versions(cluster):
    artifact = program("add")
    match = re.search(rb"StableHLO_v(\d+\.\d+\.\d+)\0", artifact[:64])
    assert match, artifact[:64]
    newer = b"9" + match[1][1:]
    with Session(cluster.address) as session:
        # The version alone is no reason to refuse a program that can be read.
        session.compile(artifact.replace(match[1], newer, 1))
        # This plugin does not know the operation.
        changed = artifact.replace(match[1], newer, 1).replace(b"add_v1", b"add_v9")
        assert changed.count(b"add_v9") == 1
        with pytest.raises(Refused) as caught:
            session.compile(changed)
    text = caught.value.text
    assert newer.decode() in text, text
    assert re.search(r"reads \d+\.\d+\.\d+ to \d+\.\d+\.\d+", text), text


def test_a_session_of_an_unknown_version_is_told_what_is_served(cluster):
    with pytest.raises(grpc.RpcError) as caught:
        Session(cluster.address, version=(26, 7))
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "22 to 25" in caught.value.details()


def test_unknown_methods_and_missing_metadata_are_refused(cluster):
    with grpc.insecure_channel(cluster.address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/xla.ifrt.proxy.GrpcIfrtService/Nothing")(b"", timeout=120)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
        for method in ("IfrtSession", "HostBufferStore"):
            with pytest.raises(grpc.RpcError) as caught:
                list(channel.stream_stream(SERVICE + method)(iter([b""]), timeout=120))
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_messages_beyond_the_limit_are_refused_and_do_not_add_up(cluster):
    pid = controller(cluster).pid
    before = anonymous_memory(pid)
    with Neighbour(cluster) as neighbour:
        for _ in range(3):
            session = Session(cluster.address)
            session.send_bytes(bytes(520 * MIB))
            wait_for(lambda: session.error is not None, "the end of the stream", 240)
            assert session.error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, session.error
            session.close()
            neighbour.goes_on()
            wait_for(lambda: anonymous_memory(pid) - before < 100 * MIB, "its bytes to go")
