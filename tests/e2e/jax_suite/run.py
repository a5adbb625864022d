# SPDX-License-Identifier: Apache-2.0
"""Runs files of JAX's own test suite on JAX's CPU backend and through a cluster, and compares.

  ./dev python tests/e2e/jax_suite/run.py JAX_SOURCE_TREE tests/array_test.py tests/pjit_test.py
  ./dev python tests/e2e/jax_suite/run.py JAX_SOURCE_TREE tests/lax_numpy_test.py --sample 300

JAX_SOURCE_TREE is a checkout of jax at the tag of the installed version; nothing is fetched. Both
runs see 8 devices; the cluster is one island, a new one for each file. One process runs --shard
tests; a test that ends its process or takes longer than --limit is a result like others.

A test that passes on the CPU backend and does not through the cluster (a skip is not a pass) is a
difference. It is known if known.toml has it (see docs/jax-compatibility.md), otherwise new.
Exit code: 0 no new difference, 1 a new difference, 2 a file that could not be run.
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import pathlib
import random
import sys
import tempfile
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent),
                str(pathlib.Path(__file__).resolve().parents[1])]
import known as known_differences  # noqa: E402
import runner  # noqa: E402
from cluster import Cluster, cpu_environment  # noqa: E402

DEVICES = 8


@dataclasses.dataclass
class Difference:
    test: str
    kind: str
    entry: str | None
    why: str


@dataclasses.dataclass
class Comparison:
    """The results of one file: how many tests had which outcome per side, and the differences."""

    file: str
    cpu: dict
    cluster: dict
    different: list
    better: list
    seconds: list

    def new(self):
        return [d for d in self.different if d.entry is None]

    def line(self):
        passed = self.cpu.get("passed", 0)
        share = 100 * len(self.different) / passed if passed else 0
        counts = ", ".join(f"{n} {name}" for name, n in sorted(self.cluster.items()))
        return (f"{self.file}: {passed} pass on the CPU backend, "
                f"{passed - len(self.different)} of them through the cluster ({counts}); "
                f"{len(self.different)} differ ({share:.2f} %), {len(self.new())} of them new; "
                f"{self.seconds[0]:.0f} s + {self.seconds[1]:.0f} s")


    def row(self):
        """The row for docs/jax-compatibility.md."""
        known = len(self.different) - len(self.new())
        return (f"| {self.file.removeprefix('tests/')} | {sum(self.cpu.values())} | "
                f"{self.cpu.get('passed', 0)} | {len(self.different)} | {known} |")


def choose(names, args):
    """The part of `names` that --part and --sample choose, in the order of the file."""
    if args.part:
        index, parts = map(int, args.part.split("/"))
        names = names[index - 1::parts]
    if args.sample and args.sample < len(names):
        chosen = set(random.Random(args.seed).sample(names, args.sample))
        names = [name for name in names if name in chosen]
    return names


def cpu_results(file, names, log, limits, cache):
    """Runs on JAX's CPU backend. `cache`: a folder that keeps results between runs, or None."""
    kept = cache and cache / f"{file.stem}.json"
    have = {}
    if kept and kept.is_file():
        have = {n: runner.Result(*r) for n, r in json.loads(kept.read_text()).items()}
    missing = [name for name in names if name not in have]
    if missing:
        have.update(runner.run(file, missing, cpu_environment(DEVICES), log, limits))
        if kept:
            cache.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps({n: dataclasses.astuple(r) for n, r in have.items()}))
    return {name: have[name] for name in names}


def cluster_results(file, names, log, limits):
    with Cluster(islands=1, devices=DEVICES) as cluster:
        alive = [process.pid for process in cluster.executors()]
        # Tests that use jax.devices("cpu") see as many as on the other side. JAX_USE_RGV3: the package
        # turns it off (0.11 and later), and JAX's test base fails a test during which a setting changes.
        environment = {**cluster.jax_environment(),
                       "XLA_FLAGS": cpu_environment(DEVICES)["XLA_FLAGS"], "JAX_USE_RGV3": "0"}

        def look_for_the_dead(results):
            nonlocal alive
            now = [process.pid for process in cluster.executors()]
            if now == alive:
                return
            alive = now
            lost = [r for r in results.values() if "DATA_LOSS" in r.why or "UNAVAILABLE" in r.why]
            for result in lost[:1] or list(results.values())[-1:]:
                result.outcome, result.why = "crashed", "the executor ended; " + result.why

        return runner.run(file, names, environment, log, limits, look_for_the_dead)


