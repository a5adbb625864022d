# SPDX-License-Identifier: Apache-2.0
"""A JAX client of a cluster with certificates, in turns: alone; while somebody holds 10,000 handshakes that he does not
end (flood.py); and while he begins as many again in each 5 s. They are at the controller's ports for clients, HTTP,
workers and data together. The flood takes processor time on the same cores, so there is no bar for it. Processor
time is that of the client, its gateway and all daemons.
"""

import contextlib
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from gateway_bench import CLIENT, Island
from measure import bar, paired, row
from processes import Client, cpu_seconds

HERE = pathlib.Path(__file__).resolve().parent
MANY = 10_000
PATIENCE = 5.5  # seconds until the first of a flood have been given up
STATES = {"alone": "alone", "hold": "beside 10,000 half-open handshakes", "flood": "beside 2,000 more a second"}


class Flood:
    def __init__(self, many, ports):
        self._process = subprocess.Popen([sys.executable, str(HERE / "flood.py"), str(many), *map(str, ports)],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def order(self, word):
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def answer(self):
        return self._process.stdout.readline().strip()

    def close(self):
        self._process.kill()
        self._process.wait()


def measure(client, flood, rounds, repeat, patience):
    """({state: steps a second}, {state: processor time of a step, s}, handshakes begun a second in the flood). Alone
    and beside those that are held, each round has several pieces of both, in turns."""
    rates, cpu, begun = ({state: [] for state in STATES} for _ in range(3))

    def piece(state):
        """(steps, seconds, processor time)"""
        if state != "alone":
            flood.order(state)
        if state == "hold":
            flood.answer()
        if state == "flood":
            time.sleep(patience)
        pids = client.pids()
        before = cpu_seconds(pids)
        samples = [client.measure("step") for _ in range(repeat)]
        out = sum(steps for steps, _ in samples), sum(seconds for _, seconds in samples), cpu_seconds(pids) - before
        if state != "alone":
            flood.order("end")
            begun[state].append(float(flood.answer()))
        return out

    for turn in range(rounds):
        order = ("alone", "hold", "hold", "alone") if turn % 2 else ("hold", "alone", "alone", "hold")
        pieces = [(state, piece(state)) for state in (*order, "flood")]
        for state in STATES:
            steps, seconds, processors = map(sum, zip(*(found for which, found in pieces if which == state), strict=True))
            rates[state].append(steps / seconds)
            cpu[state].append(processors / steps)
    return rates, cpu, begun["flood"]


def run(quick):
    sys.path[:0] = [str(HERE.parent / "tests" / "e2e"), str(HERE.parent / "tests" / "integration")]
    from cluster import Cluster

    rounds, steps, many, repeat, patience = (2, 20, 100, 1, 0.1) if quick else (15, 2000, MANY, 5, PATIENCE)
    with Cluster(islands=1, devices=1) as plain:
        plugin = plain.executors()[0].flag("plugin")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        island = running.enter_context(contextlib.closing(Island(pathlib.Path(folder), plugin)))
        said = island.secured.controller.wait("listening on")
        ports = [int(re.search(rf"{name} (\d+)", said)[1]) for name in ("clients", "HTTP", "workers", "data")]
        flood = running.enter_context(contextlib.closing(Flood(many, ports)))
        client = running.enter_context(contextlib.closing(
            Client([sys.executable, "-c", CLIENT, steps, 1], island.environment(island.port), island.daemons)))
        client.measure("step")
        rates, cpu, begun = measure(client, flood, rounds, repeat, patience)
    rows = [row(f"asynchronous steps, {name}", rates[state], "1/s", None if state == "alone" else "asynchronous steps, alone")
            for state, name in STATES.items()]
    rows += [row(f"processor time of a step, {name}", [value * 1e6 for value in cpu[state]], "us")
             for state, name in STATES.items()]
    rows += [row("handshakes begun in the flood", begun, "1/s")]
    return rows, [
        bar("rate of a client beside 10,000 half-open handshakes, of that alone",
            paired(rates["hold"], rates["alone"], lambda this, that: this / that), at_least=0.9),
        bar("processor time of its steps, of that alone",
            paired(cpu["hold"], cpu["alone"], lambda this, that: this / that), at_most=1.1),
    ]
