# SPDX-License-Identifier: Apache-2.0
"""Runs a case of hostile_cases.py beside a neighbour, and reports what both saw.

  python tests/stress/hostile.py [NAME...]     prints a line for each case; without NAME: all
"""

import argparse
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e"), str(HERE.parent / "support")]

from cluster import BIN, Cluster, clean_environment  # noqa: E402
from hostile_cases import CASES  # noqa: E402

NEIGHBOUR = BIN.parent / "tests" / "neighbour"
SECONDS = 900  # the limit of a case: for what hangs


@dataclasses.dataclass
class Seen:
    """The effects of a case on others."""

    said: str  # the hostile client's output
    took: float  # seconds
    neighbour: dict  # steps, those beside the case, p50, p99, max in ms; or error
    lost: int  # executors that did not survive
    logged_lost: bool  # whether the controller logged the loss of one
    turn_units: int  # the most units of one turn of the core
    handler_ms: float  # the most processor time of one handler of the controller's loop
    controller_mib: float  # the peak memory of the controller
    executor_turn_units: int  # the most units of one turn of an executor's core
    executor_handler_ms: float  # the most processor time of one handler of an executor's loop
    log: str


def peak_mib(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]) / 1024


def run_case(case, state, seconds):
    """Runs `case` on a cluster of its own, whose files lie in the folder `state`. A case without an end goes
    on for `seconds`. Returns what was seen."""
    devices = next((int(f.split("=")[1]) for f in case.flags if f.startswith("--devices=")), 2)
    flags = ["--runtime=host", *(f for f in case.flags if not f.startswith("--devices="))]
    with Cluster(2, devices, flags, environment={"XDG_STATE_HOME": str(state)}) as cluster:
        controller = next(p for p in cluster.processes() if p.program == "fairway-controller")
        executors = [process.pid for process in cluster.executors()]
        status = cluster.status()
        at = {
            "address": cluster.address, "http": f"127.0.0.1:{cluster.http_port}",
            "links": status["link_address"], "executors": executors,
            "controller": controller.pid, "seconds": seconds,
        }
        environment = clean_environment()
        last = devices - 1 if case.same_island else 2 * devices - 1
        own = [last - 1, last] if case.gang else [last]
        neighbour = subprocess.Popen(
            [NEIGHBOUR, cluster.address, *map(str, own)],
            env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        at["begins"] = neighbour.stdin.fileno()
        try:
            ready = neighbour.stdout.readline()
            assert ready == "ready\n", f"the neighbour did not start: {ready}"
            began = time.monotonic()
            said = attack(case, at, environment)
            took = time.monotonic() - began
            try:
                told, _ = neighbour.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                told = '{"error": "it stood still for 120 s after the case had ended"}'
        finally:
            neighbour.kill()
            neighbour.wait()
        left = [process.pid for process in cluster.executors()]
        metrics = cluster.metrics()
        log = cluster.logs()
        return Seen(
            said=said, took=took, neighbour=json.loads(told or '{"error": "it died"}'),
            lost=len(set(executors) - set(left)), logged_lost="was lost" in log,
            turn_units=int(metrics.total("fairway_core_turn_units_max")),
            handler_ms=1e3 * metrics.total("fairway_loop_handler_cpu_seconds_max"),
            controller_mib=peak_mib(controller.pid),
            executor_turn_units=int(most(metrics, "fairway_executor_turn_units_max")),
            executor_handler_ms=1e3 * most(metrics, "fairway_executor_handler_cpu_seconds_max"), log=log)


def most(metrics, name):
    return max(metrics.by(name, "worker").values())


def attack(case, at, environment):
    hostile = subprocess.Popen(
        [sys.executable, HERE / "hostile_cases.py", case.name, json.dumps(at)], env=environment, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=[at["begins"]])
    try:
        return hostile.communicate(timeout=SECONDS)[0].strip()
    except subprocess.TimeoutExpired:
        return f"it was ended after {SECONDS} s"
    finally:
        hostile.kill()
        hostile.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="cases; none: all")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--json", action="store_true", help="print one line of JSON for each case")
    parser.add_argument("--seconds", type=float, default=8, help="how long what has no end goes on (default 8)")
    parser.add_argument("--state", help="the folder for a cluster's files (default: a temporary one)")
    args = parser.parse_args()
    if args.list:
        print("\n".join(CASES))
        return
    for name in args.names or CASES:
        with tempfile.TemporaryDirectory() as state:
            seen = run_case(CASES[name], args.state or state, args.seconds)
        if args.json:
            told = dataclasses.asdict(seen)
            del told["log"]
            print(json.dumps(told), flush=True)
            continue
        n = seen.neighbour
        times = n.get("error") or f"{n['steps']} steps, p50 {n['p50']:.1f}, p99 {n['p99']:.1f}, max {n['max']:.0f} ms"
        print(f"{name}: {times}; turn {seen.turn_units} units, handler {seen.handler_ms:.1f} ms, "
              f"controller {seen.controller_mib:.0f} MiB, executors: turn {seen.executor_turn_units} units, "
              f"handler {seen.executor_handler_ms:.1f} ms, lost {seen.lost}; {seen.said[-300:]}", flush=True)


if __name__ == "__main__":
    main()
