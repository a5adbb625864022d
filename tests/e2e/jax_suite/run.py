# SPDX-License-Identifier: Apache-2.0
"""Runs one of JAX's own test files on JAX's CPU backend and through a cluster, and compares.

  ./dev python tests/e2e/jax_suite/run.py JAX_SOURCE_TREE [tests/array_test.py] [--json FILE]

JAX_SOURCE_TREE is a checkout of jax at the tag of the installed version (nothing is fetched). Both
runs see 8 devices; the cluster is one island. A test that ends the Python process, or says nothing
for --stall seconds, is counted as "crashed" or "hung", and the run goes on behind it.
Exit code 0: every test that passes on the CPU backend passes through the cluster.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import select
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from cluster import Cluster, cpu_environment  # noqa: E402

STARTED = (r"^\S*{}::(.+?)"
           r"(?: (PASSED|FAILED|SKIPPED|ERROR|XFAIL|XPASS)\b.*| Fatal Python error.*|\s*)$")
REASON = re.compile(r"^(?:FAILED|ERROR) \S*?::(.+?) - (.*)")
RESULTS = ["passed", "skipped", "failed", "error", "crashed", "hung"]


class Run:
    """The results of one test file on one backend: test -> result, and why for what failed."""

    def __init__(self):
        self.results, self.reasons, self.seconds = {}, {}, 0.0
        self.log = []

    def counts(self):
        count = collections.Counter(self.results.values())
        return {name: count[name] for name in RESULTS if count[name]}


def one_process(file, environment, run, stall):
    """Runs what is not yet in run.results. Returns the test it ended in the middle of, or None."""
    with tempfile.TemporaryDirectory() as folder:
        empty = pathlib.Path(folder, "empty.ini")
        empty.touch()
        deselected = [f"--deselect={file.name}::{name}" for name in run.results]
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "pytest", "-v", "-c", empty, "--rootdir", file.parent,
             "-p", "no:cacheprovider", "-o", "console_output_style=classic", "--tb=short", "-rfE",
             "-W", "ignore", *deselected, file],
            env={**environment, "COLUMNS": "1000", "NO_COLOR": "1"}, cwd=folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        current, hung, pending = None, False, b""
        announced = re.compile(STARTED.format(re.escape(file.name)))
        while True:
            ready, _, _ = select.select([process.stdout], [], [], stall)
            if not ready:
                process.kill()
                hung = True
                break
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            for raw in [*lines, pending]:  # a started test is printed before its line ends
                line = raw.decode(errors="replace")
                reason, started = REASON.match(line), announced.match(line)
                if reason:
                    run.reasons[reason.group(1)] = reason.group(2)
                elif started and started.group(2):
                    result = started.group(2).lower().replace("xfail", "skipped")
                    run.results[started.group(1)] = result.replace("xpass", "passed")
                    current = None
                elif started:
                    current = started.group(1)
            run.log += [raw.decode(errors="replace") for raw in lines]
        code = process.wait()
        process.stdout.close()
    if current in run.results:  # deselecting did not work; this would never end
        raise SystemExit(f"{current} ran twice\n" + "\n".join(run.log[-40:]))
    if current and (hung or code not in (0, 1)):
        run.results[current] = "hung" if hung else "crashed"
        last = next((l for l in reversed(run.log) if re.match(r"^[FE]\d{4} ", l)), "")
        run.reasons[current] = last or f"the process ended with {code}"
        return current
    if hung or code not in (0, 1, 5):
        run.log.append(f"pytest ended with {code}")
        raise SystemExit("\n".join(run.log[-40:]))
    return None


def run_file(file, environment, stall):
    run, started = Run(), time.monotonic()
    while one_process(file, environment, run, stall):
        pass
    run.seconds = time.monotonic() - started
    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=pathlib.Path, help="a checkout of jax, at the installed tag")
    parser.add_argument("test", nargs="?", default="tests/array_test.py")
    parser.add_argument("--json", metavar="FILE", help="write the counts and differences there")
    parser.add_argument("--stall", type=float, default=120, help="seconds of silence of one test")
    parser.add_argument("--log", metavar="FILE", help="write pytest's output of the cluster run")
    args = parser.parse_args()
    file = (args.tree / args.test).resolve()
    if not file.is_file():
        parser.error(f"{file} does not exist")

    cpu = run_file(file, cpu_environment(8), args.stall)
    print(f"JAX's CPU backend, 8 devices: {cpu.counts()} in {cpu.seconds:.0f} s", flush=True)
    with Cluster(islands=1, devices=8) as cluster:
        ours = run_file(file, cluster.jax_environment(), args.stall)
    print(f"cluster, 1 island of 8 devices: {ours.counts()} in {ours.seconds:.0f} s")
    if args.log:
        pathlib.Path(args.log).write_text("\n".join(ours.log), encoding="utf-8")

    different = {
        name: {"cpu": cpu.results.get(name, "missing"), "cluster": ours.results.get(name, "missing"),
               "why": ours.reasons.get(name, "")}
        for name in sorted({*cpu.results, *ours.results})
        if cpu.results.get(name) != ours.results.get(name)
    }
    print(f"{len(different)} tests differ")
    for name, pair in different.items():
        print(f"  {name}: {pair['cpu']} -> {pair['cluster']}  {pair['why'][:300]}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(
            {"test": args.test, "cpu": cpu.counts(), "cluster": ours.counts(),
             "different": different}, indent=1), encoding="utf-8")
    return int(any(pair["cpu"] == "passed" for pair in different.values()))


if __name__ == "__main__":
    sys.exit(main())
