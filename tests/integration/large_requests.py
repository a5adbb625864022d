# SPDX-License-Identifier: Apache-2.0
"""A client of HTTP/2 that sends as much of large gRPC requests as the server takes, and keeps nothing of it."""

import select
import socket
import ssl
import struct

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW = 65535


def literal(name, value):
    """A header that is in no table of HPACK."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


class LargeRequests:
    """`taken` has how many bytes the server took of each call's request, `ended` which calls it has ended, `said` the
    headers that ended them."""

    def __init__(self, port, tls=True, host="127.0.0.1"):
        plain = socket.create_connection(("127.0.0.1", port), source_address=(host, 0))
        plain.settimeout(240)
        self.socket = plain
        if tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols(["h2"])
            self.socket = context.wrap_socket(plain)
        self.taken, self.sizes, self.ended, self.windows, self.said = {}, {}, set(), {}, {}
        self.connection_window = self.initial = INITIAL_WINDOW
        self._read = b""
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self._frame(SETTINGS, 0, 0, b""))

    def begin(self, path, size, metadata=()):
        """Begins a call whose request has `size` bytes. Nothing of it is sent yet."""
        number = 2 * len(self.sizes) + 1
        headers = [(b":method", b"POST"), (b":scheme", b"https"), (b":path", path.encode()), (b":authority", b"it"),
                   (b"content-type", b"application/grpc"), (b"te", b"trailers"), *metadata]
        self.sizes[number], self.taken[number], self.windows[number] = size, 0, self.initial
        self.socket.sendall(self._frame(HEADERS, END_HEADERS, number, b"".join(literal(*pair) for pair in headers)))
        return number

    def send(self, until=lambda: False, most=1 << 40, patience=120):
        """Sends what the server takes, until it has ended all calls, `until` is true, it takes nothing for `patience`
        seconds, or `most` bytes have gone. Ends all calls if the server ends the connection."""
        try:
            self._send(until, most, patience)
        except OSError:
            self.ended = set(self.sizes)

    def _send(self, until, most, patience):
        while not until() and len(self.ended) < len(self.sizes) and sum(self.taken.values()) < most:
            moved = False
            for number, size in self.sizes.items():
                more = min(size + 5 - self.taken[number], self.windows[number], self.connection_window, 16384)
                if number in self.ended or more <= 0:
                    continue
                prefix = b"\0" + struct.pack(">I", size) if self.taken[number] == 0 else b""
                self.socket.sendall(self._frame(DATA, 0, number, prefix + bytes(more - len(prefix))))
                self.taken[number] += more
                self.windows[number] -= more
                self.connection_window -= more
                moved = True
            if not self._receive(0 if moved else patience) and not moved:
                return

    def read(self):
        """Reads what there is, and sends nothing of a call."""
        try:
            while not self.ended and self._receive(0):
                pass
        except OSError:
            self.ended = set(self.sizes)

    def close(self):
        self.socket.close()

    def _receive(self, patience):
        """Reads what there is, or waits so long for something."""
        pending = isinstance(self.socket, ssl.SSLSocket) and self.socket.pending()
        if not pending and not select.select([self.socket], [], [], patience)[0]:
            return False
        got = self.socket.recv(1 << 16)
        if not got:
            self.ended = set(self.sizes)
            return True
        self._read += got
        while len(self._read) >= 9:
            length = int.from_bytes(self._read[:3], "big")
            if len(self._read) < 9 + length:
                break
            kind, flags, number = self._read[3], self._read[4], int.from_bytes(self._read[5:9], "big")
            payload, self._read = self._read[9:9 + length], self._read[9 + length:]
            self._take(kind, flags, number, payload)
        return True

    def _take(self, kind, flags, number, payload):
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at:at + 6])
                if name == 4:
                    self.windows = {call: window + value - self.initial for call, window in self.windows.items()}
                    self.initial = value
            self.socket.sendall(self._frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self.socket.sendall(self._frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            more = int.from_bytes(payload, "big")
            if number == 0:
                self.connection_window += more
            elif number in self.windows:
                self.windows[number] += more
        elif kind == RST_STREAM or (kind == HEADERS and flags & END_STREAM):
            self.ended.add(number)
            self.said.setdefault(number, payload)
        elif kind == GOAWAY:
            self.ended = set(self.sizes)

    @staticmethod
    def _frame(kind, flags, number, payload):
        return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + number.to_bytes(4, "big") + payload
