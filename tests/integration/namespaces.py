# SPDX-License-Identifier: Apache-2.0
"""Hosts as network namespaces at one switch, with the addresses 10.0.0.1, 10.0.0.2, ..."""

import contextlib
import os
import shutil
import subprocess

import pytest


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=120, check=False)


@contextlib.contextmanager
def network(count):
    """Yields the names of `count` namespaces. Skips the test where the system makes none."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root, and the program ip")
    names = [f"fairway-{os.getpid()}-{name}" for name in ("switch", *range(1, count + 1))]
    made = []
    try:
        for name in names:
            done = ip("netns", "add", name)
            if done.returncode != 0:
                pytest.skip(f"this system makes no network namespaces: {done.stderr.strip()}")
            made.append(name)
        switch, *others = names
        for words in (["add", "bridge", "type", "bridge"], ["set", "bridge", "up"]):
            done = ip("-n", switch, "link", *words)
            if done.returncode != 0:
                pytest.skip(f"this system has no bridges: {done.stderr.strip()}")
        for number, name in enumerate(others, 1):
            port = f"port{number}"
            for words in (["link", "add", port, "netns", switch, "type", "veth", "peer", "name", "up0", "netns", name],
                          ["-n", switch, "link", "set", port, "master", "bridge", "up"],
                          ["-n", name, "address", "add", f"10.0.0.{number}/24", "dev", "up0"],
                          ["-n", name, "link", "set", "up0", "up"], ["-n", name, "link", "set", "lo", "up"]):
                done = ip(*words)
                assert done.returncode == 0, done.stderr
        yield others
    finally:
        for name in made:
            ip("netns", "del", name)
