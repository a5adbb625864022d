# SPDX-License-Identifier: Apache-2.0
"""The holdings of a cluster at one moment, to be compared before and after a test."""

import os
import pathlib
import re

from cluster import wait_for

# These must return to their old values once the clients of a test are gone.
COUNTS = (
    "fairway_sessions", "fairway_arrays", "fairway_shard_groups", "fairway_nodes_unfinished",
    "fairway_device_memory_used_bytes",
)


def anonymous_memory(pid):
    """Bytes of a process's memory that no file backs."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(r"RssAnon:\s+(\d+) kB", text)[1])


def entries(pid, directory):
    try:
        return len(os.listdir(f"/proc/{pid}/{directory}"))
    except OSError:
        return None


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:2]
    except OSError:
        return "a process that has ended"


def descriptors_and_threads(processes):
    """{pid: (open descriptors, threads)} of the processes that live."""
    found = {p.pid: (entries(p.pid, "fd"), entries(p.pid, "task")) for p in processes}
    return {pid: pair for pid, pair in found.items() if None not in pair}


class Accounts:
    """The cluster's holdings when this was made."""

    # gRPC makes threads, with descriptors, when it is busy, and keeps some of them.
    SPARE_DESCRIPTORS = 4
    SPARE_THREADS = 8

    def __init__(self, cluster):
        self.cluster = cluster
        self.counts = self._counts()
        self.processes = self._settled_processes()

    def _settled_processes(self):
        """Compilers may still be starting when a cluster is ready: waits until 20 looks agree."""
        seen = []

        def settled():
            seen.append(descriptors_and_threads(self.cluster.processes()))
            return len(seen) >= 20 and all(look == seen[-1] for look in seen[-20:])

        wait_for(settled, "the cluster's processes to settle")
        return seen[-1]

    def _counts(self):
        metrics = self.cluster.metrics()
        return {name: metrics.total(name) for name in COUNTS}

    def excess(self):
        """The excess over these holdings, as text; empty: none."""
        found = [
            f"{name}: {value:g}, was {self.counts[name]:g}"
            for name, value in self._counts().items() if value > self.counts[name]
        ]
        for pid, (fds, threads) in descriptors_and_threads(self.cluster.processes()).items():
            if pid not in self.processes:
                continue  # it was started later, in place of one that died
            old_fds, old_threads = self.processes[pid]
            if fds > old_fds + self.SPARE_DESCRIPTORS:
                found.append(f"{name_of(pid)} ({pid}): {fds} descriptors, was {old_fds}")
            if threads > old_threads + self.SPARE_THREADS:
                found.append(f"{name_of(pid)} ({pid}): {threads} threads, was {old_threads}")
        return "; ".join(found)

    def check(self, seconds=120):
        """Waits until there is no excess over these holdings."""
        excess = [""]

        def settled():
            excess[0] = self.excess()
            return not excess[0]

        try:
            wait_for(settled, "the cluster to be as before", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {excess[0]}") from None
