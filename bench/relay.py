# SPDX-License-Identifier: Apache-2.0
"""A TCP relay in front of a front door. It counts the traffic of a JAX client: messages of gRPC by
their kind, and bytes of the connection.

It reads HTTP/2 frames and gRPC's length prefixes, and of each message the number of the field that is
set (proto/ifrt/messages.proto); it changes nothing. It costs time, so clients behind it are counted,
not timed.
"""

import collections
import pathlib
import re
import socket
import threading

ROOT = pathlib.Path(__file__).resolve().parents[1]
PREFACE = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
DATA, PADDED, END_STREAM = 0, 8, 1
OTHER = "other"  # traffic outside a session's stream: the bytes of uploads and fetches


def kinds_of_requests():
    """{number of the field: name} of IfrtRequest; IfrtResponse has the same."""
    text = (ROOT / "proto" / "ifrt" / "messages.proto").read_text(encoding="utf-8")
    return {int(number): name
            for name, number in re.findall(r"^\s+\w+Request (\w+)_request = (\d+);", text, re.M)}


def kind_of(message, kinds):
    """The kind of an IfrtRequest or IfrtResponse."""
    numbers = [number for number, _ in fields(message) if number > 1]  # 1 is the metadata
    return kinds.get(numbers[0], "unknown") if numbers else "error"


def opens_session(message):
    """Whether it is a session's first request, for the devices: its field 2 is set and empty."""
    return (2, b"") in fields(message)


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(message):
    """[(number, bytes)] of the outermost fields; [] for bytes that are no message."""
    found, at = [], 0
    try:
        while at < len(message):
            tag, at = varint(message, at)
            begin = at
            if tag & 7 == 0:
                _, at = varint(message, at)
            elif tag & 7 == 2:
                length, begin = varint(message, at)
                at = begin + length
            elif tag & 7 in (1, 5):
                at += 8 if tag & 7 == 1 else 4
            else:
                return []
            found.append((tag >> 3, message[begin:at]))
    except IndexError:
        return []
    return found if at == len(message) else []


class Connection:
    """The traffic of one TCP connection; each of its two directions has a reader."""

    def __init__(self):
        self.sessions = set()  # numbers of the streams that are an IfrtSession
        self.seen = set()  # numbers of the streams whose first message has come


class Reader:
    """Counts one direction of a connection; it is fed with the bytes as they come."""

    def __init__(self, connection, from_client, count):
        """`count(kind)` is called for each message."""
        self._connection, self._from_client, self._count = connection, from_client, count
        self._skip = PREFACE if from_client else 0
        self._buffer = bytearray()
        self._streams = collections.defaultdict(bytearray)
        self._kinds = kinds_of_requests()

    def feed(self, data):
        self._buffer += data
        if self._skip:
            if len(self._buffer) < self._skip:
                return
            del self._buffer[:self._skip]
            self._skip = 0
        while len(self._buffer) >= 9:
            length = int.from_bytes(self._buffer[:3], "big")
            if len(self._buffer) < 9 + length:
                return
            kind, flags = self._buffer[3], self._buffer[4]
            stream = int.from_bytes(self._buffer[5:9], "big") & 0x7FFFFFFF
            payload = bytes(self._buffer[9:9 + length])
            del self._buffer[:9 + length]
            if kind == DATA:
                self._of_stream(stream, payload[1:-payload[0] or None] if flags & PADDED else payload)
            if flags & END_STREAM and kind <= 1:
                self._streams.pop(stream, None)

    def _of_stream(self, stream, payload):
        data = self._streams[stream]
        data += payload
        while len(data) >= 5 and len(data) >= (end := 5 + int.from_bytes(data[1:5], "big")):
            self._message(stream, bytes(data[5:end]))
            del data[:end]

    def _message(self, stream, message):
        connection = self._connection
        if self._from_client and stream not in connection.seen:
            connection.seen.add(stream)
            if opens_session(message):
                connection.sessions.add(stream)
        self._count(kind_of(message, self._kinds) if stream in connection.sessions else OTHER)


class Relay:
    """Listens on a loopback port, `port`, and connects each client to `target`."""

    def __init__(self, target):
        self._target = target
        self._lock = threading.Lock()
        self._bytes = collections.Counter()
        self._messages = {True: collections.Counter(), False: collections.Counter()}
        self._sockets = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def counts(self):
        """{"messages to": n, "bytes to": n, "messages from": n, "bytes from": n}, seen from the
        client; and the requests by kind."""
        with self._lock:
            return {
                "messages to": sum(self._messages[True].values()), "bytes to": self._bytes[True],
                "messages from": sum(self._messages[False].values()),
                "bytes from": self._bytes[False],
            }, collections.Counter(self._messages[True])

    def close(self):
        self._server.close()
        for each in self._sockets:
            each.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:  # the connection is closed
                return
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            connection = Connection()
            for source, sink, from_client in ((client, server, True), (server, client, False)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._copy, args=(connection, source, sink, from_client),
                                 daemon=True).start()

    def _copy(self, connection, source, sink, from_client):
        def count(kind):
            self._messages[from_client][kind] += 1

        reader = Reader(connection, from_client, count)
        try:
            while data := source.recv(1 << 16):
                with self._lock:
                    self._bytes[from_client] += len(data)
                    reader.feed(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:  # one side is gone
            source.close()
            sink.close()
