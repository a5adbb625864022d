# SPDX-License-Identifier: Apache-2.0
"""A network between a client and a port of this machine: what comes goes on ONE_WAY later.

Run with the port, it prints its own, and ends with its standard input. A network takes no processor, so this
process goes before all others where it may.
"""

import contextlib
import os
import queue
import socket
import sys
import threading
import time

ONE_WAY = 0.010  # seconds


def read(source, on_its_way):
    data = True
    while data:
        try:
            data = source.recv(1 << 18)
        except OSError:
            data = b""
        on_its_way.put((time.monotonic() + ONE_WAY, data))


def write(on_its_way, sink):
    with contextlib.suppress(OSError):
        while True:
            due, data = on_its_way.get()
            time.sleep(max(0, due - time.monotonic()))
            if not data:
                return sink.shutdown(socket.SHUT_WR)
            sink.sendall(data)


def main(port):
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    while True:
        here, _ = listening.accept()
        there = socket.create_connection(("127.0.0.1", port))
        for end in (here, there):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, sink in ((here, there), (there, here)):
            on_its_way = queue.SimpleQueue()
            for work, order in ((read, (source, on_its_way)), (write, (on_its_way, sink))):
                threading.Thread(target=work, args=order, daemon=True).start()


if __name__ == "__main__":
    main(int(sys.argv[1]))
