# SPDX-License-Identifier: Apache-2.0
"""A controller and a worker without a compiler's plugin, on free ports: what dialogues are recorded of and played to."""

import os
import pathlib
import re
import signal
import subprocess

from cluster import BIN, EXAMPLES, clean_environment, wait_for

# One of each method of the administration, in this order. Tokens and certificates are refused: this controller has none.
COMMANDS = [
    ["status", "-o", "json"],
    *(["get", kind, "-o", "json"] for kind in ("sessions", "arrays", "programs", "nodes", "events", "islands", "workers")),
    ["describe", "worker", "w0"],
    ["cordon", "island0"], ["drain", "island0", "--timeout", "60s"], ["get", "islands"], ["uncordon", "island0"],
    ["cordon", "nowhere"],
    ["token", "create", "--role", "viewer"], ["token", "list"], ["token", "revoke", "1"],
    ["certificate", "list"], ["certificate", "revoke", "w9"],
    ["logs", "-n", "3"],
    ["restart", "w0"],
]


class Daemon:
    def __init__(self, folder, program, *flags, binaries=BIN):
        self.log = folder / f"{program}.log"
        with self.log.open("w") as out:
            self.process = subprocess.Popen([str(binaries / program), *flags], stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=out, env=clean_environment())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)

    def said(self, pattern):
        return re.search(pattern, self.log.read_text())


class Controller(Daemon):
    def __init__(self, folder, binaries=BIN):
        super().__init__(folder, "fairway-controller", "--port=0", "--http-port=0", "--link-port=0", "--data-port=0",
                         "--executor-deadline=600s", "--island-timeout=600s", binaries=binaries)
        self.port, self.link_port = map(int, wait_for(
            lambda: self.said(r"clients (\d+), HTTP \d+, workers (\d+)"), "the controller's ports").groups())

    def workers_up(self):
        """How many workers' executors are there."""
        return type_command(self.port, ["get", "workers", "-o", "json"]).stdout.count('"up": true')

    def up(self):
        return self.workers_up() == 1


class Worker(Daemon):
    def __init__(self, folder, link_port, binaries=BIN, name="w0", flags=("--devices=4",)):
        super().__init__(folder, "fairway-worker", "--runtime=host", f"--name={name}", "--island=island0", *flags,
                         f"--controller=127.0.0.1:{link_port}", binaries=binaries)

    def kill_executor(self, number):
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        (executor,) = [int(pid) for pid in children
                       if b"--role=executor" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(executor, number)


def type_command(port, words, binaries=BIN):
    return subprocess.run([str(binaries / "fairway"), *words, "--controller", f"127.0.0.1:{port}"], text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=240, env=clean_environment())


def run_program(port, binaries=BIN):
    """Two computations on the island, one after the other; returns what they made."""
    done = type_command(port, ["run", str(EXAMPLES / "programs" / "two_stages.txtpb"), "--slice=b=0", "--arg=x=1.5"],
                        binaries)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
