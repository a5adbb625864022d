# SPDX-License-Identifier: Apache-2.0
"""The latency of a neighbour of hostile clients: the cases of tests/stress/hostile_cases.py, each on a cluster of
its own (host runtime, two islands), beside a client that runs a step on its own device every millisecond. The bar:
its p99 is at most twice, and at most 5 ms above, its p99 beside two processes that compute and send nothing, in
turns with the case. Needs the environment .venv-ecosystem (./dev test ecosystem makes it)."""

import pathlib
import subprocess
import sys
import tempfile

from measure import mad, median

ROOT = pathlib.Path(__file__).resolve().parents[1]
STRESS = ROOT / "tests" / "stress"
PYTHON = ROOT / ".venv-ecosystem" / "bin" / "python"


def options(parser):
    parser.add_argument("--cases", metavar="NAME,...", help="only these")
    parser.add_argument("--rounds", type=int, default=5, help="times that each case runs (default 5)")


def one(name, seconds):
    """The result of one run, as hostile.py writes it."""
    import json

    with tempfile.TemporaryDirectory() as state:
        done = subprocess.run(
            [PYTHON, STRESS / "hostile.py", "--json", f"--seconds={seconds}", f"--state={state}", name],
            text=True, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def run(quick, cases=None, rounds=5):
    if not PYTHON.exists():
        return [], [], [("all", "there is no .venv-ecosystem: ./dev test ecosystem makes it")]
    names = subprocess.run([PYTHON, STRESS / "hostile.py", "--list"], text=True, stdout=subprocess.PIPE,
                           check=True).stdout.split()
    if cases:
        unknown = set(cases.split(",")) - set(names)
        if unknown:
            sys.exit(f"no case {', '.join(sorted(unknown))}; there are: {', '.join(names)}")
        names = cases.split(",")
    seconds, rounds = (1, 1) if quick else (8, rounds)
    rows, bars = [], []
    for name in names:
        if name == "burn":
            continue
        seen, control = [], []
        for _ in range(rounds):
            seen.append(one(name, seconds))
            control.append(one("burn", seconds)["neighbour"]["p99"])
        rows += rows_of(name, seen)
        bars.append(bar_of(name, [s["neighbour"].get("p99") for s in seen], control))
    return rows, bars, []


def rows_of(name, seen):
    def row(what, unit, values):
        return {"name": f"{name}: {what}", "value": median(values), "unit": unit, "spread": mad(values),
                "against": None}

    alive = [s["neighbour"] for s in seen if "p99" in s["neighbour"]]
    rows = [row("neighbour's p99", "ms", [n["p99"] for n in alive]),
            row("neighbour's longest step", "ms", [n["max"] for n in alive])] if alive else []
    return rows + [
        row("longest turn of the core", "units", [s["turn_units"] for s in seen]),
        row("longest handler of the controller, processor time", "ms", [s["handler_ms"] for s in seen]),
        row("controller's most memory", "MiB", [s["controller_mib"] for s in seen]),
        row("neighbours that got an error", "neighbours", [len(seen) - len(alive)]),
    ]


def bar_of(name, p99, control):
    """The bar over the rounds: true or false when all agree, else unknown."""
    held = [p is not None and p <= 2 * c + 5 for p, c in zip(p99, control)]
    known = [p for p in p99 if p is not None]
    return {
        "name": f"{name}: p99 beside it, of that beside busy processors",
        "value": median(known) / median(control) if known else None,
        "bar": "<= 2x + 5 ms", "holds": True if all(held) else False if not any(held) else "unknown",
    }
