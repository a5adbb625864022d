# SPDX-License-Identifier: Apache-2.0
"""Health of workers and gateways, as probes ask for it."""

import os
import re
import signal
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request

import grpc
import pytest

from cluster import BIN, clean_environment, wait_for
from test_settings import Daemon, run
from test_tls import Secured, make, tls_of

CHECK = "/grpc.health.v1.Health/Check"
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"


def ask(url):
    """The status and the body of an answer."""
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE  # as the probes of Kubernetes
    try:
        with urllib.request.urlopen(url, timeout=240, context=unverified) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def url_of(worker):
    return re.search(r"health at (https?://\S+)", worker.wait("health at")).group(1)


@pytest.fixture
def daemons(tmp_path):
    started = []

    def start(name, program, *flags):
        started.append(Daemon(tmp_path / f"{name}.log", program, *flags))
        return started[-1]

    yield start
    for daemon in reversed(started):
        daemon.stop()


def controller_of(start, port=0):
    controller = start(f"controller{port}", "fairway-controller", "--port=0", "--http-port=0", f"--link-port={port}",
                       "--data-port=0")
    return controller, int(re.search(r"workers (\d+)", controller.wait("listening on")).group(1))


def test_a_worker_is_ready_while_it_can_run_programs(daemons):
    controller, link = controller_of(daemons)
    worker = daemons("w0", "fairway-worker", "--name=w0", "--runtime=host", "--devices=1",
                     f"--controller=127.0.0.1:{link}", "--http-bind=127.0.0.1:0")
    url = url_of(worker)
    assert ask(f"{url}/healthz") == (200, "ok\n")
    wait_for(lambda: ask(f"{url}/readyz") == (200, "ready\n"), "the worker to be ready")
    assert ask(f"{url}/metrics") == (404, "not found: there are /healthz and /readyz\n")
    assert ask(f"{url}/") == (404, "not found: there are /healthz and /readyz\n")

    # An executor that computes, or is stopped, is no fault of its worker: nobody may end it for that.
    executor = int(re.search(r"executor started, pid (\d+)", worker.wait("executor started")).group(1))
    os.kill(executor, signal.SIGSTOP)
    assert ask(f"{url}/healthz") == (200, "ok\n") and ask(f"{url}/readyz") == (200, "ready\n")
    os.kill(executor, signal.SIGCONT)

    os.kill(executor, signal.SIGKILL)
    worker.wait("starting it again")
    wait_for(lambda: ask(f"{url}/readyz") == (200, "ready\n"), "the next executor")

    controller.stop()
    wait_for(lambda: ask(f"{url}/readyz") == (503, "waiting\n"), "the worker to miss its controller")
    assert ask(f"{url}/healthz") == (200, "ok\n")
    controller_of(daemons, link)
    wait_for(lambda: ask(f"{url}/readyz") == (200, "ready\n"), "the worker to be back")


def test_a_worker_with_certificates_answers_by_tls(tmp_path, daemons):
    certificates = tmp_path / "cluster"
    make(certificates, "w0")
    worker = daemons("w0", "fairway-worker", "--name=w0", "--runtime=host", "--devices=1",
                     "--controller=127.0.0.1:1", "--http-bind=127.0.0.1:0", *tls_of(certificates, "w0"))
    url = url_of(worker)
    assert url.startswith("https://")
    assert ask(f"{url}/healthz") == (200, "ok\n")
    wait_for(lambda: ask(f"{url}/readyz") == (503, "waiting\n"), "its wait for a controller, which is not there")
    with pytest.raises(OSError):
        ask(url.replace("https", "http") + "/healthz")


@pytest.mark.parametrize("bind, fault", [
    ("somewhere", "--http-bind is 'somewhere', not HOST:PORT; port 0: any free one"),
    ("10.0.0.1:0", "--http-bind=10.0.0.1:0: other hosts can reach 10.0.0.1"),
    ("127.0.0.1:{taken}", "--http-bind=127.0.0.1:{taken}: "),
])
def test_a_worker_that_cannot_serve_its_health_says_so_and_ends(daemons, bind, fault):
    _, taken = controller_of(daemons)
    done = run("fairway-worker", "--name=w0", "--runtime=host", f"--controller=127.0.0.1:{taken}",
               f"--http-bind={bind.format(taken=taken)}")
    assert done.returncode != 0 and fault.format(taken=taken) in done.stderr


def test_a_gateway_has_the_health_of_its_controller(tmp_path):
    certificates = tmp_path / "cluster"
    make(certificates, "w0")
    secured = Secured(certificates, tmp_path)
    with tempfile.TemporaryDirectory() as folder:  # a socket's path must be short
        at = f"unix:{folder}/socket"
        gateway = subprocess.Popen(
            [str(BIN / "fairway"), "gateway", f"--controller=127.0.0.1:{secured.port}", f"--listen={at}",
             f"--tls-ca={certificates}/ca.pem", f"--token-file={certificates}/user.token"],
            stdout=subprocess.PIPE, text=True, env=clean_environment(PATH="/usr/bin:/bin"))
        try:
            assert "listening on" in gateway.stdout.readline()
            with grpc.insecure_channel(at) as channel:
                check = channel.unary_unary(CHECK)
                assert check(b"", timeout=240) == NOT_SERVING  # there is no island
                secured.start("w0", "fairway-worker", "--name=w0", "--runtime=host", "--devices=1",
                              f"--controller=127.0.0.1:{secured.link}", *tls_of(certificates, "w0"))
                wait_for(lambda: check(b"", timeout=240) == SERVING, "an island")
                for daemon in reversed(secured.daemons):
                    daemon.stop()
                secured.daemons.clear()
                with pytest.raises(grpc.RpcError) as failed:
                    check(b"", timeout=240)
                assert failed.value.code() == grpc.StatusCode.UNAVAILABLE
        finally:
            gateway.terminate()
            gateway.wait()
            for daemon in reversed(secured.daemons):
                daemon.stop()
