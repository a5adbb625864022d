# SPDX-License-Identifier: Apache-2.0
"""Large things: bytes, numbers of arrays, trees, programs. The controller's memory stays bounded."""

import pathlib
import re
import threading

import pytest

LARGE = pathlib.Path(__file__).resolve().parent / "large.py"
MIB = 1 << 20


class MemoryWatch(threading.Thread):
    """Often reads the memory of a process that no file backs."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.status = pathlib.Path(f"/proc/{pid}/status")
        self.ended = threading.Event()
        self.first = self.largest = self.now()

    def now(self):
        return 1024 * int(re.search(r"RssAnon:\s+(\d+) kB", self.status.read_text())[1])

    def run(self):
        while not self.ended.wait(0.01):
            self.largest = max(self.largest, self.now())

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


@pytest.mark.parametrize(
    "name", ["put_and_get_of_a_gib", "put_and_get_of_a_gib_in_four_shards"])
def test_a_gib_passes_the_controller_in_bounded_memory(new_cluster, name):
    cluster = new_cluster(1, 4, environment={"FAIRWAY_TRANSIT_MEMORY": "128MiB"})
    (controller,) = [p for p in cluster.processes() if p.program == "fairway-controller"]
    with MemoryWatch(controller.pid) as watch:
        cluster.python(LARGE, name)
    grown = (watch.largest - watch.first) / MIB
    print(f"{name}: the controller's memory grew by {grown:.0f} MiB")
    assert grown < 128 + 256  # the budget, and gRPC's bytes under way


@pytest.mark.parametrize("name", ["many_small_arrays", "tree_of_many_leaves", "program_of_20_mb"])
def test_large_numbers(cluster, name):
    cluster.python(LARGE, name)
