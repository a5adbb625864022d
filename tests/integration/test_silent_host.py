# SPDX-License-Identifier: Apache-2.0
"""A worker on a host of its own, namely a network namespace, whose cable is pulled."""

import os
import secrets
import shutil
import subprocess

import pytest

from cluster import BIN, clean_environment, free_ports, wait_for
from test_tls import make, tls_of, user_of


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)


@pytest.fixture
def other_host():
    """(namespace, this side's device, this side's address, the other's): another host with its own cable."""
    name = "fw" + secrets.token_hex(3)
    if shutil.which("ip") is None or os.geteuid() != 0 or ip("netns", "add", name, check=False).returncode != 0:
        pytest.skip("network namespaces need root and iproute2")
    here, there = name + "h", name + "t"
    network = f"10.231.{os.getpid() % 250}"  # there may be others
    try:
        ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", name)
        ip("addr", "add", f"{network}.1/30", "dev", here)
        ip("link", "set", here, "up")
        for command in (("addr", "add", f"{network}.2/30", "dev", there), ("link", "set", there, "up"),
                        ("link", "set", "lo", "up")):
            ip("-n", name, *command)
        yield name, here, f"{network}.1", f"{network}.2"
    finally:
        ip("netns", "delete", name, check=False)


def test_a_host_that_acknowledges_nothing_is_lost_long_before_the_deadline(other_host, tmp_path):
    namespace, device, address, far = other_host
    grpc, http, link, data = free_ports(4)
    # Nothing but the silence of the host tells of its loss.
    environment = clean_environment(XDG_STATE_HOME=str(tmp_path), FAIRWAY_EXECUTOR_DEADLINE="1h")
    certificates = tmp_path / "cluster"  # other hosts take some
    make(certificates, "far")
    log = (tmp_path / "processes.log").open("wb")

    def start(*command):
        return subprocess.Popen([str(part) for part in command], env=environment,
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    controller = start(BIN / "fairway-controller", f"--config={certificates}/fairway.toml",
                       f"--bind={address}", f"--port={grpc}",
                       f"--http-port={http}", f"--link-port={link}", f"--data-port={data}")
    worker = None

    def status():
        done = subprocess.run([BIN / "fairway", "status", "--controller", f"{address}:{grpc}",
                               *user_of(certificates)], env=environment, capture_output=True, text=True, timeout=120)
        return done.stdout

    try:
        worker = start("ip", "netns", "exec", namespace, BIN / "fairway-worker", "--name=far", "--island=i",
                       "--runtime=host", "--devices=1", f"--controller={address}:{link}",
                       f"--data-bind={far}:0", *tls_of(certificates, "far"))
        wait_for(lambda: "far          up" in status(), "the worker")
        for _ in range(3):  # again, as soon as it is back
            # The links of the executor and of the supervisor, and the pulse. Nothing else tells of the host.
            wait_for(lambda: connections(link) >= 3, "the worker's three connections")
            ip("link", "set", device, "down")
            wait_for(lambda: "far          down" in status(), "the loss of the host")
            assert "its host " in status() and " for 3 s" in status(), status()
            ip("link", "set", device, "up")
            wait_for(lambda: "far          up" in status(), "the host's return")
    finally:
        for process in (worker, controller):
            if process is not None:
                process.terminate()
                process.wait(120)
        log.close()


def connections(port):
    shown = subprocess.run(["ss", "-Htn", "state", "established", f"( sport = :{port} )"],
                           capture_output=True, text=True, check=True).stdout
    return len(shown.splitlines())
