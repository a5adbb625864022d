# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy before a controller's link port that can break connections."""

import fcntl
import socket
import struct
import termios
import threading

# The first byte behind the header of the first frame: the field of ToController (link.proto).
HEADER = 32
KINDS = {0x0A: "executor", 0x52: "executor", 0x22: "supervisor", 0x4A: "pulse"}


def unread(sock):
    """The bytes that have come and were not read."""
    return struct.unpack("i", fcntl.ioctl(sock, termios.FIONREAD, bytes(4)))[0]


class Connection:
    """Passes bytes on in both directions until it is cut or one end closes."""

    def __init__(self, near, far):
        self.sockets = (near, far)
        self.kind = "new"
        self.begin = b""  # what the near end has said, until its kind is known
        self.open = True
        self.held = threading.Event()
        self.passing = threading.Lock()  # held while bytes are taken and passed on

    def start(self):
        near, far = self.sockets
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source, target):
        try:
            while True:
                source.recv(1, socket.MSG_PEEK)
                with self.passing:
                    if self.held.is_set():
                        return  # what is unread is lost
                    data = source.recv(1 << 16, socket.MSG_DONTWAIT)
                    if self.kind == "new" and source is self.sockets[0]:
                        self.begin += data
                        if len(self.begin) > HEADER:
                            self.kind = KINDS.get(self.begin[HEADER], "unknown")
                    if not data:
                        break
                    target.sendall(data)
        except OSError:
            pass
        self.close()

    def hold(self):
        """From now on nothing passes."""
        with self.passing:
            self.held.set()

    def close(self):
        self.open = False
        for sock in self.sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class LinkProxy:
    """Listens on `port` of the loopback device for connections to `target`, a port there."""

    def __init__(self, target):
        self.target = target
        self.connections = []
        self.refuses = False
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.server.accept()
                if self.refuses:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            for sock in (near, far):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections.append(Connection(near, far))  # nothing passes before it can be found
            self.connections[-1].start()

    def of(self, kind):
        return [c for c in self.connections if c.open and c.kind == kind]

    def close(self):
        self.server.close()
        for connection in self.connections:
            connection.close()
