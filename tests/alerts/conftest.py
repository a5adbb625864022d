# SPDX-License-Identifier: Apache-2.0
"""Debian's Prometheus with Fairway's rules, over clusters of real processes. On demand: it is downloaded."""

import json
import pathlib
import subprocess
import sys
import time
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tests" / "integration")]

from cluster import Cluster, free_ports  # noqa: E402

SETTINGS = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs: [{{job_name: fairway, static_configs: [{{targets: ["{target}"]}}]}}]
"""


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """Where prometheus is, unpacked and not installed: the package would start a service."""
    folder = tmp_path_factory.mktemp("prometheus")
    done = subprocess.run("apt-get -qq -o APT::Sandbox::User=root download prometheus && dpkg-deb -x prometheus_*.deb .", shell=True, cwd=folder,
                          text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "usr" / "bin"


class Prometheus:
    """Reads a cluster's metrics once a second."""

    def __init__(self, programs, folder, cluster):
        [self.port] = free_ports(1)
        (folder / "prometheus.yml").write_text(SETTINGS.format(
            rules=ROOT / "deploy" / "prometheus" / "fairway.rules.yaml", target=f"127.0.0.1:{cluster.http_port}"))
        with (folder / "prometheus.log").open("wb") as log:
            self.process = subprocess.Popen(
                [programs / "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
                 f"--web.listen-address=127.0.0.1:{self.port}"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def alerts(self):
        """(name, state) -> labels."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/alerts", timeout=30) as answer:
                told = json.load(answer)["data"]["alerts"]
        except OSError:
            return {}
        return {(one["labels"]["alertname"], one["state"]): one["labels"] for one in told}

    def wait_until_it_reads(self):
        self.wait_for("FairwayControllerRestarted")

    def wait_for(self, name, seconds=240):
        """The labels of the alert, once it fires."""
        end = time.monotonic() + seconds
        while (name, "firing") not in (alerts := self.alerts()):
            assert time.monotonic() < end and self.process.poll() is None, f"waited {seconds} s for {name}: {alerts}"
            time.sleep(0.5)
        return alerts[name, "firing"]

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


@pytest.fixture
def new_cluster(tmp_path):
    started = []

    def start(islands=1, devices=2, flags=(), environment=None):
        started.append(Cluster(islands, devices, flags, {"XDG_STATE_HOME": str(tmp_path), **(environment or {})}))
        return started[-1]

    yield start
    for cluster in started:
        cluster.stop()


@pytest.fixture
def prometheus(programs, tmp_path):
    """prometheus(cluster) starts one, which has read the cluster's metrics."""
    started = []

    def start(cluster):
        started.append(Prometheus(programs, tmp_path, cluster))
        started[-1].wait_until_it_reads()
        return started[-1]

    yield start
    for one in started:
        one.stop()
