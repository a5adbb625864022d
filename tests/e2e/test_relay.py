# SPDX-License-Identifier: Apache-2.0
"""The relay of `./dev bench eager` counts messages however their bytes come, and forwards all."""

import collections
import socket
import sys

import pytest

from cluster import ROOT, wait_for

sys.path.insert(0, str(ROOT / "bench"))
from relay import OTHER, PREFACE, Connection, Reader, Relay, kinds_of_requests  # noqa: E402

HEADERS, WINDOW_UPDATE = 1, 8
INIT = b"\x0a\x01\x00" + b"\x12\x00"  # the metadata, and the request for devices
EXECUTE = b"\x0a\x01\x00" + b"\x7a\x02\x08\x01"  # field 15
COPY = b"\x0a\x01\x00" + b"\xc2\x01\x00"  # field 24, a tag of two bytes


def frame(kind, stream, payload=b"", flags=0):
    return (len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload)


def message(payload):
    return b"\0" + len(payload).to_bytes(4, "big") + payload


def client_bytes():
    session = message(INIT) + message(EXECUTE) + message(COPY)
    return (b"-" * PREFACE
            + frame(HEADERS, 1, b"headers")
            + frame(0, 1, session[:7])
            + frame(WINDOW_UPDATE, 0, b"\0\0\1\0")
            + frame(0, 1, b"\3" + session[7:] + b"\0\0\0", flags=8)  # padded
            + frame(HEADERS, 3, b"headers")
            + frame(0, 3, message(b"\x0a\x02xy"), flags=1))


def counted(pieces):
    found = collections.Counter()
    reader = Reader(Connection(), True, lambda kind: found.update([kind]))
    for piece in pieces:
        reader.feed(piece)
    return found


EXPECTED = {"init": 1, "loaded_executable_execute": 1, "copy_arrays": 1, OTHER: 1}


def test_messages_are_counted_by_kind_wherever_the_bytes_are_cut():
    data = client_bytes()
    assert counted([data]) == EXPECTED
    assert counted([data[i:i + 1] for i in range(len(data))]) == EXPECTED
    for cut in range(len(data)):
        assert counted([data[:cut], data[cut:]]) == EXPECTED


@pytest.mark.parametrize("bytes_of_an_array", [b"", b"\x0a\xff\xff\xff\xff\x0f", b"\x80" * 20, b"\x13\x14"])
def test_bytes_that_are_no_message_of_a_session_are_one_other_message(bytes_of_an_array):
    data = b"-" * PREFACE + frame(0, 5, message(bytes_of_an_array))
    assert counted([data]) == {OTHER: 1}


def test_the_kinds_are_those_of_the_protocol():
    kinds = kinds_of_requests()
    assert kinds[2] == "init" and kinds[15] == "loaded_executable_execute"
    assert kinds[24] == "copy_arrays" and len(kinds) >= 30


def test_a_relay_passes_on_both_ways_what_it_counts():
    with socket.create_server(("127.0.0.1", 0)) as server:
        relay = Relay(server.getsockname())
        try:
            with socket.create_connection(("127.0.0.1", relay.port)) as client:
                far, _ = server.accept()
                data = client_bytes()
                client.sendall(data)
                with far:
                    assert far.recv(len(data), socket.MSG_WAITALL) == data
                    answer = frame(0, 1, message(INIT))
                    far.sendall(answer)
                    assert client.recv(len(answer), socket.MSG_WAITALL) == answer
                wait_for(lambda: client.recv(1) == b"", "the end of the connection")
            ways, kinds = relay.counts()
            assert ways == {"messages to": 4, "bytes to": len(data), "messages from": 1,
                            "bytes from": len(answer)}
            assert kinds == EXPECTED
        finally:
            relay.close()
