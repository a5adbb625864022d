# SPDX-License-Identifier: Apache-2.0
"""One hundred common `jnp` calls without `jit` (eager_calls.py): on island 0 and on island 1 of a
cluster of two islands of two devices, beside the null front door (null_front_door.cc), which answers and
does nothing, and JAX's own CPU backend. Once with all arrays on one device, once *sharded*: over the two
devices of the island.
A time is that of a call among a few in a row, whose last result is waited for. A call that
reads a value (`float(x[0, 0])`) waits each time. The clients live through the whole run and
measure in turns, one call at a time; ratios are those within the rounds. All compiling comes
before.

A relay in front of the door (relay.py) counts messages of gRPC and bytes of the connection, each way, in
further clients that are not timed. The controller's own counters tell the messages to executors and the
bytes between islands. "By default" is island 1 within `jax.default_device`: helper arrays that JAX makes
for a call, such as the indices of `x[0, 0]` when `x` is sharded, go to the default device. Otherwise
that is the first of island 0, and they are copied from there.

The null front door never runs a program, and all its values are zeros. So it cannot be compared for a
call whose conversation depends on values (`v[mask]`); where its requests differ from Fairway's, the
call is named in `left_out` and not compared.

Expected: a call costs a message for each request of JAX, and Python's own time, which JAX's backend
costs too; on island 1 each array that JAX puts on the default device costs a copy between islands.
"""

import json
import subprocess
import sys
import tempfile
import time
import typing

import eager_calls
from jax_bench import NULL, plugin
from measure import bar, median, paired, row
from relay import Relay

ROUNDS, COUNTED_ROUNDS = 9, 3
TIMES = 10  # calls in a row
ISLANDS, DEVICES = 2, 2
ALL = "all calls"  # in the names of rows
MARK = 1 << 20  # bytes that are moved to island 1 after a call


class Place(typing.NamedTuple):
    """The place of a call: the backend of its client, and the island whose devices it uses."""

    backend: str
    island: int = 0
    sharded: bool = False
    by_default: bool = False


TIMED = {"island 0": Place("fairway"), "island 1": Place("fairway", 1),
         "null": Place("null"), "JAX": Place("JAX")}
TIMED |= {f"{name}, sharded": place._replace(sharded=True) for name, place in TIMED.items()}
COUNTED = {"island 0": Place("counted"), "island 1": Place("counted", 1),
           "null": Place("null, counted")}
COUNTED |= {f"{name}, sharded": place._replace(sharded=True) for name, place in COUNTED.items()}
COUNTED["island 1, sharded, by default"] = Place("counted", 1, True, True)
RATIOS = tuple((f"island {island}{how}", f"{under}{how}")
               for how in ("", ", sharded") for under in ("JAX", "null") for island in (0, 1))
WAYS = ("messages to", "messages from", "bytes to", "bytes from")
# The requests of a conversation that concern values. The time at which the client drops arrays, or
# asks whether they are ready, varies.
OF_VALUES = {"make_array_from_host_buffer", "make_arrays_from_host_buffer_shards",
             "assemble_array_from_single_device_arrays", "copy_to_host_buffer", "copy_arrays",
             "disassemble_into_single_device_arrays", "fully_replicated_shard", "remap_arrays",
             "reshard_arrays", "loaded_executable_execute"}
MOVING = ("copy_arrays", "reshard_arrays", "remap_arrays")


# ---- In the clients ----


def serve():
    """Each line of the input names a call, how often to make it, and a place; answers seconds."""
    import jax
    import numpy as np

    devices = jax.devices()
    marker = jax.device_put(np.zeros(MARK, np.uint8), devices[0])
    namespaces = {}
    for island in range(ISLANDS):
        of_island = devices[island * DEVICES:(island + 1) * DEVICES]
        namespaces[island, False] = eager_calls.values(of_island[:1])
        namespaces[island, True] = eager_calls.values(of_island)
    namespaces[1, False]["mark"] = lambda: jax.device_put(marker, devices[DEVICES])
    print("ready", flush=True)
    for line in sys.stdin:
        call, island, sharded, by_default, times = json.loads(line)
        try:
            with jax.default_device(devices[island * DEVICES] if by_default else None):
                function = eager_calls.function_of(call, namespaces[island, sharded])
                print(json.dumps({"seconds": in_a_row(jax, function, times)}), flush=True)
        except Exception as error:  # any error: JAX's text is the answer
            print(json.dumps({"error": str(error).strip().partition("\n")[0][:300]}), flush=True)


