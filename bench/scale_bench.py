# SPDX-License-Identifier: Apache-2.0
"""The scale model: bench/scale, `fairway bench scale`. Experiments E2 and E6 of Pathways (MLSys 2022).

The controller's real code drives simulated hosts in virtual time. The CPU of that code is measured; the
times of a computation on the devices and of the network are declared (docs/design/0045-scale-model.md).
The controller's is measured again without the hosts between its turns, which take its caches.
Rows by size: the shortest computation at which a chain of gang computations runs at 99 % of the rate of a
loop without a controller; the period of gangs whose computation takes no time; the CPU of the controller,
its sockets, a host and the busiest relay for a gang at parity; the bytes that a host, an array and a waiting gang hold in
the controller; and a run of the program Arg -> A -> B -> Result.

Bound: a gang's launch and its end are at least a frame each per host, some 10 us with the system
calls: 5 ms for 512 hosts when each frame tells of one gang, less when a frame tells of several.
"""

import json
import pathlib
import subprocess

from measure import bar, mad, median, row

FAIRWAY = pathlib.Path(__file__).resolve().parent.parent / "build" / "release" / "bin" / "fairway"
# hosts, devices of each, fan-out of relays
LEAST, MOST = (16, 8, 0), (4096, 4, 32)  # the controller's time a gang is compared
SIZES = (LEAST, (64, 4, 0), (512, 4, 0), (512, 4, 16), MOST)
BARS = {LEAST: 100, (512, 4, 16): 500, MOST: 1000}  # us
ROUNDS = 3
LARGE = 1000  # hosts of which a run takes minutes: one round, of fewer gangs


def measure(hosts, devices, fanout, *flags):
    done = subprocess.run(
        [str(FAIRWAY), "bench", "scale", f"--hosts={hosts}", f"--devices-per-host={devices}",
         f"--relay-fan-out={fanout}", "--json", *flags],
        text=True, stdout=subprocess.PIPE, check=True,
    )
    return json.loads(done.stdout)


def controller_us(samples):
    """The controller's time for a gang at parity, each time that its turns were done again."""
    return [code + sample["at_parity"]["sockets_us"]
            for sample in samples for code in sample["at_parity"]["repeats_us"]]


def rows_of(name, samples):
    def of(what, value, unit):
        return row(f"{name}: {what}", [value(sample) for sample in samples], unit)

    def per_gang(key):
        return lambda sample: sample["at_parity"][key]

    rows = [
        of("computation at parity", lambda s: s["parity_us"], "us"),
        of("period of gangs that take no time", lambda s: s["fastest_period_us"], "us"),
        of("controller's code, a gang", per_gang("code_us"), "us"),
        of("the same, between the turns of all hosts", per_gang("cold_us"), "us"),
        of("controller's sockets, a gang", per_gang("sockets_us"), "us"),
        of("controller's CPU, a gang and host",
           lambda s: (s["at_parity"]["code_us"] + s["at_parity"]["sockets_us"]) / s["hosts"], "us"),
        of("host's code, a gang", per_gang("host_us"), "us"),
        of("bytes to a host, a gang", lambda s: s["at_parity"]["bytes_out"] / s["hosts"], "bytes"),
        of("memory of a host", lambda s: s["memory"]["host"], "bytes"),
        of("memory of an array", lambda s: s["memory"]["array"], "bytes"),
        of("memory of a waiting gang", lambda s: s["memory"]["gang"], "bytes"),
        of("nodes of A -> B, a run", lambda s: s["program"]["controller_nodes"], "nodes"),
        of("memory of A -> B, a waiting run", lambda s: s["program"]["controller_memory"], "bytes"),
        of("bytes to and from the client, a run", lambda s: s["program"]["client_bytes"], "bytes"),
        of("bytes to a host, a run", lambda s: s["program"]["bytes_per_host"], "bytes"),
    ]
    if samples[0]["at_parity"]["relays"]:
        rows.append(of("busiest relay, a gang", per_gang("relay_us"), "us"))
    return rows


def run(quick):
    rows, bars, used = [], [], {}
    sizes = ((4, 2, 0), (8, 2, 4)) if quick else SIZES
    flags = ("--gangs=20", "--ahead=20") if quick else ()
    for hosts, devices, fanout in sizes:
        large = ("--gangs=60",) if hosts > LARGE else ()
        samples = [measure(hosts, devices, fanout, *flags, *large)
                   for _ in range(1 if quick or large else ROUNDS)]
        name = f"{hosts} hosts, {hosts * devices} devices" + (f", relays of {fanout}" if fanout else "")
        rows += rows_of(name, samples)
        used[hosts, devices, fanout] = controller_us(samples)
        if (hosts, devices, fanout) in BARS:
            parity = [sample["parity_us"] for sample in samples]
            bars.append(bar(f"{name}: computation at parity, us", (median(parity), mad(parity)),
                            at_most=BARS[hosts, devices, fanout]))
    if not quick:
        least = median(used[LEAST])
        grown = [us / least for us in used[MOST]]
        bars.append(bar(f"controller's time for a gang, {MOST[0]} hosts, of that for {LEAST[0]}",
                        (median(grown), mad(grown)), at_most=2))
    return rows, bars
