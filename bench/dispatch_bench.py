# SPDX-License-Identifier: Apache-2.0
"""Gang computations a second (experiment E1 of docs/benchmarks.md), by the number of devices.

A step is an all-reduce of one scalar per device and a scaling; its result is the next one's
argument. OpByOp: a call for each. Chained: a call for a program, a chain of 128. Fused: a call for
one computation that does it 128 times. Each program of bench/dispatch tells what a step is there:

  Fairway                 the C++ SDK and the host runtime, one island of one executor
  Fairway, two executors  the same, of two, which push each other their sums; from 8 devices on
  Fairway, one each       the same, with an executor for each device; 2 to 32 devices
  Fairway, JAX front door jits, and a traced program, on one island of the pjrt runtime
  JAX                     its CPU backend in one process, which waits for the step before the last
  JAX, several processes  one for each device, gloo; 2 to 4 devices
  Ray actors, Ray graph, Ray graph of 128, Monarch   only with --peers, as they are installed for it,
                          into .venv-peers
  TCP hub                 a floor: a hub and a process for each device, blocking loopback sockets; its
                          chained steps wait for no sum
  Shared memory           the floor of chained steps that need the sum of the step before: a process
                          for each device, all on one CPU, futexes

Each is measured in turns with Fairway, the others not running; one executor each and the two floors
in the same turns, as they are compared with each other. CPU and memory (each process's most
resident memory, shared pages counted each time) are those of all processes involved.

Expected: OpByOp costs some 20 us of CPU for messages and nodes, whatever the number of devices, and
each device's share of the step in the executor; chains cost the executor alone.
"""

import contextlib
import functools
import pathlib
import shutil
import statistics
import sys
import tempfile

from measure import bar, paired, row
from processes import Client, ClientError, cpu_seconds, peak_memory

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
PROGRAMS = HERE / "dispatch"
BUILD = ROOT / "build" / "release" / "bench"
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
DEVICES = (1, 2, 4, 8, 16, 32)
TWO = "Fairway, two executors"
EACH = "Fairway, one each"
FRONT_DOOR = "Fairway, JAX front door"
PEERS = ("Ray actors", "Ray graph", "Ray graph of 128", "Monarch")
HUB, MEMORY = "TCP hub", "Shared memory"
TOGETHER = (EACH, HUB, MEMORY)
ROUNDS = 5


def options(parser):
    parser.add_argument("--peers", action="store_true",
                        help="also measure Ray and Monarch, in the environment .venv-peers")
    parser.add_argument("--devices", type=lambda text: [int(n) for n in text.split(",")],
                        metavar="N,N", help="only these numbers of devices")
    parser.add_argument("--beside", action="append", metavar="NAME",
                        help="measure only this beside Fairway; may be given several times")


# ---- Who is measured: (devices, scale, stack) -> Client ----


def _servers(cluster):
    return lambda: [p.pid for p in cluster.processes() if p.flag("role") != "supervisor"]


def _fairway(devices, scale, stack, flags=()):
    from cluster import Cluster, clean_environment

    cluster = stack.enter_context(
        Cluster(islands=1, devices=devices, flags=("--runtime=host", *flags)))
    return Client([BUILD / "dispatch_client", cluster.address, devices, scale], clean_environment(),
                  _servers(cluster))


def _fairway_each(devices, scale, stack):
    fewer = 8 if devices > 8 else 1  # steps: many processes for each core
    return _fairway(devices, scale * fewer, stack, (f"--workers-per-island={devices}",))


def _front_door(devices, scale, stack):
    from cluster import Cluster

    cluster = stack.enter_context(Cluster(islands=1, devices=devices))
    return Client([sys.executable, PROGRAMS / "jax_client.py", devices, scale],
                  {**cluster.jax_environment(), "TF_CPP_MIN_LOG_LEVEL": "2"}, _servers(cluster))


def _jax(devices, scale, stack):
    from cluster import cpu_environment

    return Client([sys.executable, PROGRAMS / "jax_client.py", devices, scale],
                  {**cpu_environment(devices), "TF_CPP_MIN_LOG_LEVEL": "2"})


def _alone(command, devices, scale, stack):
    from cluster import clean_environment

    if command[0] == PEERS_PYTHON and not PEERS_PYTHON.exists():
        raise ClientError("there is no environment .venv-peers; `./dev bench dispatch --peers` makes it")
    folder = tempfile.mkdtemp(prefix="fairway-bench-")
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return Client([*command, devices, scale], clean_environment(TMPDIR=folder, PYTHONPATH=str(PROGRAMS)))


CLIENTS = {
    TWO: (functools.partial(_fairway, flags=("--workers-per-island=2",)), range(8, 33)),
    EACH: (_fairway_each, range(2, 33)),
    FRONT_DOOR: (_front_door, range(1, 33)),
    "JAX": (_jax, range(1, 33)),
    "JAX, several processes": (
        functools.partial(_alone, [sys.executable, PROGRAMS / "jax_processes.py"]), range(2, 5)),
    "Ray actors": (functools.partial(
        _alone, [PEERS_PYTHON, PROGRAMS / "ray_client.py", "actors"]), range(1, 33)),
    "Ray graph": (functools.partial(
        _alone, [PEERS_PYTHON, PROGRAMS / "ray_client.py", "graph"]), range(1, 33)),
    "Ray graph of 128": (functools.partial(
        _alone, [PEERS_PYTHON, PROGRAMS / "ray_client.py", "chain"]), range(1, 9)),
    "Monarch": (functools.partial(
        _alone, [PEERS_PYTHON, PROGRAMS / "monarch_client.py"]), range(1, 33)),
    HUB: (functools.partial(_alone, [BUILD / "tcp_hub"]), range(1, 33)),
    MEMORY: (functools.partial(_alone, [BUILD / "shared_sum"]), range(2, 33)),
}


