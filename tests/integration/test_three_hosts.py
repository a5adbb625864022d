# SPDX-License-Identifier: Apache-2.0
"""From nothing to JAX over TLS on three hosts, by the commands of docs/install.md: each is in what the one before said.

The hosts are network namespaces, and have no files in common.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from cluster import BIN, clean_environment, wait_for
from namespaces import network

INSTALL = pathlib.Path(__file__).resolve().parents[2] / "docs" / "install.md"


def commands_in_the_page():
    """Those of the first block below "Several hosts", without their comments."""
    page = INSTALL.read_text().partition("## Several hosts")[2]
    block = page.partition("```sh\n")[2].partition("```")[0]
    return [re.sub(r"\s+#.*", "", line) for line in block.splitlines() if line.strip()]


class Host:
    """A network namespace, a directory, and the processes that were started there."""

    def __init__(self, namespace, folder):
        self.namespace, self.folder, self.running = namespace, folder, []
        folder.mkdir()

    def words(self, script):
        return ["ip", "netns", "exec", self.namespace, "/bin/sh", "-c", script]

    def environment(self):
        return clean_environment(PATH=f"{BIN}:/usr/sbin:/usr/bin:/sbin:/bin", HOME=str(self.folder))

    def type(self, script):
        """Returns what it writes to standard output."""
        done = subprocess.run(self.words(script), cwd=self.folder, capture_output=True, text=True, timeout=1200,
                              check=False, env=self.environment())
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, script, until):
        """Types something that goes on; returns the match of `until` in what it says."""
        log = self.folder / f"log{len(self.running)}"
        with log.open("w") as out:
            self.running.append(subprocess.Popen(self.words(script), cwd=self.folder, stdout=out, stderr=out,
                                                 stdin=subprocess.DEVNULL, env=self.environment(),
                                                 start_new_session=True))
        return self.says(until, log)

    def says(self, text, log):
        def look():
            assert self.running[-1].poll() is None, log.read_text()
            return re.search(text, log.read_text())
        return wait_for(look, f"'{text}' in {log}", seconds=240)

    def stop(self):
        for process in reversed(self.running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=60)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def hosts(tmp_path):
    """Three hosts with the addresses 10.0.0.1, 10.0.0.2 and 10.0.0.3 at one switch."""
    with network(3) as names:
        out = [Host(name, tmp_path / f"host{number}") for number, name in enumerate(names, 1)]
        try:
            yield out
        finally:
            for host in reversed(out):
                host.stop()


def test_five_commands_lead_to_jax_on_three_hosts(hosts):
    controller, worker, client = hosts
    page = commands_in_the_page()
    # 1
    said = controller.type(page[0])
    # 2
    command = next(line.strip() for line in said.splitlines() if line.startswith("  fairway-controller "))
    assert command == page[1]
    # 3
    command = controller.start(command, r"(fairway token create --worker NAME --from [^\s\"]+)")[1]
    command = command.replace("NAME", "w0").replace(f"{controller.folder}/", "")
    assert command == page[2]
    # 4
    lines = controller.type(command)
    start, end = page[3].split(" ... ")
    assert lines.splitlines()[0].startswith(f"{start} 10.0.0.1:29000 --ca-hash sha256:")
    assert lines.splitlines()[0].endswith(end)
    # 5
    command = worker.start(lines, r"  (fairway token create --role user --tenant NAME --from \S+)")[1]
    command = command.replace("NAME", "red")
    assert command == page[4]
    lines = controller.type(command)
    # JAX, as the lines say.
    connect = re.search(r"^# (fairway\.connect\(.*\))$", lines, re.MULTILINE)[1]
    controller.says("islands up: 1", controller.folder / "log0")
    program = f"import fairway, jax; {connect}; print(jax.devices()[0].platform, jax.numpy.arange(4.0).sum())"
    (client.folder / "program.py").write_text(program)
    assert client.type(f"{lines}{sys.executable} program.py").split()[-1] == "6.0"
    # And without a word in the program.
    (client.folder / "plain.py").write_text("import jax; print(jax.numpy.arange(4.0).sum())")
    assert client.type(f"{lines}JAX_PLATFORMS=fairway,cpu {sys.executable} plain.py").split()[-1] == "6.0"
