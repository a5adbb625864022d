# SPDX-License-Identifier: Apache-2.0
"""A client that submits programs faster than the cluster runs them."""

import signal
import subprocess
import threading
import time

from accounting import anonymous_memory
from cluster import BIN, clean_environment, wait_for

MIB = 1 << 20


class Flood:
    """The runs of islands_program, and how many were accepted."""

    def __init__(self, cluster):
        self.process = subprocess.Popen(
            [BIN.parent / "tests" / "islands_program", cluster.address, "flood"],
            env=clean_environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == "ready\n"
        self.taken, self.lines = 0, []
        self._thread = threading.Thread(target=self._read)

    def begin(self):
        self._say("\n")
        self._thread.start()

    def stop(self):
        self._say("\n")

    def _say(self, text):
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def _read(self):
        for line in self.process.stdout:
            if line.strip().isdigit():
                self.taken = int(line)
            else:
                self.lines.append(line)

    def held_back(self):
        """Whether no more are accepted for two seconds."""
        seen, until = self.taken, time.monotonic() + 2
        wait_for(lambda: self.taken != seen or time.monotonic() > until, "two seconds")
        return self.taken == seen

    def ends_well(self):
        assert self.process.wait(240) == 0, self.lines
        self._thread.join()
        assert not self.lines


def test_who_submits_faster_than_the_cluster_runs_is_held_back_and_loses_nothing(new_cluster):
    # The executor is stopped for a while and must not be declared lost.
    cluster = new_cluster(1, 2, ("--runtime=host",), {"FAIRWAY_EXECUTOR_DEADLINE": "600s"})
    (controller,) = [p for p in cluster.processes() if p.program == "fairway-controller"]
    (executor,) = cluster.executors()
    flood = Flood(cluster)
    ours, theirs = anonymous_memory(controller.pid), anonymous_memory(flood.process.pid)
    executor.signal(signal.SIGSTOP)
    try:
        flood.begin()
        wait_for(lambda: cluster.metrics().total("fairway_nodes_unfinished") >= 100_000,
                 "100,000 runs in the controller", 240)
        wait_for(flood.held_back, "the client to be held back", 240)
        ours = anonymous_memory(controller.pid) - ours
        theirs = anonymous_memory(flood.process.pid) - theirs
        print(f"{flood.taken} runs were taken; the controller holds {ours / MIB:.0f} MiB more,"
              f" the client {theirs / MIB:.0f}")
        assert ours < 512 * MIB
        assert theirs < 256 * MIB
        flood.stop()
    finally:
        executor.signal(signal.SIGCONT)
    flood.ends_well()


def test_calls_do_not_keep_the_bytes_that_they_need_from_coming(new_cluster):
    cluster = new_cluster(1, 1, ("--runtime=host",))
    done = subprocess.run([BIN.parent / "tests" / "islands_program", cluster.address, "ahead"],
                          env=clean_environment(), text=True, capture_output=True, timeout=240)
    assert done.returncode == 0, done.stdout
