# SPDX-License-Identifier: Apache-2.0
"""An all-reduce of one float between processes on this machine, over loopback TCP.

Stands in where actor systems have no CPU collective of their own (Ray's and Monarch's need
PyTorch): member 0 receives a float from each other member, adds, and sends the sum back.
"""

import socket
import struct

_FLOAT = struct.Struct("<d")


class HubSum:
    """One member. Making it blocks until all have joined; `sum` blocks until all have called it."""

    def __init__(self, rank, count, port=0):
        """Member 0 listens at a `port` of its own choice; the others are told that port."""
        self.rank, self.count = rank, count
        self._peers = []
        if rank == 0:
            self._server = socket.create_server(("127.0.0.1", 0))
            self.port = self._server.getsockname()[1]
        else:
            peer = socket.create_connection(("127.0.0.1", port))
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers.append(peer)

    def accept(self):
        """On member 0, waits for the others; elsewhere it does nothing."""
        while self.rank == 0 and len(self._peers) < self.count - 1:
            peer, _ = self._server.accept()
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers.append(peer)

    def sum(self, value):
        if self.rank != 0:
            self._peers[0].sendall(_FLOAT.pack(value))
            return self._receive(self._peers[0])
        for peer in self._peers:
            value += self._receive(peer)
        packed = _FLOAT.pack(value)
        for peer in self._peers:
            peer.sendall(packed)
        return value

    @staticmethod
    def _receive(peer):
        data = peer.recv(_FLOAT.size, socket.MSG_WAITALL)
        if len(data) < _FLOAT.size:
            raise ConnectionError("another member of the sum has ended")
        return _FLOAT.unpack(data)[0]
