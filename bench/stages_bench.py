# SPDX-License-Identifier: Apache-2.0
"""A chain whose stage k runs on an island of its own and sends its output to stage k+1 (experiment E3
of docs/benchmarks.md): prepared everywhere at once, or step by step (a sequential program).

Every island is one executor of one device of the host runtime, in processes of its own. A run is
waited for before the next begins; a stage waits for a declared time (the sleep kernel), or does
nothing. "added" is the time of a run without that of its stages, per stage. A "raw round trip" is
one of 16 bytes between two processes over TCP, measured in the same rounds: on two processors, as it
would be between two hosts, and on one, where nobody has to be woken elsewhere.

Expected: a prepared stage waits at its executor for the transfer and nobody asks the controller in
between, so its edge costs a few raw round trips. Step by step, the time to prepare the transfer and the
launch is added: a third to a half more.
"""

import pathlib
import sys

from measure import bar, paired, row
from processes import Client

HERE = pathlib.Path(__file__).resolve().parent
CLIENT = HERE.parent / "build" / "release" / "bench" / "stages_client"
STAGES = (2, 4, 8, 16, 32)
MODES = ("parallel", "sequential")
SLEEPS_US = (0, 500)
ROUNDS = 7
EDGE_STAGES = 8  # fewer: the client's call is too much of a run
EDGE_ROUND_TRIPS = 12
RAW = {"far": "two processors", "near": "one processor"}


def options(parser):
    parser.add_argument("--stages", type=lambda text: [int(n) for n in text.split(",")],
                        metavar="N,N", help="only these numbers of stages")


def measure(stages, runs, rounds, samples):
    from cluster import Cluster, clean_environment

    with Cluster(islands=stages, devices=1, flags=("--runtime=host",)) as cluster:
        clients = {sleep: Client([CLIENT, cluster.address, stages, 1, sleep, runs],
                                 clean_environment()) for sleep in SLEEPS_US}
        for round_ in range(rounds + 1):
            for sleep, client in clients.items():
                for mode in (*MODES, *RAW) if sleep == 0 else MODES:
                    done, seconds = client.measure(mode)
                    if round_ > 0:  # loads the code
                        samples.setdefault((mode, sleep, stages), []).append(seconds / done * 1e6)
        for client in clients.values():
            client.close()


def run(quick, stages=None):
    sys.path.insert(0, str(HERE.parent / "tests" / "e2e"))
    samples = {}
    for count in stages or ((2,) if quick else STAGES):
        measure(count, 5 if quick else max(10, 400 // count), 2 if quick else ROUNDS, samples)
    rows, bars = [], []
    for (mode, sleep, count), values in samples.items():
        if mode in RAW:
            rows.append(row(f"raw round trip on {RAW[mode]}, beside {count} stages", values, "us"))
            continue
        what = f"{count} stages of {sleep / 1000:g} ms, {mode}"
        other = f"stages a second: {count} stages of {sleep / 1000:g} ms, sequential"
        rows.append(row(f"stages a second: {what}", [count / v * 1e6 for v in values], "stages/s",
                        other if mode == "parallel" else None))
        rows.append(row(f"added for a stage: {what}",
                        [max(v / count - sleep, 1e-3) for v in values], "us"))
        if mode == "parallel":
            ratio = paired(samples["sequential", sleep, count], values, lambda a, b: a / b)
            bars.append(bar(f"parallel, of sequential: {what}", ratio, at_least=1.0))
        if mode == "parallel" and sleep == 0 and count >= EDGE_STAGES:
            edge = paired(values, samples["far", 0, count], lambda a, b: a / count / b)
            bars.append(bar(f"a stage and its edge, of raw round trips: {what}", edge, at_most=EDGE_ROUND_TRIPS))
    return rows, bars
