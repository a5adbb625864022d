# SPDX-License-Identifier: Apache-2.0
"""This tree beside another one, in turns: rates, processor time and messages of what users do most.

  ./dev bench pairs --before TREE      a checkout of another commit in which `./dev build` and the
                                       programs of its benchmarks were built; default: this tree

A case is one of another benchmark's, with the clusters of both trees up and each with clients of its
own; the idle one costs nothing. In each round both are measured, every other round the other one
first, and a bar is judged by the ratios within the rounds. Processor time is that of all processes of
the side, the client included, but of `native` that of the daemons. Messages are those between the
controller and its executors.

  dispatch  gangs of 1 and 8 devices, called by the C++ client: op by op, chained, fused
  native    the C++ client's no-ops on one device
  stages    a chain over 2 and 8 islands, parallel and sequential
  jax       JAX's small steps on 8 devices

Expected: with the default, 1.00 in every bar; how far they are from it is what the machine adds.
"""

import contextlib
import importlib.util
import json
import pathlib
import subprocess
import typing

from jax_bench import CASES as JAX_CASES
from jax_bench import DEVICES as JAX_DEVICES
from jax_bench import Child, steps_of
from measure import bar, paired, row
from processes import Client, cpu_seconds

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROUNDS = 41  # of brief pieces: what a machine does to one side for seconds must be in both
CASES = ("dispatch 1", "dispatch 8", "native", "stages 2", "stages 8", "jax")
RATE, CPU, MESSAGES = "rate", "processor time", "messages"
UNITS = {RATE: "steps/s", CPU: "us/step", MESSAGES: "messages"}
LIMITS = {RATE: {"at_least": 0.97}, CPU: {"at_most": 1.05}, MESSAGES: {"at_most": 1.0}}


def options(parser):
    parser.add_argument("--before", metavar="TREE", type=pathlib.Path, default=ROOT,
                        help="the other tree, built (default: this one)")
    parser.add_argument("--cases", type=lambda text: text.split(","), metavar="CASE,CASE",
                        help=f"only these of: {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds (default {ROUNDS})")


class Step(typing.NamedTuple):
    """What was measured once. None: this case does not tell."""

    rate: float | None = None  # steps a second
    cpu: float | None = None  # microseconds of processor time for a step
    messages: float | None = None  # for a step


class Side:
    """A tree, and its clusters; the module cluster.py is the tree's own, as its flags are."""

    def __init__(self, tree, stack):
        file = tree / "tests" / "e2e" / "cluster.py"
        spec = importlib.util.spec_from_file_location(f"cluster_of_{abs(hash(str(tree)))}", file)
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        self.programs = tree / "build" / "release" / "bench"
        self.stack = stack

    def cluster(self, islands, devices, host=True):
        flags = ("--runtime=host",) if host else ()
        return self.stack.enter_context(
            self.module.Cluster(islands=islands, devices=devices, flags=flags))

    def measure(self, cluster, own_pids, run):
        """run() -> (steps, seconds); `own_pids`: the client's."""
        pids = [*own_pids(), *(p.pid for p in cluster.processes() if p.flag("role") != "supervisor")]
        cpu, messages = cpu_seconds(pids), messages_of(cluster)
        steps, seconds = run()
        return Step(steps / seconds, (cpu_seconds(pids) - cpu) / steps * 1e6,
                    (messages_of(cluster) - messages) / steps)

    def asked(self, cluster, program, arguments, styles=None):
        """{name: a function that measures it once}: of a client that is asked over its streams."""
        client = Client([self.programs / program, cluster.address, *arguments],
                        self.module.clean_environment())
        self.stack.callback(client.close)
        return {style: lambda style=style: self.measure(
                    cluster, client.pids, lambda: client.measure(style))
                for style in styles or client.styles}


def messages_of(cluster):
    return cluster.metrics().total("fairway_link_messages_total")


def dispatch(side, devices, quick):
    return side.asked(side.cluster(1, devices), "dispatch_client", [devices, 32 if quick else 4])


def stages(side, count, quick):
    return side.asked(side.cluster(count, 1), "stages_client", [count, 1, 0, 5 if quick else 100 // count],
                      ("parallel", "sequential"))


def native(side, quick):
    """The client measures itself, and all at once; so its processor time is that of a run of it."""
    cluster, steps = side.cluster(1, 1), 20 if quick else 400
    told = {}

    def run():
        done = subprocess.run(
            [str(side.programs / "native_client"), cluster.address, "2", str(steps)], text=True,
            stdout=subprocess.PIPE, check=True, env=side.module.clean_environment())
        told.update(json.loads(done.stdout.splitlines()[-1]))  # the first round loads the code
        return 1, 1

    def whole():
        step = side.measure(cluster, list, run)
        return Step(None, step.cpu, step.messages)

    def of(key, rate):
        return lambda: Step(told[key] if rate else 1 / told[key])

    return {"a run, daemons": whole, "chain": of("chain", True), "apart": of("apart", True),
            "called and waited for": of("call", False), "called and fetched": of("fetch", False)}


def jax(side, quick):
    cluster = side.cluster(1, JAX_DEVICES, host=False)
    client = Child("fairway", JAX_DEVICES, cluster.jax_environment(), quick)
    side.stack.callback(client.close)
    client.expect()

    def once(case):
        steps = steps_of(case, quick)
        return side.measure(cluster, lambda: [client.pid], lambda: (steps, steps * client.measure(case)))

    return {name: lambda name=name: once(name)
            for name, case in JAX_CASES.items() if case.unit == "us/step"}


def start(case, side, quick):
    name, _, count = case.partition(" ")
    if count:
        return {"dispatch": dispatch, "stages": stages}[name](side, int(count), quick)
    return {"native": native, "jax": jax}[name](side, quick)


def ratios(case, sides, rounds):
    """{(name, what): [(this tree's, the other's)]} over the rounds."""
    out = {}
    for turn in range(rounds + 1):
        for name in sides[0]:
            order = (0, 1) if turn % 2 else (1, 0)
            measured = {index: sides[index][name]() for index in order}
            if turn == 0:  # loads the code
                continue
            for what, mine, other in zip((RATE, CPU, MESSAGES), measured[0], measured[1]):
                if mine is not None and other:
                    out.setdefault((f"{case}, {name}", what), []).append((mine, other))
    return out


def run(quick, before=ROOT, cases=None, rounds=ROUNDS):
    before = pathlib.Path(before).resolve()
    unknown = set(cases or ()) - set(CASES)
    if unknown:
        raise SystemExit(f"there is no {sorted(unknown)}; there are: {', '.join(CASES)}")
    rows, bars = [], []
    for case in cases or (("dispatch 1", "native") if quick else CASES):
        with contextlib.ExitStack() as stack:
            sides = [start(case, Side(tree, stack), quick) for tree in (ROOT, before)]
            for (name, what), pairs in ratios(case, sides, 2 if quick else rounds).items():
                title, unit = f"{what}: {name}", UNITS[what]
                mine, others = zip(*pairs)
                rows.append(row(title, mine, unit, f"{title}, before"))
                rows.append(row(f"{title}, before", others, unit))
                bars.append(bar(f"{title}, of that before", paired(mine, others, lambda a, b: a / b),
                                **LIMITS[what]))
    return rows, bars
