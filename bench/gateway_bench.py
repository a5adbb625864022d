# SPDX-License-Identifier: Apache-2.0
"""The cost of TLS, a token and the gateway for JAX: the same client on a cluster without certificates and
on one with them, in turns. One island of one CPU device each.

CPU is that of the client, its gateway, the controller, the worker and the executor together. Far away, the
client of the cluster with certificates has a proxy that holds each byte for 10 ms in either direction
(client to gateway is not delayed), which is a round trip of 20 ms.
"""

import asyncio
import pathlib
import sys
import tempfile
import threading
import time

from measure import bar, paired, row
from processes import Client, cpu_seconds

HERE = pathlib.Path(__file__).resolve().parent
ONE_WAY = 0.010  # seconds
PUT = 64 << 20  # bytes
CLIENT = """
import sys, time
import jax, numpy as np
steps, fetches = map(int, sys.argv[1:])
f = jax.jit(lambda v: v + 1)
large = np.ones((1 << 24,), np.float32)
def step(x):
    for _ in range(steps): x = f(x)
    x.block_until_ready()
    return steps
def fetch(x):
    for _ in range(fetches): x = f(x); float(x)
    return fetches
def ready(x):
    for _ in range(fetches): x = f(x).block_until_ready()
    return fetches
def put(x):
    jax.device_put(large).block_until_ready()
    return 1
styles = {s.__name__: s for s in (step, fetch, ready, put)}
x = f(jax.device_put(np.float32(0)))
float(x)
print("ready", ",".join(styles), flush=True)
for line in sys.stdin:
    began = time.perf_counter()
    done = styles[line.strip()](x)
    print(done, time.perf_counter() - began, flush=True)
"""


class Far:
    """A proxy on a port of its own, in a thread: what comes goes on ONE_WAY later."""

    def __init__(self, port):
        self._port, self._loop, ready = port, asyncio.new_event_loop(), threading.Event()

        async def serve():
            server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            ready.set()

        def run():
            self._loop.create_task(serve())
            self._loop.run_forever()

        threading.Thread(target=run, daemon=True).start()
        ready.wait()

    async def _connected(self, reader, writer):
        there = await asyncio.open_connection("127.0.0.1", self._port)
        for source, sink in ((reader, there[1]), (there[0], writer)):
            queue = asyncio.Queue()
            self._loop.create_task(self._read(source, queue))
            self._loop.create_task(self._write(queue, sink))

    async def _read(self, source, queue):
        while True:
            data = await source.read(1 << 18)
            await queue.put((time.monotonic() + ONE_WAY, data))
            if not data:
                return

    async def _write(self, queue, sink):
        while True:
            due, data = await queue.get()
            await asyncio.sleep(due - time.monotonic())
            if not data:
                return sink.close()
            sink.write(data)


def measure(clients, rounds):
    """{style: {where: [(seconds a step, CPU seconds a step)]}}; the first round is not counted."""
    found = {}
    for turn in range(rounds + 1):
        for style, wheres in (("step", ("plain", "tls")), ("put", ("plain", "tls")), ("fetch", ("plain", "tls", "far")),
                              ("ready", ("far",))):
            for where in wheres if turn % 2 else reversed(wheres):
                client = clients[where]
                pids = client.pids()
                before = cpu_seconds(pids)
                steps, seconds = client.measure(style)
                sample = seconds / steps, (cpu_seconds(pids) - before) / steps
                if turn:
                    found.setdefault(style, {}).setdefault(where, []).append(sample)
    return found


def run(quick):
    sys.path[:0] = [str(HERE.parent / "tests" / "e2e"), str(HERE.parent / "tests" / "integration")]
    from cluster import BIN, Cluster, clean_environment
    from test_tls import Secured, make, tls_of

    rounds, steps, fetches = (2, 20, 3) if quick else (15, 2000, 50)
    clients = {}
    with tempfile.TemporaryDirectory() as folder, Cluster(islands=1, devices=1) as plain:
        folder = pathlib.Path(folder)
        certificates = folder / "cluster"
        make(certificates, "w0")
        secured = Secured(certificates, folder)
        try:
            secured.start("w0", "fairway-worker", "--name=w0", "--devices=1", f"--controller=127.0.0.1:{secured.link}",
                          f"--plugin={plain.executors()[0].flag('plugin')}", *tls_of(certificates, "w0"))
            secured.controller.wait("islands up: 1")

            def by_tls(port):
                return clean_environment(
                    JAX_PLATFORMS="fairway,cpu", FAIRWAY_CONTROLLER=f"127.0.0.1:{port}", PATH=f"{BIN}:/usr/bin:/bin",
                    FAIRWAY_TLS_CA=str(certificates / "ca.pem"), FAIRWAY_TOKEN_FILE=str(certificates / "user.token"))

            def daemons():
                started = [daemon.process.pid for daemon in secured.daemons]
                children = [int(pid) for parent in started
                            for pid in pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
                return started + children

            def start(environment, servers=()):
                return Client([sys.executable, "-c", CLIENT, steps, fetches], environment, servers)

            clients["plain"] = start(plain.jax_environment(), lambda: [p.pid for p in plain.processes()])
            clients["tls"] = start(by_tls(secured.port), daemons)
            clients["far"] = start(by_tls(Far(secured.port).port))
            found = measure(clients, rounds)
        finally:
            for client in clients.values():
                client.close()
            for daemon in reversed(secured.daemons):
                daemon.stop()
    return results(found)


def results(found):
    names = {"plain": "plain text", "tls": "gateway and TLS", "far": "the same, 20 ms away"}

    def column(style, where, which):
        return [sample[which] for sample in found[style][where]]

    def values(style, where, scale):
        return [value * scale for value in column(style, where, 0)]

    def against(style, which, compare):
        return paired(column(style, "tls", which), column(style, "plain", which), compare)

    # On cores that are all busy, more CPU a step permits fewer steps: the rate, of what it permits.
    def of_permitted(style):
        rate, permitted = ([plain / tls for plain, tls in zip(column(style, "plain", which), column(style, "tls", which),
                                                              strict=True)] for which in (0, 1))
        return paired(rate, permitted, lambda this, that: this / min(that, 1))

    rows = []
    for where in ("plain", "tls"):
        rows += [row(f"asynchronous step, {names[where]}", values("step", where, 1e6), "us"),
                 row(f"its CPU, {names[where]}", [value * 1e6 for value in column("step", where, 1)], "us"),
                 row(f"put of 64 MiB, {names[where]}", [PUT / 1e9 / value for value in column("put", where, 0)], "GB/s"),
                 row(f"CPU of a put, {names[where]}", [value * 1e3 for value in column("put", where, 1)], "ms"),
                 row(f"step fetched, {names[where]}", values("fetch", where, 1e3), "ms")]
    rows += [row(f"step fetched, {names['far']}", values("fetch", "far", 1e3), "ms"),
             row(f"step waited for, {names['far']}", values("ready", "far", 1e3), "ms")]
    far = rows[-2]["value"], rows[-2]["spread"]
    return rows, [
        bar("CPU added to an asynchronous step, us", against("step", 1, lambda this, that: (this - that) * 1e6), at_most=60),
        bar("rate of asynchronous steps, of what that CPU permits", of_permitted("step"), at_least=0.95),
        bar("bandwidth of a put, of plain text's", against("put", 0, lambda this, that: that / this), at_least=0.8),
        bar("bandwidth of a put, of what its CPU permits", of_permitted("put"), at_least=0.95),
        bar("step fetched, 20 ms away, ms", far, at_most=25),
    ]
