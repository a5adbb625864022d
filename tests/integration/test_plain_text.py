# SPDX-License-Identifier: Apache-2.0
"""Plain text stays on the host, and is for the user whose cluster it is."""

import json
import os
import re
import socket
import ssl
import subprocess

import pytest

from cluster import BIN, wait_for
from test_settings import Daemon, run
from test_tls import PROGRAM, make, tls_of, user_of

NOBODY = 65534
CURE = "make some with `fairway init DIRECTORY` and give them by --tls-ca, --tls-certificate and --tls-key"


@pytest.mark.parametrize("program, flag", [
    ("fairway-controller", "--bind=0.0.0.0"),
    ("fairway-controller", "--bind=::"),
    ("fairway-controller", "--bind=192.0.2.1"),
    ("fairway-worker", "--data-bind=0.0.0.0:0"),
    ("fairway-worker", "--data-bind=[::]:0"),
    ("fairway-worker", "--relay-bind=0.0.0.0:0"),
])
def test_what_other_hosts_reach_takes_certificates(program, flag):
    done = run(program, flag, *(["--runtime=host"] if program == "fairway-worker" else ["--port=0"]))
    assert done.returncode == 2 and done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith(f"{program}: {flag}: other hosts can reach ") and CURE in line, line


def test_up_is_for_this_host():
    done = run("fairway", "up", "--runtime=host", "--bind=0.0.0.0")
    assert done.returncode == 2 and done.stdout == ""
    [line] = done.stderr.splitlines()
    assert "--bind=0.0.0.0: other hosts can reach it" in line and "`fairway init DIRECTORY`" in line


def test_with_certificates_it_listens_where_it_is_told(tmp_path):
    make(tmp_path / "cluster", "w0", "w1")
    controller = Daemon(tmp_path / "controller.log", "fairway-controller", "--config",
                        str(tmp_path / "cluster" / "fairway.toml"), "--bind=0.0.0.0", "--port=0", "--http-port=0",
                        "--link-port=0", "--data-port=0")
    workers = []
    try:
        said = controller.wait("listening on")
        assert "0.0.0.0 (reachable from other hosts; by TLS" in said
        grpc, http, link = re.search(r"clients (\d+), HTTP (\d+), workers (\d+)", said).groups()
        for number in (0, 1):
            workers.append(Daemon(
                tmp_path / f"w{number}.log", "fairway-worker", f"--name=w{number}", f"--island=island{number}",
                "--runtime=host", "--devices=2", f"--controller=127.0.0.1:{link}", "--data-bind=0.0.0.0:0",
                "--advertise-host=127.0.0.1", *tls_of(tmp_path / "cluster", f"w{number}")))
        controller.wait("islands up: 2")
        client = ["--controller", f"127.0.0.1:{grpc}", *user_of(tmp_path / "cluster")]
        ran = run("fairway", "run", str(PROGRAM), *client, "--arg", "x=1.5")
        assert ran.returncode == 0, ran.stderr  # compile processes get the flag, and no certificate
        status = run("fairway", "status", *client)
        assert f"metrics https://0.0.0.0:{http}/metrics" in status.stdout
    finally:
        for worker in workers:
            worker.stop()
        controller.stop()


# Connects to an address and says something; prints what comes back until the other end closes.
STRANGER = """
import socket, sys
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=120)
said = b""
try:
    peer.sendall(bytes.fromhex(sys.argv[3]))
    while part := peer.recv(4096):
        said += part
except (ConnectionResetError, BrokenPipeError):
    pass
print(said)
"""

GREETINGS = {
    "clients": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]),
    "workers": b"",
    "data": b"",
}


def as_user(user, address, port, data):
    done = subprocess.run(["/usr/bin/python3", "-c", STRANGER, address, str(port), data.hex()], capture_output=True,
                          text=True, check=True, timeout=120, user=user, cwd="/")
    return eval(done.stdout)


class Plain:
    """A controller and a worker in plain text at an address, and their ports by name."""

    def __init__(self, folder, address):
        literal = f"[{address}]" if ":" in address else address
        self.address, self.folder = address, folder
        self.controller = Daemon(folder / "controller.log", "fairway-controller", f"--bind={address}", "--port=0",
                                 "--http-port=0", "--link-port=0", "--data-port=0")
        said = self.controller.wait("listening on")
        names = ("clients", "HTTP", "workers", "data")
        self.ports = dict(zip(names, map(int, re.search(", ".join(rf"{name} (\d+)" for name in names), said).groups())))
        self.worker = Daemon(folder / "worker.log", "fairway-worker", "--name=w0", "--runtime=host",
                             f"--controller={literal}:{self.ports['workers']}", f"--data-bind={literal}:0",
                             f"--relay-bind={literal}:0")
        self.controller.wait("islands up: 1")
        self.ports |= wait_for(self.of_worker, "the ports of executor and relay")

    def of_worker(self):
        family = children(self.worker.process.pid)
        shown = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
        found = re.findall(r"(\S+)\s+\S+\s+users:\(\(\"fairway-worker\",pid=(\d+)", shown)
        ports = [int(at.rpartition(":")[2]) for at, pid in found if int(pid) in family]
        return {f"worker's {number}": port for number, port in enumerate(ports)} if len(ports) == 2 else None

    def stop(self):
        self.worker.stop()
        self.controller.stop()


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return list(map(int, file.read().split()))