# ---- Measuring ----


class Samples:
    """By (who, style, devices): steps a second, CPU; by (who, devices): memory; the failures."""

    def __init__(self):
        self.rates, self.cpu, self.memory, self.left_out = {}, {}, {}, []

    def measure(self, who, client, devices, warm_up=False):
        for style in list(client.styles):
            pids = client.pids()
            before = cpu_seconds(pids)
            try:
                steps, seconds = client.measure(style)
            except ClientError as error:
                client.styles.remove(style)
                self.left_out.append((f"{style}, {devices} devices, {who}", str(error)))
                continue
            if warm_up:
                continue
            used = (cpu_seconds(pids) - before) / steps * 1e6
            self.rates.setdefault((who, style, devices), []).append(steps / seconds)
            self.cpu.setdefault((who, style, devices), []).append(used)
        if not warm_up:
            self.memory.setdefault((who, devices), []).append(peak_memory(client.pids()) / 2**20)


def measure_beside(fairway, group, devices, scale, rounds, samples):
    clients = {}
    with contextlib.ExitStack() as stack:
        for who in group:
            start, possible = CLIENTS[who]
            if devices not in possible:
                continue
            try:
                clients[who] = start(devices, scale, stack)
            except ClientError as error:
                samples.left_out.append((f"{devices} devices, {who}", str(error)))
                continue
            stack.callback(clients[who].close)
            samples.measure(who, clients[who], devices, warm_up=True)
        for _ in range(rounds if clients else 0):
            samples.measure("Fairway", fairway, devices)
            for who, client in clients.items():
                samples.measure(who, client, devices)


def table(samples):
    rows = []
    for (who, style, devices), values in samples.rates.items():
        title = f"{style}, {devices} devices, {who}"
        reference = "JAX" if who == "Fairway" else "Fairway"
        against = f"{style}, {devices} devices, {reference}"
        known = (reference, style, devices) in samples.rates
        rows.append(row(title, values, "steps/s", against if known else None))
    for (who, style, devices), values in samples.cpu.items():
        title = f"CPU of all processes: {style}, {devices} devices, {who}"
        rows.append(row(title, values, "us/step"))
        rows.append(row(f"{title}, a device's share", [v / devices for v in values], "us/step"))
    for (who, devices), values in samples.memory.items():
        rows.append(row(f"peak memory of all processes: {devices} devices, {who}",
                        [max(values)], "MiB"))
    return rows


def bars_of(samples):
    def rate(who, style, devices, beside=None):
        these = samples.rates.get((who, style, devices))
        those = samples.rates.get((beside or who, style, devices))
        if these is None or those is None or len(these) != len(those):
            return None
        return paired(these, those, (lambda a, b: a / b) if beside else (lambda a, _: a))

    bars = [bar(f"{style} steps/s, {devices} devices, {who}", rate(who, style, devices),
                at_least=least)
            for who in ("Fairway", TWO)
            for style, devices, least in (("OpByOp", 8, 5000), ("OpByOp", 16, 2500),
                                          ("OpByOp", 32, 1500), ("Chained", 8, 20000),
                                          ("Fused", 8, 50000))]
    # Times what a peer reaches; without --peers, what it reached when the bar was set.
    for style, times, peer, reached in (("OpByOp", 3, "Ray graph", 1036), ("Chained", 10, "Ray graph of 128", 681),
                                        ("Fused", 3, "Monarch", 1910)):
        if (peer, style, 8) in samples.rates:
            reached = statistics.median(samples.rates[peer, style, 8])
        bars.append(bar(f"{style} steps/s, 8 devices, {EACH} ({times} times {peer})", rate(EACH, style, 8),
                        at_least=round(times * reached)))
    for style, least, floor in (("OpByOp", 0.7, HUB), ("Chained", 0.3, HUB)):
        bars.append(bar(f"{style}, 8 devices, {EACH}: times the rate of {floor}",
                        rate(EACH, style, 8, floor), at_least=least))
    for style, most in (("OpByOp", 30), ("Chained", 5)):
        used = samples.cpu.get(("Fairway", style, 8))
        measured = None if used is None else paired(used, used, lambda a, _: a / 8)
        bars.append(bar(f"{style}: CPU for a device's share of a step, us, 8 devices", measured,
                        at_most=most))
    return bars


def run(quick, peers=False, devices=None, beside=None):
    sys.path.insert(0, str(ROOT / "tests" / "e2e"))
    unknown = set(beside or ()) - set(CLIENTS)
    if unknown:
        sys.exit(f"there is no {sorted(unknown)} to measure; there are: {', '.join(CLIENTS)}")
    scale, rounds = (8, 2) if quick else (1, ROUNDS)
    samples = Samples()
    wanted = [who for who in CLIENTS if who in (beside or CLIENTS)]
    for who in PEERS:
        if who in wanted and not peers:
            wanted.remove(who)
            samples.left_out.append((who, "only with --peers, as it installs packages"))
    for count in devices or ((1, 8) if quick else DEVICES):
        with contextlib.ExitStack() as stack:
            fairway = _fairway(count, scale, stack)
            stack.callback(fairway.close)
            samples.measure("Fairway", fairway, count, warm_up=True)
            together = [who for who in wanted if who in TOGETHER]
            alone = [[who] for who in wanted if who not in TOGETHER]
            for group in [*alone, together]:
                print(f"{count} devices: {', '.join(group)}", file=sys.stderr, flush=True)
                measure_beside(fairway, group, count, scale, rounds, samples)
    return table(samples), bars_of(samples), samples.left_out