def compare(name, cpu, cluster, known, seconds):
    different, better = [], []
    file = name.rpartition("/")[2]
    for test, result in cpu.items():
        ours = cluster[test]
        if result.outcome == "passed" and ours.outcome != "passed":
            test_id = f"{file}::{test}"
            different.append(Difference(
                test, known_differences.kind(ours),
                known_differences.explain(known, test_id, ours), ours.why))
        elif result.outcome in ("failed", "crashed", "hung") and ours.outcome == "passed":
            better.append(test)
    count = [collections.Counter(r.outcome for r in side.values()) for side in (cpu, cluster)]
    return Comparison(name, dict(count[0]), dict(count[1]), different, better, seconds)


def run_file(args, name, known):
    file = (args.tree / name).resolve()
    limits = runner.Limits(test=args.limit, shard=args.shard)
    with contextlib.ExitStack() as stack:
        logs = args.logs
        if logs:
            logs.mkdir(parents=True, exist_ok=True)
        else:
            logs = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cpu_log, our_log = (
            stack.enter_context(open(logs / f"{file.stem}.{side}.log", "ab", buffering=0))
            for side in ("cpu", "cluster"))
        names = runner.collect(file, cpu_environment(DEVICES), cpu_log, limits, args.k)
        names = choose(names, args)
        started = time.monotonic()
        cpu = cpu_results(file, names, cpu_log, limits, args.cpu_cache)
        between = time.monotonic()
        ours = cluster_results(file, names, our_log, limits)
        seconds = [between - started, time.monotonic() - between]
        return compare(name, cpu, ours, known, seconds)


def show(comparison):
    print(comparison.line(), flush=True)
    for d in comparison.different:
        print(f"  {'known' if d.entry else 'NEW'}: {d.test}: {d.kind}: "
              f"{d.entry or ' '.join(d.why.split())[:400]}", flush=True)
    if comparison.better:
        print(f"  only the cluster passes: {', '.join(comparison.better)}", flush=True)


def summary(comparisons):
    passed = sum(c.cpu.get("passed", 0) for c in comparisons)
    different = [d for c in comparisons for d in c.different]
    share = 100 * len(different) / passed if passed else 0
    lines = [f"together: {passed} pass on the CPU backend, {len(different)} differ ({share:.2f} %), "
             f"{sum(d.entry is None for d in different)} of them new"]
    by_entry = collections.Counter(d.entry or f"new: {d.kind}" for d in different)
    lines += [f"  {count:5} {entry}" for entry, count in by_entry.most_common()]
    lines += ["", "| file | tests run | pass on the CPU backend | differ | of these known |",
              "|---|---|---|---|---|", *(c.row() for c in comparisons)]
    return "\n".join(lines)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=pathlib.Path, help="a checkout of jax, at the installed tag")
    parser.add_argument("files", nargs="+", help="below the tree, such as tests/array_test.py")
    parser.add_argument("-k", metavar="EXPR", help="only tests that pytest's -k EXPR selects")
    parser.add_argument("--sample", type=int, metavar="N", help="N tests of each file, by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", metavar="I/N", help="every N-th test of each file, from the I-th")
    parser.add_argument("--shard", type=int, default=300, help="tests in one process")
    parser.add_argument("--limit", type=float, default=120, help="seconds for one test")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the results there")
    parser.add_argument("--logs", type=pathlib.Path, metavar="DIR", help="keep pytest's output there")
    parser.add_argument("--cpu-cache", type=pathlib.Path, metavar="DIR",
                        help="keep the CPU backend's results there and use them again")
    args = parser.parse_args()
    for name in args.files:
        if not (args.tree / name).is_file():
            parser.error(f"{args.tree / name} does not exist")
    return args


def main():
    args = arguments()
    known = known_differences.load()
    comparisons, unusable = [], []
    for name in args.files:
        try:
            comparisons.append(run_file(args, name, known))
        except runner.Unusable as error:
            unusable.append(name)
            print(f"{name} could not be run: {error}", flush=True)
            continue
        show(comparisons[-1])
        if args.json:
            args.json.write_text(json.dumps(
                [dataclasses.asdict(c) for c in comparisons], indent=1), encoding="utf-8")
    print(summary(comparisons))
    return 2 if unusable else int(any(c.new() for c in comparisons))


if __name__ == "__main__":
    sys.exit(main())
