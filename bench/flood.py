# SPDX-License-Identifier: Apache-2.0
"""Handshakes that somebody begins and does not end: MANY are held, also those that the server has closed.

Run with MANY and ports. Orders at the standard input: "hold" begins MANY and prints a line when that is done; "flood"
begins MANY in each 5 s, which is what a handshake may take, and drops the oldest; "end" drops all, and prints how many
a second were begun since the order before. They come from three addresses. It goes behind other processes, as if it
had a host of its own.
"""

import collections
import os
import resource
import select
import socket
import sys
import time

HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(20)  # the beginning of one of TLS
PATIENCE = 5  # seconds


def begin(port, number):
    peer = socket.socket()
    try:
        peer.bind((f"127.0.0.{2 + number % 3}", 0))
        peer.setblocking(False)
        peer.connect_ex(("127.0.0.1", port))
        peer.send(HELLO)
    except OSError:
        pass
    return peer


class Held:
    def __init__(self, many, ports):
        self._many, self._ports, self._all, self._count = many, ports, collections.deque(), 0
        self._began = time.monotonic()

    def more(self, count):
        for _ in range(count):
            if len(self._all) >= self._many:
                self._all.popleft().close()
            self._all.append(begin(self._ports[self._count % len(self._ports)], self._count))
            self._count += 1

    def due(self):
        """How many more a flood has begun by now, at most a hundredth of all."""
        due = int(self._many * (time.monotonic() - self._began) / PATIENCE)
        return min(due - self._count, self._many // 100)

    def end(self):
        while self._all:
            self._all.popleft().close()
        return self._count / (time.monotonic() - self._began)


def main(many, ports):
    os.nice(19)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    held, order = None, ""
    while True:
        if select.select([0], [], [], 0.01 if order == "flood" else None)[0]:
            order = sys.stdin.readline().strip()
            if order == "end":
                print(held.end(), flush=True)
            elif order:
                held = Held(many, ports)
            else:
                return
            if order == "hold":
                held.more(many)
                print("held", flush=True)
        if order == "flood":
            held.more(held.due())


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(port) for port in sys.argv[2:]])