@pytest.fixture(params=["127.0.0.1", "::1"])
def plain(request, tmp_path):
    cluster = Plain(tmp_path, request.param)
    yield cluster
    cluster.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_of_this_host_is_let_go_of(plain):
    refusal = f"it is user {NOBODY}'s, and plain text is for user 0"
    for name, port in plain.ports.items():
        if name == "HTTP":
            continue
        assert as_user(NOBODY, plain.address, port, GREETINGS.get(name, b"")) == b"", name
    wait_for(lambda: plain.controller.said(refusal), "the controller's line")
    wait_for(lambda: plain.worker.said(refusal), "the worker's line")
    # Whose cluster it is goes on.
    literal = f"[{plain.address}]" if ":" in plain.address else plain.address
    assert run("fairway", "status", "--controller", f"{literal}:{plain.ports['clients']}").returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_by_http_another_user_reads_that_it_lives_and_no_more(plain):
    def ask(user, path):
        said = as_user(user, plain.address, plain.ports["HTTP"],
                       f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return int(said.split()[1]), said.partition(b"\r\n\r\n")[2]

    assert ask(NOBODY, "/healthz") == (200, b"ok\n")
    assert ask(NOBODY, "/readyz") == (200, b"ready\n")
    for path in ("/", "/metrics", "/nothing"):
        assert ask(NOBODY, path) == (403, b"this is for another user\n")
    plain.controller.wait(f"it is user {NOBODY}'s, and plain text is for user 0")
    assert ask(0, "/metrics")[0] == 200


# Sends and closes at once: the kernel then knows no owner of its end any more.
GONE = """
import socket, sys
for _ in range(20):
    peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    try:
        peer.sendall(bytes.fromhex(sys.argv[3]))
    except (ConnectionResetError, BrokenPipeError):
        pass  # it was let go of before that
    peer.close()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_what_another_user_sends_and_leaves_behind_is_not_read(plain):
    for port in plain.ports.values():
        subprocess.run(["/usr/bin/python3", "-c", GONE, plain.address, str(port), (b"GET /metrics HTTP/1.1\r\n\r\n").hex()],
                       check=True, timeout=240, user=NOBODY, cwd="/")
    wait_for(lambda: plain.controller.said("a connection of"), "the controller's line")
    said = [line["msg"] for line in plain.controller.lines() if line["msg"].startswith("a connection of")]
    assert all("is not open on this host" in line or f"it is user {NOBODY}'s" in line for line in said), said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_cluster_of_another_user_serves_that_user_and_root(tmp_path):
    reached = subprocess.run(["test", "-x", str(BIN / "fairway")], user=1234, cwd="/", check=False)
    if reached.returncode != 0:
        pytest.skip("other users cannot reach the folder of the programs")
    log = tmp_path / "controller.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [str(BIN / "fairway-controller"), "--port=0", "--http-port=0", "--link-port=0", "--data-port=0"],
            stdout=out, stderr=out, user=1234, group=1234, extra_groups=[], cwd="/")
    try:
        def lines():
            return [json.loads(line)["msg"] for line in log.read_text().splitlines() if line.startswith("{")]

        said = wait_for(lambda: next((line for line in lines() if "listening on" in line), None), "the controller")
        port = re.search(r"clients (\d+)", said)[1]
        for user, served in ((1234, True), (0, True), (NOBODY, False)):
            done = subprocess.run([str(BIN / "fairway"), "status", "--controller", f"127.0.0.1:{port}"], user=user,
                                  capture_output=True, text=True, timeout=240, cwd="/", check=False)
            assert (done.returncode == 0) == served, done.stderr
        wait_for(lambda: [line for line in lines() if f"it is user {NOBODY}'s, and plain text is for user 1234" in line],
                 "the line")
    finally:
        process.terminate()
        assert process.wait(120) == 0


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    """(HTTP port, folder of its certificates, log) of a controller with certificates."""
    folder = tmp_path_factory.mktemp("secure")
    assert run("fairway", "init", str(folder / "cluster"), "--host=head.example.com").returncode == 0
    for role in ("viewer", "user"):
        assert run("fairway", "token", "create", f"--role={role}", *(["--tenant=red"] if role == "user" else []),
                   f"--to={folder}/cluster/{role}.token", f"--data-directory={folder}/cluster/data").returncode == 0
    controller = Daemon(folder / "controller.log", "fairway-controller", "--config",
                        str(folder / "cluster" / "fairway.toml"), "--http-name=head.example.com", "--port=0",
                        "--http-port=0", "--link-port=0", "--data-port=0")
    yield int(re.search(r"HTTP (\d+)", controller.wait("listening on"))[1]), folder / "cluster", controller
    controller.stop()


def ask(secure, path, newest=None, name="localhost", token="viewer", **headers):
    """(status, headers, text) of an answer by TLS, from a client that checks the certificate as browsers do. `token`:
    of that role, or a wrong one; None: none."""
    port, folder, _ = secure
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if token is not None:
        known = folder / f"{token}.token"
        headers["Authorization"] = f"Bearer {known.read_text().strip() if known.exists() else token}"
    if newest is not None:
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = newest
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=120), server_hostname=name) as peer:
        lines = [f"GET {path} HTTP/1.1", "Connection: close", *(f"{k}: {v}" for k, v in headers.items())]
        peer.sendall("\r\n".join([*lines, "", ""]).encode())
        said = b""
        while part := peer.recv(4096):
            said += part
    head, _, text = said.decode().partition("\r\n\r\n")
    return int(head.split()[1]), head, text


def test_http_speaks_tls_to_whom_ever_checks_names(secure):
    for name in ("localhost", "127.0.0.1", "head.example.com", socket.gethostname()):
        assert ask(secure, "/metrics", name=name, Host=name)[0] == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(secure, "/metrics", name="evil.example.com")
    assert ask(secure, "/healthz", ssl.TLSVersion.TLSv1_2)[2] == "ok\n"
    assert ask(secure, "/readyz")[0::2] == (503, "waiting\n")


@pytest.mark.filterwarnings("ignore:.*TLSv1:DeprecationWarning")
def test_http_speaks_neither_plain_text_nor_old_tls(secure):
    port, _, controller = secure
    with pytest.raises(ssl.SSLError):
        ask(secure, "/healthz", ssl.TLSVersion.TLSv1_1)

    def plain():
        with socket.create_connection(("127.0.0.1", port), timeout=120) as peer:
            peer.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            said = b""
            while part := peer.recv(4096):
                said += part
        assert b"ok" not in said and b"HTTP" not in said
        return controller.said("the other end does not speak TLS")

    wait_for(plain, "the controller's line")  # it has one a second


def test_by_tls_metrics_are_for_those_with_a_token_that_may_read_them(secure):
    for path in ("/", "/metrics", "/nothing"):
        status, _, text = ask(secure, path, token=None)
        assert status == 401 and "cannot read metrics without a token" in text and text.count("\n") == 1, text
        status, _, text = ask(secure, path, token="user")
        assert status == 403 and "viewer" in text and text.count("\n") == 1, text
    status, _, text = ask(secure, "/metrics", token="fw_" + "0" * 64)
    assert status == 401 and "0000" not in text, text
    assert "fairway_" in ask(secure, "/metrics", token="viewer")[2]
    assert "fairway_" in ask(secure, "/metrics", token="admin")[2]
    for path, word in (("/healthz", "ok\n"), ("/readyz", "waiting\n")):
        assert ask(secure, path, token=None)[2] == word


def test_by_tls_foreign_names_and_pages_get_nothing(secure):
    port = secure[0]
    for headers in ({"Host": "evil.example.com"}, {"Host": "10.9.8.7"}, {"Host": "localhost", "Origin": "https://evil.example.com"},
                    {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"},
                    {"Host": "localhost", "Sec-Fetch-Site": "same-site"}):
        for path in ("/", "/metrics", "/nothing"):
            status, head, text = ask(secure, path, **headers)
            assert status == 403 and text.count("\n") == 1 and "Access-Control" not in head, (headers, text)
            assert "Content-Security-Policy: default-src 'none'" in head
        assert ask(secure, "/healthz", **headers)[2] == "ok\n"
    own = {"Host": f"localhost:{port}", "Origin": f"https://localhost:{port}", "Sec-Fetch-Site": "same-origin"}
    assert ask(secure, "/metrics", **own)[0] == 200


def test_renewal_keeps_the_names_of_the_certificate(tmp_path):
    folder = tmp_path / "cluster"
    assert run("fairway", "init", str(folder), "--host=10.1.2.3", "--host=head.example.com").returncode == 0

    def names():
        decoded = ssl._ssl._test_decode_cert(str(folder / "controller.pem"))
        return {f"{kind} {name}" for kind, name in decoded["subjectAltName"]}

    before = names()
    assert {"URI fairway://controller", "IP Address 10.1.2.3", "DNS head.example.com", "DNS localhost"} <= before
    assert run("fairway", "issue", "--controller", "--from", str(folder)).returncode == 0
    assert names() == before
    assert run("fairway", "issue", "--controller", "--from", str(folder), "--host=10.1.2.4").returncode == 0
    assert "IP Address 10.1.2.4" in names() and "IP Address 10.1.2.3" not in names()
    wrong = run("fairway", "issue", "w0", "--from", str(folder), "--host=10.1.2.4")
    assert wrong.returncode == 2 and "--host is for the controller's only" in wrong.stderr
