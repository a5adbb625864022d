# SPDX-License-Identifier: Apache-2.0
"""The cost of TLS, a token and the gateway for JAX: the same client on a cluster without certificates and
on one with them, in turns. One island of one CPU device each.

CPU is that of the client, its gateway, the controller, the worker and the executor together. Far away, the
client of the cluster with certificates has a proxy that holds each byte for 10 ms in either direction
(far.py; client to gateway is not delayed), which is a round trip of 20 ms.
"""

import contextlib
import pathlib
import subprocess
import sys
import tempfile

from measure import bar, paired, row
from processes import Client, cpu_seconds

HERE = pathlib.Path(__file__).resolve().parent
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


class Far:
    """The network to a port (far.py)."""

    def __init__(self, port):
        self._process = subprocess.Popen([sys.executable, str(HERE / "far.py"), str(port)], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)
        self.port = int(self._process.stdout.readline())

    def close(self):
        self._process.kill()
        self._process.wait()


class Island:
    """A cluster with certificates, of one island of one CPU device."""

    def __init__(self, folder, plugin):
        from test_tls import Secured, make, tls_of

        self._certificates = folder / "cluster"
        make(self._certificates, "w0")
        self.secured = Secured(self._certificates, folder)
        self.port = self.secured.port
        try:
            self.secured.start("w0", "fairway-worker", "--name=w0", "--devices=1", f"--plugin={plugin}",
                               f"--controller=127.0.0.1:{self.secured.link}", *tls_of(self._certificates, "w0"))
            self.secured.controller.wait("islands up: 1")
        except BaseException:
            self.close()
            raise

    def environment(self, port):
        """Of a JAX client that reaches the controller by this port."""
        from cluster import BIN, clean_environment

        return clean_environment(
            JAX_PLATFORMS="fairway,cpu", FAIRWAY_CONTROLLER=f"127.0.0.1:{port}", PATH=f"{BIN}:/usr/bin:/bin",
            FAIRWAY_TLS_CA=str(self._certificates / "ca.pem"), FAIRWAY_TOKEN_FILE=str(self._certificates / "user.token"))

    def daemons(self):
        started = [daemon.process.pid for daemon in self.secured.daemons]
        children = [int(pid) for parent in started
                    for pid in pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
        return started + children

    def close(self):
        for daemon in reversed(self.secured.daemons):
            daemon.stop()


def run(quick):
    sys.path[:0] = [str(HERE.parent / "tests" / "e2e"), str(HERE.parent / "tests" / "integration")]
    from cluster import Cluster

    rounds, steps, fetches = (2, 20, 3) if quick else (15, 2000, 50)
    with tempfile.TemporaryDirectory() as folder, Cluster(islands=1, devices=1) as plain, contextlib.ExitStack() as running:
        island = running.enter_context(contextlib.closing(
            Island(pathlib.Path(folder), plain.executors()[0].flag("plugin"))))
        far = running.enter_context(contextlib.closing(Far(island.port)))

        def start(environment, servers=()):
            return running.enter_context(contextlib.closing(
                Client([sys.executable, "-c", CLIENT, steps, fetches], environment, servers)))

        clients = {"plain": start(plain.jax_environment(), lambda: [p.pid for p in plain.processes()]),
                   "tls": start(island.environment(island.port), island.daemons),
                   "far": start(island.environment(far.port))}
        found = measure(clients, rounds)
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
