# SPDX-License-Identifier: Apache-2.0
"""Health of workers and gateways, as probes ask for it."""

import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request

import grpc
import pytest

from cluster import BIN, clean_environment, wait_for
from test_settings import Daemon, run
from test_tls import Secured, make, tls_of

# Keeps its devices until its executor ends.
BUSY = """
import jax
result = jax.jit(lambda x: jax.lax.while_loop(lambda v: v * v < 2, lambda v: -v, x))(1.0)
print('CALLED', flush=True)
result.block_until_ready()
"""
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


def check(at):
    """What gRPC's health service says there."""
    with grpc.insecure_channel(at.removeprefix("http://")) as channel:
        return channel.unary_unary(CHECK)(b"", timeout=240)


def by_tls(port, offered):
    """A connection to the port, and which of the offered protocols it speaks."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(offered)
    secure = context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=240))
    return secure, secure.selected_alpn_protocol()


@contextlib.contextmanager
def unwrapped(port):
    """A port where one client speaks plain text with that port's TLS, as Python's gRPC believes no certificate without looking at its names."""
    def carry(source, sink):
        with contextlib.suppress(OSError):
            while part := source.recv(65536):
                sink.sendall(part)
            sink.shutdown(socket.SHUT_WR)

    secure, protocol = by_tls(port, ["h2"])
    assert protocol == "h2"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            plain, _ = listener.accept()
            with plain, secure:
                back = threading.Thread(target=carry, args=(secure, plain))
                back.start()
                carry(plain, secure)
                back.join()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    thread.join()


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
    assert check(url) == SERVING
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
    assert check(url) == NOT_SERVING
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
    port = int(url.rpartition(":")[2])
    with unwrapped(port) as at:
        assert check(at) == NOT_SERVING
    for offered in (["h2", "http/1.1"], ["http/1.1"]):  # the first as the probes of Kubernetes
        secure, protocol = by_tls(port, offered)
        with secure:
            assert protocol == "http/1.1"


def test_devices_that_compute_fail_no_probe(new_cluster):
    cluster = new_cluster(environment={"FAIRWAY_HTTP_BIND": "127.0.0.1:0"})
    [worker] = set(re.findall(r"health at (http://[0-9.:]+)", cluster.logs()))
    controller = f"http://127.0.0.1:{cluster.http_port}"
    with cluster.start_python("-c", BUSY) as client:
        try:
            assert client.stdout.readline() == "CALLED\n"
            wait_for(lambda: cluster.status()["islands"][0]["in_flight"] == 1, "the program to run")
            for _ in range(50):
                for url in (worker, controller):
                    assert ask(f"{url}/healthz") == (200, "ok\n") and ask(f"{url}/readyz") == (200, "ready\n")
                    assert check(url) == SERVING
                assert check(cluster.address) == SERVING
            assert cluster.status()["islands"][0]["in_flight"] == 1
        finally:
            client.kill()


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


@pytest.mark.parametrize("path, said", [
    ("/grpc.health.v1.Health/Watch", "only"), ("/fairway.v1.Admin/GetStatus", "the controller's port of clients is another (its --port, 29000 by default)"),
])
def test_there_is_no_other_call_at_a_port_of_health(daemons, path, said):
    worker = daemons("w0", "fairway-worker", "--name=w0", "--runtime=host", "--devices=1", "--controller=127.0.0.1:1", "--http-bind=127.0.0.1:0")
    with grpc.insecure_channel(url_of(worker).removeprefix("http://")) as channel:
        with pytest.raises(grpc.RpcError) as failed:
            channel.unary_unary(path)(b"", timeout=240)
        assert failed.value.code() == grpc.StatusCode.UNIMPLEMENTED and said in failed.value.details()


def test_a_client_of_grpc_that_asks_seldom_is_told_to_come_by_another_connection(daemons):
    worker = daemons("w0", "fairway-worker", "--name=w0", "--runtime=host", "--devices=1", "--controller=127.0.0.1:1", "--http-bind=127.0.0.1:0")
    with grpc.insecure_channel(url_of(worker).removeprefix("http://")) as channel:
        states = []
        channel.subscribe(states.append, try_to_connect=True)
        wait_for(lambda: grpc.ChannelConnectivity.READY in states, "a connection")
        # It asks for nothing.
        wait_for(lambda: states[-1] == grpc.ChannelConnectivity.IDLE, "the end of that connection")
        assert channel.unary_unary(CHECK)(b"", timeout=240) == NOT_SERVING


@pytest.mark.parametrize("bind, fault", [
    ("somewhere", "--http-bind is 'somewhere', not HOST:PORT; port 0: any free one"),
    ("10.0.0.1:0", "--http-bind is '10.0.0.1:0', which other hosts can reach: give the certificate"),
])
def test_a_gateway_that_cannot_serve_its_health_says_so_and_ends(tmp_path, bind, fault):
    done = run("fairway", "gateway", "--controller=127.0.0.1:1", f"--listen=unix:{tmp_path}/socket", "--tls-ca=ca.pem", f"--http-bind={bind}")
    assert done.returncode == 2 and fault in done.stderr


def test_a_gateway_has_the_health_of_its_controller(tmp_path):
    certificates = tmp_path / "cluster"
    make(certificates, "w0")
    secured = Secured(certificates, tmp_path)
    with tempfile.TemporaryDirectory() as folder:  # a socket's path must be short
        at = f"unix:{folder}/socket"
        gateway = subprocess.Popen(
            [str(BIN / "fairway"), "gateway", f"--controller=127.0.0.1:{secured.port}", f"--listen={at}", "--http-bind=127.0.0.1:0",
             f"--tls-ca={certificates}/ca.pem", f"--token-file={certificates}/user.token"],
            stdout=subprocess.PIPE, text=True, env=clean_environment(PATH="/usr/bin:/bin"))
        try:
            url = re.fullmatch(r"listening on \S+; health at (http://\S+)\n", gateway.stdout.readline()).group(1)
            assert ask(f"{url}/healthz") == (200, "ok\n")
            wait_for(lambda: ask(f"{url}/readyz") == (503, "waiting\n"), "its word that there is no island")
            with grpc.insecure_channel(at) as channel:
                passed_on = channel.unary_unary(CHECK)
                assert passed_on(b"", timeout=240) == NOT_SERVING  # there is no island
                secured.start("w0", "fairway-worker", "--name=w0", "--runtime=host", "--devices=1",
                              f"--controller=127.0.0.1:{secured.link}", *tls_of(certificates, "w0"))
                wait_for(lambda: passed_on(b"", timeout=240) == SERVING, "an island")
                wait_for(lambda: ask(f"{url}/readyz") == (200, "ready\n"), "its word that there is one")
                assert check(url) == SERVING
                assert ask(f"{url}/metrics") == (404, "not found: there are /healthz and /readyz\n")
                for daemon in reversed(secured.daemons):
                    daemon.stop()
                secured.daemons.clear()
                with pytest.raises(grpc.RpcError) as failed:
                    passed_on(b"", timeout=240)
                assert failed.value.code() == grpc.StatusCode.UNAVAILABLE
                wait_for(lambda: ask(f"{url}/readyz") == (503, "waiting\n"), "its word that its controller has gone")
                assert ask(f"{url}/healthz") == (200, "ok\n")
        finally:
            gateway.terminate()
            gateway.wait()
            for daemon in reversed(secured.daemons):
                daemon.stop()
