# SPDX-License-Identifier: Apache-2.0
"""Processes of the version before and of this one in one cluster, on one host (docs/upgrade.md)."""

import json
import pathlib
import re
import shlex
import signal
import subprocess
import sys

import pytest

from cluster import BIN, clean_environment, free_ports, run_python, wait_for
from small_cluster import COMMANDS, Controller, Daemon, Worker, run_program, type_command

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "integration" / "two_hosts_program.py"
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "upgrade.md"


def steps_of_the_page(island):
    """What the page has an operator type for one island, before and after the workers are restarted."""
    block = PAGE.read_text().partition("<!-- one island -->\n```sh\n")[2].partition("```")[0]
    lines = [line.partition("  #")[0].replace("island1", island) for line in block.splitlines()]
    middle = next(n for n, line in enumerate(lines) if line.startswith("#"))
    before, after = lines[:middle], lines[middle + 1:]
    assert len(before) == 1 and len(after) == 2 and all(line.startswith("fairway ") for line in before + after)
    return before, after


class Place:
    """A controller on ports that stay, and an island of two devices for each worker; each of one version or the other."""

    ISLANDS = ("island0", "island1", "island2")

    def __init__(self, folder, controller, workers):
        self.folder, self.plugin = folder, pathlib.Path(pytest.importorskip("xla_plugins.xla_cpu_pjrt").__path__[0])
        self.ports = free_ports(4)
        self.controller, self.workers = None, {}
        self.start_controller(controller)
        for island in self.ISLANDS:
            self.start_worker(island, workers)
        self.wait_until_all_are_up()

    def start_controller(self, binaries):
        flags = dict(zip(("port", "http-port", "link-port", "data-port"), self.ports))
        self.controller = Daemon(self.folder, "fairway-controller", *(f"--{k}={v}" for k, v in flags.items()),
                                 binaries=binaries)

    def start_worker(self, island, binaries):
        folder = self.folder / island
        folder.mkdir(exist_ok=True)
        self.workers[island] = Daemon(
            folder, "fairway-worker", f"--name={island}-0", f"--island={island}", "--devices=2",
            f"--plugin={self.plugin / 'xla_cpu_pjrt.so'}", f"--controller=127.0.0.1:{self.ports[2]}", binaries=binaries)

    def up(self):
        done = type_command(self.ports[0], ["get", "workers", "-o", "json"])
        return done.returncode == 0 and sum(w["up"] for w in json.loads(done.stdout)["items"])

    def wait_until_all_are_up(self):
        wait_for(lambda: self.up() == len(self.ISLANDS), "all workers")

    def protocols(self):
        items = json.loads(type_command(self.ports[0], ["get", "workers", "-o", "json"]).stdout)["items"]
        return [w["link_protocol"] for w in sorted(items, key=lambda w: w["island"])]

    def type(self, line, binaries=BIN):
        done = type_command(self.ports[0], shlex.split(line)[1:], binaries)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def jax(self):
        return clean_environment(JAX_PLATFORMS="fairway,cpu", FAIRWAY_CONTROLLER=f"127.0.0.1:{self.ports[0]}")

    def stop(self):
        for daemon in [*self.workers.values(), self.controller]:
            daemon.stop()


@pytest.fixture
def place(tmp_path):
    started = []

    def start(controller, workers):
        started.append(Place(tmp_path, controller, workers))
        return started[-1]

    yield start
    for each in started:
        each.stop()


class Training:
    """Trains on the two islands that take sessions, until it is told that it is enough."""

    def __init__(self, place, folder):
        folder.mkdir()
        self.enough, self.log = folder / "enough", folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen([sys.executable, str(PROGRAM)], cwd=folder, env=place.jax(), stdout=log,
                                            stderr=log, stdin=subprocess.DEVNULL)

    def steps(self):
        return len(re.findall(r"^step ", self.log.read_text(), re.M))

    def goes_on(self):
        steps = self.steps()
        wait_for(lambda: self.steps() > steps + 5 or self.process.poll() is not None, "steps of the training")
        assert self.process.poll() is None, self.log.read_text()[-3000:]

    def ends_well(self):
        self.enough.touch()
        assert self.process.wait(120) == 0, self.log.read_text()[-3000:]
        assert self.log.read_text().endswith("as NumPy computes them\n")


