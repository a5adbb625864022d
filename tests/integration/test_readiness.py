# SPDX-License-Identifier: Apache-2.0
"""What a worker tells the service manager that starts it (systemd's Type=notify), while its controller is not there."""

import contextlib
import pathlib
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request

from cluster import BIN, clean_environment, free_ports, wait_for


@contextlib.contextmanager
def worker(*flags):
    """Its process, the function that returns what it has told its manager, and the address of its health."""
    link, http = free_ports(2)
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{folder}/notify")
        manager.setblocking(False)
        process = subprocess.Popen(
            [BIN / "fairway-worker", "--island=island0", "--name=w0", f"--controller=127.0.0.1:{link}", f"--http-bind=127.0.0.1:{http}", *flags],
            env={**clean_environment(), "NOTIFY_SOCKET": f"{folder}/notify"}, stderr=subprocess.PIPE)
        told = []

        def messages():
            with contextlib.suppress(BlockingIOError):
                told.append(manager.recv(1024).decode())
            return told

        try:
            yield process, messages, f"http://127.0.0.1:{http}/readyz"
        finally:
            process.terminate()
            process.communicate(timeout=60)


def test_a_worker_whose_controller_is_not_there_has_started_and_waits():
    with worker("--runtime=host") as (process, messages, health):
        wait_for(lambda: "READY=1" in messages(), "its word that it is ready")
        try:
            urllib.request.urlopen(health)
            raise AssertionError("it cannot run programs")
        except urllib.error.HTTPError as error:
            assert (error.code, error.read()) == (503, b"waiting\n")
        assert process.poll() is None


def test_a_worker_without_its_plugin_never_starts_whether_or_not_its_controller_is_there():
    missing = pathlib.Path(tempfile.gettempdir()) / "no-such-plugin.so"
    with worker("--runtime=pjrt", f"--plugin={missing}") as (process, messages, _):
        assert process.wait(120) == 3
        assert "READY=1" not in messages() + messages() + messages()
