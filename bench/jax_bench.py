# SPDX-License-Identifier: Apache-2.0
"""JAX through the front door, beside a null front door and JAX's own CPU backend, 8 devices each.

A training step is also measured on an island of one device, beside JAX with one device: there XLA's
pool has as many threads as the machine has cores, not one for each of 8 or 16 devices.

The null front door (null_front_door.cc) answers and does nothing: it shows the cost of a client by
itself, and of gRPC. Where XLA's age decides, in the training steps and in compiling, Fairway is
compared with the plugin alone: JAX in one process over the plugin that executors load, opened as they
open it. Its distance from JAX's own backend is due to the plugin, which is older than jaxlib. The
clients live through the whole run and measure in turns, one case at a time, so that all see the same
machine; a bar is judged by the ratios within the rounds. Times include Python, the protocol, launch,
compute and the wait for the last result, unless stated otherwise; compiling and the first calls are
apart. CPU is that of all processes involved, client included.

Expected: the small steps are slower than in one process, which makes no network round trip, but
near the null front door; a step of 10 ms and more hides the whole cost. In one process each gang
and each training step waits for the one before the last, which costs little there. Two cases
differ: "get" makes no copy in one process, and the null front door compiles in its own process and
runs nothing.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import typing

from measure import bar, median, paired, row
from processes import cpu_seconds

ROUNDS = 15
DEVICES = 8
HERE = pathlib.Path(__file__).resolve().parent
NULL = HERE.parent / "build" / "release" / "bench" / "null_front_door"
BACKENDS = ("fairway", "null", "JAX", "plugin")
PER_UNIT = {"us/call": 1e6, "us/step": 1e6, "ms/step": 1e3, "ms": 1e3}


class Case(typing.NamedTuple):
    unit: str
    against: str  # the backend that fairway is compared with
    steps: int = 1  # of one measurement
    devices: int = DEVICES  # of every backend


CASES = {
    "dispatch": Case("us/call", "null", 400),
    "async step, 1 device": Case("us/step", "null", 1500),
    "async step, gang of 8": Case("us/step", "null", 500),
    "async step, gang of 8 with all-reduce": Case("us/step", "null", 500),
    "fetch each step": Case("us/step", "null", 200),
    "feed each step": Case("us/step", "null", 400),
    "training step, 1 device": Case("ms/step", "plugin", 10),
    "training step, island of 1 device": Case("ms/step", "plugin", 10, devices=1),
    "training step, gang of 8": Case("ms/step", "plugin", 10),
    "put 64 MiB": Case("ms", "null"),
    "get 64 MiB": Case("ms", "null"),
    "compile, first": Case("ms", "plugin"),
    "compile, cached": Case("ms", "plugin"),
}


TRAINING = [name for name in CASES if name.startswith("training step")]


def cases_of(backend, devices):
    return [name for name, case in CASES.items() if case.devices == devices
            and (backend != "plugin" or case.against == "plugin")
            and (backend != "null" or devices == DEVICES)]


# ---- In the clients ----


class Client:
    """The cases for a number of devices; each returns seconds per step."""

    def __init__(self, cases, devices, quick):
        import jax
        import jax.numpy as jnp
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

        self.jax, self.np = jax, np
        self.in_one_process = jax.config.jax_platforms in ("cpu", "plugin")
        devices = jax.devices()[:devices]
        self.first = jax.sharding.SingleDeviceSharding(devices[0])
        mesh = Mesh(np.array(devices), ("x",))
        self.split, self.copied = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
        self.add = jax.jit(lambda v: v + 1)
        self.add_fed = jax.jit(lambda v, fed: v + fed.sum())
        self.all_reduce = jax.jit(lambda v: v + v.sum() * 1e-9, out_shardings=self.split)
        self.plus = jax.jit(lambda v: v + 1)
        self.block = np.random.default_rng(0).random((4096, 4096), np.float32)  # 64 MiB
        self.big = jax.device_put(self.block, self.first)
        self.programs = 0
        self.quick = quick

        def loss(weights, x, y):
            for w in weights:
                x = jnp.tanh(x @ w)
            return ((x - y) ** 2).mean()

        def train(weights, x, y):
            grads = jax.grad(loss)(weights, x, y)
            return [w - 0.01 * g for w, g in zip(weights, grads)]

        random = np.random.default_rng(1)
        weights = [random.standard_normal((512, 512), np.float32) / 23 for _ in range(4)]
        x, y = (random.standard_normal((1024, 512), np.float32) for _ in range(2))
        self.train = jax.jit(train)
        self.training = {
            "training step, 1 device": jax.device_put((weights, x, y), self.first),
            "training step, island of 1 device": jax.device_put((weights, x, y), self.first),
            "training step, gang of 8": (
                jax.device_put(weights, self.copied), *jax.device_put((x, y), self.split)),
        }
        for name in cases:  # compiles
            self.measure(name)

    def chain(self, step, value, steps):
        # JAX's own CPU backend deadlocks with hundreds of queued gangs.
        wait = self.in_one_process and len(value.sharding.device_set) > 1
        began = time.perf_counter()
        for _ in range(steps):
            last, value = value, step(value)
            if wait:
                last.block_until_ready()
        self.jax.block_until_ready(value)
        return (time.perf_counter() - began) / steps

    def measure(self, name):
        jax, np = self.jax, self.np
        steps = steps_of(name, self.quick)
        if name == "dispatch":
            return self.dispatch(steps)
        if name == "async step, 1 device":
            return self.chain(self.add, jax.device_put(np.float32(0), self.first), steps)
        if name.startswith("async step, gang of 8"):
            step = self.all_reduce if name.endswith("all-reduce") else self.add
            return self.chain(step, jax.device_put(np.zeros(16, np.float32), self.split), steps)
        if name in self.training:
            return self.train_for(steps, *self.training[name])
        if name == "fetch each step":
            value = jax.device_put(np.float32(0), self.first)
            began = time.perf_counter()
            for _ in range(steps):
                value = self.add(value)
                float(value)
            return (time.perf_counter() - began) / steps
        if name == "feed each step":
            value = jax.device_put(np.float32(0), self.first)
            fed = np.ones((32, 32), np.float32)
            began = time.perf_counter()
            for _ in range(steps):
                value = self.add_fed(value, fed)
            value.block_until_ready()
            return (time.perf_counter() - began) / steps
        if name == "put 64 MiB":
            began = time.perf_counter()
            jax.device_put(self.block, self.first).block_until_ready()
            return time.perf_counter() - began
        if name == "get 64 MiB":
            fresh = self.plus(self.big).block_until_ready()  # the host has no copy of it yet
            began = time.perf_counter()
            np.asarray(fresh)
            return time.perf_counter() - began
        if name in ("compile, first", "compile, cached"):
            return self.compile(name == "compile, first")
        raise ValueError(name)

    def dispatch(self, steps):
        """The median call; every 50 calls the device is waited for, which is not timed."""
        calls, value = [], self.jax.device_put(self.np.float32(0), self.first)
        for step in range(steps):
            began = time.perf_counter()
            value = self.add(value)
            calls.append(time.perf_counter() - began)
            if step % 50 == 49:
                value.block_until_ready()
        return median(calls)

    def train_for(self, steps, weights, x, y):
        began = time.perf_counter()
        for _ in range(steps):
            last, weights = weights, self.train(weights, x, y)
            if self.in_one_process:
                self.jax.block_until_ready(last)
        self.jax.block_until_ready(weights)
        return (time.perf_counter() - began) / steps

    def compile(self, first):
        self.programs += first
        constant = os.getpid() + self.programs / 64
        x = self.training["training step, 1 device"][0][0]
        began = time.perf_counter()
        # A new function each time: JAX itself caches those that it has seen.
        self.jax.jit(lambda v: (v @ v + constant).sum()).lower(x).compile()
        return time.perf_counter() - began


def serve(backend, devices, quick):
    client = Client(cases_of(backend, devices), devices, quick)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(client.measure(line.strip())), flush=True)


def steps_of(case, quick):
    return max(1, CASES[case].steps // 50) if quick else CASES[case].steps


# ---- The driver ----


class Child:
    """A client, in a session of its own: busy cores are divided between sessions first, and the
    daemons of a cluster have their own."""

    def __init__(self, backend, devices, environment, quick):
        self.process = subprocess.Popen(
            [sys.executable, __file__, backend, str(devices), *(["--quick"] if quick else [])],
            env={**environment, "TF_CPP_MIN_LOG_LEVEL": "2"}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self.pid = self.process.pid

    def expect(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a client ended with {self.process.wait()}")
        return line

    def measure(self, case):
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        return float(json.loads(self.expect()))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure_all(clients, servers, quick):
    """{(case, backend): [value in the case's unit]}, and the CPU of the small steps.

    `clients`: by backend and devices. `servers`: by backend, for the small steps.
    """
    samples, cpu = {}, {}
    for _ in range(2 if quick else ROUNDS):
        for name, case in CASES.items():
            for (backend, devices), client in clients.items():
                if name not in cases_of(backend, devices):
                    continue
                pids = [client.pid, *servers[backend]]
                before = cpu_seconds(pids)
                seconds = client.measure(name)
                samples.setdefault((name, backend), []).append(seconds * PER_UNIT[case.unit])
                if case.unit == "us/step":
                    used = (cpu_seconds(pids) - before) / steps_of(name, quick) * 1e6
                    cpu.setdefault((name, backend), []).append(used)
    return samples, cpu


def summarize(samples, cpu):
    rows = []
    for name, case in CASES.items():
        for backend in BACKENDS:
            if (name, backend) not in samples:
                continue
            rows.append(row(f"{name}, {backend}", samples[name, backend], case.unit,
                            f"{name}, {case.against}" if backend == "fairway" else None))
    for (name, backend), used in cpu.items():
        rows.append(row(f"CPU of all processes: {name}, {backend}", used, "us/step"))

    def times(case, over, under):
        return paired(samples[case, over], samples[case, under], lambda a, b: a / b)

    bars = [bar(f"rate of the {case}, of the null front door's", times(case, "null", "fairway"),
                at_least=0.7) for case in CASES if case.startswith("async step")]
    bars.append(bar("client-side dispatch, of the null front door's",
                    times("dispatch", "fairway", "null"), at_most=1.2))
    for case in TRAINING:
        long_enough = median(samples[case, "plugin"]) >= 10
        bars.append(bar(f"speed of the {case}, of the plugin's alone",
                        times(case, "plugin", "fairway") if long_enough else None, at_least=0.98))
        for backend in ("fairway", "plugin"):  # reported, not judged
            value, spread = times(case, "JAX", backend)
            rows.append({"name": f"speed of the {case}, {backend}, of JAX's own backend",
                         "value": value, "unit": "times", "spread": spread, "against": None})
    fetch = "fetch each step"
    bars.append(bar("added by fetching, over the null front door, ms",
                    paired(samples[fetch, "fairway"], samples[fetch, "null"],
                           lambda a, b: (a - b) / 1000), at_most=0.5))
    return rows, bars


def plugin():
    found = sorted((HERE.parent / ".venv").glob(
        "lib/python3*/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"))
    return os.environ.get("FAIRWAY_PJRT_PLUGIN") or str(found[0])


def plugin_environment(cluster, devices, folder):
    """JAX in one process over the plugin, with the options, XLA flags and allocator of the executor."""
    from cluster import clean_environment

    config = pathlib.Path(folder) / f"plugin-{devices}.json"
    config.write_text(json.dumps(
        {"library_path": plugin(), "create_options": {"cpu_device_count": 2 * devices}}))
    process = pathlib.Path(f"/proc/{cluster.executors()[0].pid}")
    inherited = dict(entry.split("=", 1) for entry in
                     (process / "environ").read_text().split("\0") if "=" in entry)
    allocator = {line.split()[-1] for line in (process / "maps").read_text().splitlines()
                 if "libjemalloc" in line}
    return clean_environment(
        JAX_PLATFORMS="plugin", PJRT_NAMES_AND_LIBRARY_PATHS=f"plugin:{config}",
        XLA_FLAGS=inherited["XLA_FLAGS"], LD_PRELOAD=" ".join(allocator))


def run(quick):
    sys.path.insert(0, str(HERE.parent / "tests" / "e2e"))
    from cluster import Cluster, clean_environment, cpu_environment

    null = subprocess.Popen(
        [str(NULL), f"--devices={DEVICES}", f"--plugin={plugin()}"], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean_environment())
    try:
        with (Cluster(islands=1, devices=DEVICES) as cluster,
              Cluster(islands=1, devices=1) as small,
              tempfile.TemporaryDirectory() as folder):
            null_port = int(null.stdout.readline())
            environments = {
                ("fairway", DEVICES): cluster.jax_environment(),
                ("null", DEVICES): {**cluster.jax_environment(),
                                    "FAIRWAY_CONTROLLER": f"127.0.0.1:{null_port}"},
                ("JAX", DEVICES): cpu_environment(DEVICES),
                ("plugin", DEVICES): plugin_environment(cluster, DEVICES, folder),
                ("fairway", 1): small.jax_environment(),
                ("JAX", 1): cpu_environment(1),
                ("plugin", 1): plugin_environment(small, 1, folder),
            }
            clients = {(backend, devices): Child(backend, devices, environment, quick)
                       for (backend, devices), environment in environments.items()}
            servers = {
                "fairway": [p.pid for p in cluster.processes() if p.flag("role") != "supervisor"],
                "null": [null.pid],
                "JAX": [],
                "plugin": [],
            }
            for client in clients.values():
                client.expect()
            asked = cluster.metrics().total("fairway_executor_fetches_total")
            clients["fairway", DEVICES].measure("fetch each step")
            asked = cluster.metrics().total("fairway_executor_fetches_total") - asked
            rows, bars = summarize(*measure_all(clients, servers, quick))
            rows.append(row("fetch each step: fetches that went to the executor", [asked], "fetches"))
            bars.append(bar("fetches of small results that went to the executor", (asked, 0),
                            at_most=0))
            for client in clients.values():
                client.close()
    finally:
        null.stdin.close()
        null.wait()
    return rows, bars


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), "--quick" in sys.argv)