def test_islands_are_upgraded_one_by_one_under_a_training_run_on_the_others(place, previous, tmp_path):
    """Each time on two islands of which none, one or both have been upgraded, so executors of both versions pull from
    each other."""
    cluster = place(BIN, previous)
    assert cluster.protocols() == [13, 13, 13]
    for number, island in enumerate(Place.ISLANDS):
        before, after = steps_of_the_page(island)
        cluster.type(f"fairway cordon {island}")
        training = Training(cluster, tmp_path / f"training{number}")
        training.goes_on()
        for line in before:
            cluster.type(line)
        training.goes_on()
        old = cluster.workers[island]
        old.process.send_signal(signal.SIGTERM)
        assert old.process.wait(120) == 0
        cluster.start_worker(island, BIN)
        cluster.wait_until_all_are_up()
        for line in after:
            cluster.type(line)
        assert cluster.protocols() == [14] * (number + 1) + [13] * (2 - number)
        training.goes_on()
        training.ends_well()


def test_the_controller_is_upgraded_under_its_workers_and_goes_back(place, previous):
    """A worker of this version beside: sessions end with the controller, and workers come back by themselves."""
    cluster = place(previous, previous)
    program = "import jax, jax.numpy as jnp\nprint([float((jax.device_put(jnp.arange(4.), d) * 2).sum()) for d in jax.devices()])"
    for binaries in (BIN, previous, BIN):
        cluster.controller.stop()
        cluster.start_controller(binaries)
        cluster.wait_until_all_are_up()
        assert run_python("-c", program, env=cluster.jax()).stdout == f"{[12.0] * 6}\n"
        if binaries == BIN:
            continue
        # A worker that was upgraded before its controller works with it, too.
        cluster.workers["island0"].stop()
        wait_for(lambda: cluster.up() == 2, "the loss of a worker")
        cluster.start_worker("island0", BIN)
        cluster.wait_until_all_are_up()
        assert run_python("-c", program, env=cluster.jax()).stdout == f"{[12.0] * 6}\n"
    assert cluster.protocols() == [14, 13, 13]


def test_a_gang_spans_executors_of_both_versions(previous, tmp_path):
    """They push sums to each other. The page says that an island's workers go together; nothing breaks if not."""
    flags = ("--devices=1", "--island-workers=2")
    (tmp_path / "old").mkdir()
    with Controller(tmp_path) as running, \
            Worker(tmp_path / "old", running.link_port, previous, "old", flags), \
            Worker(tmp_path, running.link_port, BIN, "present", flags):
        wait_for(lambda: running.workers_up() == 2, "both workers")
        assert "[3, 3, 3, 3, 3, 3, 3, 3]" in (made := run_program(running.port)) and "[6, 6, 6, 6]" in made


@pytest.mark.parametrize("older", ["command line", "controller"])
def test_the_command_line_and_a_controller_of_the_other_version_understand_each_other(older, previous, tmp_path):
    command, controller = (previous, BIN) if older == "command line" else (BIN, previous)
    recorded = pathlib.Path(__file__).resolve().parent / "recorded" / "0.1" / "commands.jsonl"
    codes = {tuple(e["command"]): e["code"] for e in map(json.loads, recorded.read_text().splitlines())}
    with Controller(tmp_path, controller) as running, Worker(tmp_path, running.link_port, controller):
        wait_for(running.up, "the worker")
        assert "6, 6, 6, 6" in run_program(running.port, command)
        for words in COMMANDS:
            done = type_command(running.port, words, command)
            assert done.returncode == codes[tuple(words)], f"{words}\n{done.stdout}{done.stderr}"
