# SPDX-License-Identifier: Apache-2.0
"""A relay of an island's log that is slow, or stands still: what that costs those that are not below it.

One island of eight executors on the host runtime, with relays of two children each. A client calls gangs over the first two
executors one by one (bench/dispatch/fairway_client.cc, OpByOp); another one calls some over all others, ten times a second.
A round measures the first one's rate before, then from the moment on in which a relay that is above others becomes slow (it runs
for 10 ms of every 100) or is stopped, for 4 s. Between rounds it runs again, and the tree comes back.

Expected: no difference. The log of the first two executors comes from other relays, and the controller waits for nobody's log.
Children of a relay that was silent for a second get another parent, as do those of one that has answered late for some seconds.
"""

import contextlib
import pathlib
import sys
import time

from measure import bar, mad, median, row
from processes import Client

HERE = pathlib.Path(__file__).resolve().parent
CLIENT = HERE.parent / "build" / "release" / "bench" / "dispatch_client"
EXECUTORS, USED = 8, 2
STYLE = "OpByOp"


def settled(cluster):
    status = cluster.status()
    return (len(status["relays"]) == EXECUTORS
            and all(e["up"] and e["log_from"] for e in status["executors"]))


def victim(cluster):
    """The process of a relay with children, none of which is above or among the executors that are used."""
    status = cluster.status()
    parents = {e["log_from"] for e in status["executors"][:USED]}
    worker = next(r["worker"] for r in status["relays"]
                  if r["executors"] > 0 and r["relays"] == 0 and r["worker"] not in parents)
    return next(p for p in cluster.processes()
                if p.flag("role") == "relay" and p.flag("name") == worker)


def rate(client, seconds):
    """Steps a second, for at least so long."""
    steps = 0
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        steps += client.measure(STYLE)[0]
    return steps / (time.monotonic() - began)


def run(quick):
    sys.path[:0] = [str(HERE.parent / "tests" / folder) for folder in ("e2e", "support")]
    from cluster import Cluster, clean_environment, wait_for
    from hindered import again_and_again, slow, stopped

    rounds, seconds, scale = (1, 0.2, 8) if quick else (9, 4, 1)
    before, ratios, moves = {}, {}, {}
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(
            islands=1, devices=EXECUTORS, flags=("--runtime=host", f"--workers-per-island={EXECUTORS}"),
            environment={"FAIRWAY_RELAY_BIND": "127.0.0.1:0", "FAIRWAY_RELAY_FAN_OUT": "2"}))
        client = Client([CLIENT, cluster.address, USED, scale], clean_environment())
        stack.callback(client.close)
        rate(client, 0.1)
        others = Client([CLIENT, cluster.address, EXECUTORS - USED, 64, USED], clean_environment())
        stack.callback(others.close)
        stack.enter_context(again_and_again(lambda: others.measure(STYLE), 0.1))
        for _ in range(rounds):
            for how in (slow, stopped):
                wait_for(lambda: settled(cluster), "every executor to have a relay")
                moved = cluster.metrics().total("fairway_relay_moves_total")
                usual = rate(client, seconds)
                with how(victim(cluster)):
                    hindered = rate(client, seconds)
                before.setdefault(how.__name__, []).append(usual)
                ratios.setdefault(how.__name__, []).append(hindered / usual)
                moves.setdefault(how.__name__, []).append(cluster.metrics().total("fairway_relay_moves_total") - moved)
    rows, bars = [], []
    for how, values in ratios.items():
        rows.append(row(f"{STYLE}, {USED} of {EXECUTORS} executors, before a relay is {how}", before[how], "steps/s"))
        rows.append(row(f"... of that since a relay is {how}", values, "times"))
        rows.append(row(f"... that got another parent since a relay is {how}", moves[how], "executors"))
        bars.append(bar(f"rate beside a relay that is {how}, of that before", (median(values), mad(values)), at_least=0.9))
    return rows, bars