def in_a_row(jax, function, times):
    began = time.perf_counter()
    for _ in range(times):
        result = function()
    jax.block_until_ready(result)
    return (time.perf_counter() - began) / times


# ---- The driver ----


class Refused(Exception):
    """The error with which a client answered instead of a time."""


class Child:
    def __init__(self, environment):
        self._errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, __file__], env={**environment, "TF_CPP_MIN_LOG_LEVEL": "2"}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors)

    def expect(self):
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self._errors.seek(0)
            raise RuntimeError(f"a client ended with {code}: "
                               f"{self._errors.read()[-2000:].decode(errors='replace')}")
        return line

    def seconds(self, call, place, times):
        print(json.dumps([call, *place[1:], times]), file=self.process.stdin, flush=True)
        answer = json.loads(self.expect())
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["seconds"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def warm_up(clients, calls):
    """Compiles. Returns {(call, place): error} of the calls that are refused somewhere."""
    refused = {}
    for call in calls:
        for places in (TIMED, COUNTED):
            for name, place in places.items():
                try:
                    clients[place.backend].seconds(call, place, 2)
                except Refused as refusal:
                    refused[call, name] = str(refusal)
    return refused


def measure_times(clients, calls, refused, rounds, times):
    """{(call, place): [us a call]}"""
    samples, names = {}, list(TIMED)
    for _ in range(rounds):
        for call in calls:
            for name in names:
                if (call, name) not in refused:
                    seconds = clients[TIMED[name].backend].seconds(call, TIMED[name], times)
                    samples.setdefault((call, name), []).append(seconds * 1e6)
        names = names[1:] + names[:1]
    return samples


def told_executors(cluster):
    metrics = cluster.metrics()
    return {f"messages {way} executors":
            metrics.total("fairway_link_messages_total", direction=f"{way}_executors")
            for way in ("to", "from")}


def moved_to_island_1(cluster):
    """Bytes since the start, as far as known: executors report their pulls in heartbeats."""
    return cluster.metrics().by("fairway_transferred_bytes_total", "to_island").get("island1", 0)


def count(clients, relays, cluster, calls, refused, rounds, times):
    """{(call, place, what): [a call]}, and {(call, place): {kind of request: [a call]}}."""
    samples, requests = {}, {}
    for call in calls:
        for name, place in COUNTED.items():
            for _ in range(0 if (call, name) in refused else rounds):
                counted, kinds = relays[place.backend].counts()
                told = told_executors(cluster)
                clients[place.backend].seconds(call, place, times)
                since, kinds_since = relays[place.backend].counts()
                found = {way: since[way] - counted[way] for way in WAYS}
                if place.backend == "counted":
                    now = told_executors(cluster)
                    found.update({what: now[what] - told[what] for what in told})
                for what, value in found.items():
                    samples.setdefault((call, name, what), []).append(value / times)
                for kind, value in (kinds_since - kinds).items():
                    requests.setdefault((call, name), {}).setdefault(kind, []).append(value / times)
    return samples, requests


def count_between_islands(clients, cluster, calls, requests, times):
    """{(call, place, what): [bytes a call]}; a call that asks for no copy moves none.

    A known number of bytes is moved after the calls, to tell when all reports have come.
    """
    from cluster import wait_for

    def all_told(before):
        clients["counted"].seconds("mark()", Place("counted", 1), 1)
        wait_for(lambda: moved_to_island_1(cluster) >= before + MARK, "what executors pulled")
        return moved_to_island_1(cluster)

    samples, before = {}, all_told(moved_to_island_1(cluster))
    for call in calls:
        for name, place in COUNTED.items():
            if place.island != 1 or (call, name) not in requests:
                continue
            moved = 0
            if any(kind in requests[call, name] for kind in MOVING):
                clients[place.backend].seconds(call, place, times)
                now = all_told(before)
                moved, before = now - before - MARK, now
            samples[call, name, "bytes between islands"] = [moved / times]
    return samples


def another_conversation(requests, call, how):
    """The requests in which the null front door's conversation differs from Fairway's, or ""."""
    ours, null = ({kind: round(median(values))
                   for kind, values in requests.get((call, f"{who}{how}"), {}).items()
                   if kind in OF_VALUES and round(median(values))} for who in ("island 0", "null"))
    return "" if ours == null else f"another conversation: Fairway {ours}, null {null}"


def ratios_of(call, times, different):
    """Rows of the ratios of the times at some places to those at others, within the rounds."""
    rows = []
    for over, under in RATIOS:
        if (call, over) in times and (call, under) in times and under not in different:
            value, spread = paired(times[call, over], times[call, under], lambda a, b: a / b)
            rows.append({"name": f"{call}, {over}: of {under}'s", "value": value, "unit": "times",
                         "spread": spread, "against": None})
    return rows


def ratios_of_all(calls, times, different):
    """Rows of the median over the calls of these ratios; its spread is that of the rounds' medians."""
    rows = []
    for over, under in RATIOS:
        compared = [call for call in calls if (call, over) in times and (call, under) in times
                    and under not in different.get(call, ())]
        if compared:
            rounds = [median(ratios) for ratios in zip(
                *([a / b for a, b in zip(times[call, over], times[call, under], strict=True)]
                  for call in compared), strict=True)]
            rows.append(row(f"{ALL}, {over}: of {under}'s", rounds, "times"))
    return rows


def summarize(calls, times, counts, requests, refused):
    rows = [row(f"{call}, {place}", values, "us/call") for (call, place), values in times.items()]
    left_out = [(f"{call}, {place}", why) for (call, place), why in refused.items()]
    different = {}
    for call in calls:
        different[call] = {f"null{how}": why for how in ("", ", sharded") if (call, f"null{how}") in times
                           and (why := another_conversation(requests, call, how))}
        left_out += [(f"{call}, beside {place}", why) for place, why in different[call].items()]
        rows += ratios_of(call, times, different[call])
    rows += ratios_of_all(calls, times, different)
    for (call, place, what), values in counts.items():
        rows.append(row(f"{call}, {place}: {what}", values, what.partition(" ")[0]))
    for (call, place), kinds in requests.items():
        for kind, values in kinds.items():
            rows.append(row(f"{call}, {place}: {kind} requests", values, "requests"))
    return rows, left_out


def bars_of(rows):
    """One bar for each island and way: the median over the calls of what a call takes, of the null front
    door's."""
    measured = {entry["name"]: (entry["value"], entry["spread"]) for entry in rows}
    return [bar(f"time of a call, {over}, of the null front door's",
                measured.get(f"{ALL}, {over}: of {under}'s"), at_most=1.5)
            for over, under in RATIOS if under.startswith("null")]


# ---- Tables of the calls by groups, in place of some thousands of rows ----


def mean(numbers):
    return sum(numbers) / len(numbers)


def table(columns, cell):
    """Returns lines: a group's cells, one for each of `columns`, {title: what it shows}."""
    groups = {group: [call for call in eager_calls.CALLS if eager_calls.CALLS[call] == group]
              for group in eager_calls.GROUPS}
    groups["all"] = list(eager_calls.CALLS)
    lines = [["group", *columns], ["---"] * (1 + len(columns))]
    for group, calls in groups.items():
        cells = [cell(calls, what) for what in columns.values()]
        if set(cells) != {"-"}:  # not measured (quick)
            lines.append([group, *cells])
    return ["| " + " | ".join(line) + " |" for line in lines]


def tables(rows):
    by_name = {entry["name"]: entry for entry in rows}
    values = {name: entry["value"] for name, entry in by_name.items()}

    def of(calls, what, middle):
        found = [values[f"{call}, {what}"] for call in calls if f"{call}, {what}" in values]
        return middle(found) if found else None

    def spreads(names):
        """The spread as a part of the call's median: its median over the calls, for each column."""
        parts = []
        for title, name in names.items():
            found = [entry["spread"] / entry["value"] for call in eager_calls.CALLS
                     if (entry := by_name.get(f"{call}, {name}"))]
            parts += [f"{title} {100 * median(found):.0f} %"] if found else []
        return f"Spread, of a call's median: {', '.join(parts)}."

    def time_or_ratio(calls, what):
        value = of(calls, what, median)
        return "-" if value is None else f"{value:.2f}" if ": of " in what else f"{value:.0f}"

    def both_ways(calls, what):
        both = [of(calls, f"{what[0]}: {what[1]} {way}", mean) for way in ("to", "from")]
        return "-" if None in both else " + ".join(f"{value:.{what[2]}f}" for value in both)

    out = []
    for how, title in (("", "one device"), (", sharded", "sharded over two devices")):
        columns = {place: f"{place}{how}" for place in ("island 0", "island 1", "null", "JAX")}
        columns |= {f"{over} / {under}": f"{over}{how}: of {under}{how}'s"
                    for over, under in (("island 0", "JAX"), ("island 1", "JAX"),
                                        ("island 0", "null"), ("island 1", "null"))}
        out += [f"Microseconds a call, and ratios, {title}; medians of the calls of a group:", "",
                *table(columns, time_or_ratio), "", spreads(columns), ""]
    ours = [place for place in COUNTED if not place.startswith("null")]  # null: the same or left out
    for what, digits in (("messages", 1), ("bytes", 0)):
        out += [f"{what.capitalize()} a call, to and from the door; means of the calls of a group:",
                "", *table({place: (place, what, digits) for place in ours}, both_ways), ""]
    for place in ours:
        crossing = [f"`{call}` {value:.3g}" for call in eager_calls.CALLS
                    if (value := values.get(f"{call}, {place}: bytes between islands", 0)) > 0]
        if COUNTED[place].island == 1:
            out += [f"Bytes a call between islands, {place}: {', '.join(crossing) or 'none'}.", ""]
    return "\n".join(out)


def run(quick):
    sys.path.insert(0, str(NULL.parents[3] / "tests" / "e2e"))
    from cluster import Cluster, clean_environment, cpu_environment

    calls = list(eager_calls.CALLS)
    if quick:
        calls = ["jnp.zeros((8, 8), device=d)", "x[0, 0]", "v[mask]", "s + 1", "float(x[0, 0])",
                 "jit_add(x)"]
    null = subprocess.Popen(
        [str(NULL), f"--devices={ISLANDS * DEVICES}", f"--plugin={plugin()}"], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean_environment())
    relays, clients = {}, {}
    try:
        with Cluster(islands=ISLANDS, devices=DEVICES) as cluster:
            null_port = int(null.stdout.readline())
            relays = {"counted": Relay(("127.0.0.1", cluster.port)),
                      "null, counted": Relay(("127.0.0.1", null_port))}
            ports = {"fairway": cluster.port, "null": null_port,
                     **{backend: relay.port for backend, relay in relays.items()}}
            for backend, port in ports.items():
                clients[backend] = Child({**cluster.jax_environment(),
                                          "FAIRWAY_CONTROLLER": f"127.0.0.1:{port}"})
            clients["JAX"] = Child(cpu_environment(ISLANDS * DEVICES))
            for client in clients.values():
                client.expect()
            refused = warm_up(clients, calls)
            times = measure_times(clients, calls, refused, 2 if quick else ROUNDS,
                                  2 if quick else TIMES)
            counts, requests = count(clients, relays, cluster, calls, refused,
                                     1 if quick else COUNTED_ROUNDS, TIMES)
            counts |= count_between_islands(clients, cluster, calls, requests, TIMES)
            rows, left_out = summarize(calls, times, counts, requests, refused)
            for client in clients.values():
                client.close()
    finally:
        for relay in relays.values():
            relay.close()
        null.stdin.close()
        null.wait()
    return rows, bars_of(rows), left_out


if __name__ == "__main__":
    serve()
