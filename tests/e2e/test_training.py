# SPDX-License-Identifier: Apache-2.0
"""The main use: unmodified JAX trains on two islands through one controller."""

import json
import threading

import numpy as np
import pytest

from cluster import EXAMPLES, cpu_environment, run_python, wait_for

PIPELINE = EXAMPLES / "digits_pipeline.py"
PROGRAM = EXAMPLES / "digits_program.py"
DATA_PARALLEL = EXAMPLES / "digits_data_parallel.py"


def report(run, script, path, *arguments):
    run(script, "--json", path, *arguments)
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory):
    """script -> its report on JAX's own CPU backend with 8 devices."""
    folder = tmp_path_factory.mktemp("cpu")
    done = {}

    def run(script):
        if script not in done:
            done[script] = report(
                lambda *a: run_python(*a, env=cpu_environment()), script, folder / script.stem
            )
        return done[script]

    return run


class GangWatch(threading.Thread):
    """Reads the launched gangs of each island a few times a second."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.readings, self.ended = cluster, [], threading.Event()

    def read(self):
        self.readings.append(self.cluster.metrics().by("fairway_gangs_launched_total", "island"))

    def run(self):
        self.read()
        while not self.ended.wait(0.1):
            self.read()
        self.read()

    def finish(self):
        self.ended.set()
        self.join()

    def shares(self):
        """Per reading: island -> the share of its gangs in that time that were launched by then."""
        first, last = self.readings[0], self.readings[-1]
        grown = {i: last[i] - first.get(i, 0) for i in last}
        return [
            {i: (reading.get(i, 0) - first.get(i, 0)) / count for i, count in grown.items() if count}
            for reading in self.readings
        ]


def across_islands(after, before):
    """Bytes that moved between islands from one reading to another, per direction, sorted."""
    moved = {}
    for metrics, sign in ((after, 1), (before, -1)):
        for name, labels, value in metrics.samples:
            if name == "fairway_transferred_bytes_total":
                ends = labels["from_island"], labels["to_island"]
                moved[ends] = moved.get(ends, 0) + sign * value
    return sorted(value for (source, target), value in moved.items() if source != target and value)


def assert_same_losses(ours, theirs):
    first, reference = np.array(ours["losses"][:100]), np.array(theirs["losses"][:100])
    assert len(first) == 100
    worst = np.max(np.abs(first - reference) / np.abs(reference))
    print(f"largest relative difference of the first 100 losses: {worst:.2e}")
    assert worst <= 1e-5


def test_the_pipeline_learns_on_two_islands_as_it_does_on_the_cpu(cluster, on_cpu, tmp_path):
    before = cluster.metrics()
    watch = GangWatch(cluster)
    watch.start()
    try:
        ours = report(cluster.python, PIPELINE, tmp_path / "cluster.json")
    finally:
        watch.finish()
    after = cluster.metrics()

    assert ours["accuracy"] >= 0.97
    assert_same_losses(ours, on_cpu(PIPELINE))

    # From executor to executor: the activations one way, the gradients the other, and nothing else.
    # Executors report their pulls in heartbeats, so the last reports come a little late.
    expected = sorted(ours["crossed_bytes"].values())
    wait_for(
        lambda: across_islands(cluster.metrics(), before) == expected,
        f"{expected} bytes between the islands; {across_islands(cluster.metrics(), before)}",
    )

    def grown(name):
        return after.total(name) - before.total(name)

    # Through the controller: the script's uploads (its data, and two scalars that seed the
    # parameters) and fetches (losses, predictions), and none of the data that crosses.
    uploaded, fetched = grown("fairway_uploaded_bytes_total"), grown("fairway_fetched_bytes_total")
    assert ours["uploaded_bytes"] <= uploaded <= ours["uploaded_bytes"] + 1024
    assert fetched <= 4 * ours["steps"] + 360 * 4 + 1024

    # Both islands work at the same time: neither is ever far ahead of the other.
    shares = watch.shares()
    assert len(shares[0]) == 2, shares[0]
    under_way = [s for s in shares if 0.1 < max(s.values()) < 0.9]
    assert under_way, "no reading while gangs were launched"
    assert max(max(s.values()) - min(s.values()) for s in under_way) <= 0.2, under_way


def test_a_training_step_as_one_program_learns_the_same_by_one_request_each(
        cluster, on_cpu, tmp_path):
    before = cluster.metrics().total("fairway_executions_total")
    ours = report(cluster.python, PROGRAM, tmp_path / "cluster.json")
    asked = cluster.metrics().total("fairway_executions_total") - before
    assert ours["accuracy"] >= 0.97
    assert_same_losses(ours, on_cpu(PIPELINE))
    # Besides the steps: an initial state for each stage, and the predictions.
    assert asked == ours["steps"] + 4


def test_data_parallel_training_learns_on_one_island(cluster, on_cpu, tmp_path):
    before = cluster.metrics()
    ours = report(cluster.python, DATA_PARALLEL, tmp_path / "cluster.json")
    assert ours["accuracy"] >= 0.97
    assert_same_losses(ours, on_cpu(DATA_PARALLEL))
    busy = [
        island
        for island, count in cluster.metrics().by("fairway_gangs_launched_total", "island").items()
        if count > before.by("fairway_gangs_launched_total", "island").get(island, 0)
    ]
    assert len(busy) == 1
