# SPDX-License-Identifier: Apache-2.0
"""Tokens: who clients are, what each role may do, and that revoking one ends what it opened."""

import contextlib
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import grpc
import pytest
from google.protobuf import descriptor_pb2

from cluster import BIN, clean_environment, wait_for
from test_settings import Daemon, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "programs" / "two_stages.txtpb"


class Cluster:
    """A controller with certificates, its data directory, and tokens of each role."""

    CONTROLLER = ("fairway-controller",)

    def __init__(self, folder):
        self.folder, self.directory = folder, folder / "cluster"
        assert run("fairway", "init", str(self.directory)).returncode == 0
        self.daemons, self.generation = [], 0
        self.start()

    def start(self):
        self.generation += 1
        self.controller = Daemon(self.folder / f"controller{self.generation}.log", *self.CONTROLLER, "--config",
                                 f"{self.directory}/fairway.toml", "--port=0", "--http-port=0", "--link-port=0",
                                 "--data-port=0")
        said = self.controller.wait("listening on")
        self.port, self.link, self.data = (
            int(said.partition(f"{word} ")[2].partition(",")[0]) for word in ("clients", "workers", "data"))
        self.daemons.append(self.controller)

    def island(self):
        for name in ("w0", "w1"):
            issued = self.directory / name
            assert run("fairway", "issue", name, "--from", str(self.directory)).returncode == 0
            self.daemons.append(Daemon(
                self.folder / f"{name}.log", "fairway-worker", f"--name={name}", f"--island={name}", "--runtime=host",
                "--devices=2", f"--controller=127.0.0.1:{self.link}", f"--tls-ca={issued}/ca.pem",
                f"--tls-certificate={issued}/worker.pem", f"--tls-key={issued}/worker.key"))
        self.controller.wait("islands up: 2")

    def flags(self, token=None):
        out = ["--controller", f"127.0.0.1:{self.port}", f"--tls-ca={self.directory}/ca.pem"]
        return out + ([f"--token-file={token}"] if token else [])

    def do(self, *words, token="admin.token"):
        return run("fairway", *words, *self.flags(self.directory / token))

    def sessions(self):
        return int(json.loads(self.do("status", "-o", "json").stdout)["counts"].get("sessions", 0))

    def audit(self, kind):
        path = self.directory / "data" / "audit" / f"{kind}.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def make(self, role, *flags):
        """Makes a token; returns its file and its id."""
        name = f"{role}{len(list(self.directory.glob('*.token')))}.token"
        done = self.do("token", "create", f"--role={role}", f"--to={self.directory / name}", *flags)
        assert done.returncode == 0, done.stderr
        return name, done.stderr.split()[1]


@pytest.fixture
def cluster(tmp_path):
    out = Cluster(tmp_path)
    yield out
    for daemon in reversed(out.daemons):
        if daemon.process.poll() is None:
            daemon.stop()


def test_a_controller_with_certificates_asks_for_a_token(cluster):
    cluster.island()
    without = run("fairway", "status", *cluster.flags())
    assert without.returncode == 1
    assert without.stderr == (
        "fairway status: cannot see the cluster's status without a token: an admin makes one (`fairway token "
        "create`), and the client gives the file that has it: --token-file, FAIRWAY_TOKEN_FILE, token_file\n")
    user, number = cluster.make("user", "--tenant=red")
    done = cluster.do("run", str(PROGRAM), "--arg", "x=1.5", token=user)
    assert done.returncode == 0, done.stderr
    denied = cluster.do("restart", "w0", token=user)
    assert denied.returncode == 1
    assert denied.stderr.startswith(
        f"fairway restart: token {number} (role user of tenant red) may not restart an executor; that takes the role "
        "admin or operator: ")
    denied = cluster.do("run", str(PROGRAM), "--arg", "x=1.5")
    assert "token 1 (role admin) may not open a session; that takes the role user" in denied.stderr


def test_a_token_goes_neither_without_tls_nor_from_a_file_that_others_read(cluster):
    token = cluster.directory / "admin.token"
    plain = run("fairway", "status", "--controller", f"127.0.0.1:{cluster.port}", f"--token-file={token}")
    assert plain.stderr == ("fairway status: --token-file needs --tls-ca: a token goes by TLS only; give the cluster's "
                            "CA, or no token\n")
    token.chmod(0o644)
    refused = cluster.do("status")
    assert "a token that other users can reach (mode 644); chmod 600 it" in refused.stderr
    token.chmod(0o600)
    with token.open() as file:
        done = subprocess.run([str(BIN / "fairway"), "status", *cluster.flags("/dev/fd/0")], stdin=file,
                              capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


def test_tokens_are_made_listed_and_revoked(cluster):
    viewer, number = cluster.make("viewer", "--ttl=2h")
    assert (cluster.directory / viewer).stat().st_mode & 0o777 == 0o600
    assert cluster.do("status", token=viewer).returncode == 0
    listed = json.loads(cluster.do("token", "list", "-o", "json").stdout)["tokens"]
    assert [(token["id"], token["role"]) for token in listed] == [("1", "admin"), (number, "viewer")]
    assert int(listed[1]["expires_s"]) - int(listed[1]["created_s"]) == 7200
    assert "fw_" not in json.dumps(listed)
    assert cluster.do("token", "list", token=viewer).returncode == 1
    assert cluster.do("token", "revoke", number).stdout == f"token {number} counts no longer\n"
    assert f"token {number} was revoked on " in cluster.do("status", token=viewer).stderr
    assert "revoked" in cluster.do("token", "list").stdout
    assert "there is no token 99" in cluster.do("token", "revoke", "99").stderr
    # A new process knows it, too.
    cluster.controller.stop()
    cluster.start()
    assert f"token {number} was revoked on " in cluster.do("status", token=viewer).stderr


@pytest.mark.parametrize("words, fault", [
    ([], "which verb?"),
    (["make"], "no verb 'make'"),
    (["create"], "'' is no role; there are admin, operator, user, viewer and worker"),
    (["create", "--worker=a b", "--data-directory=/no/such"], "'a b' is no name of a worker"),
    (["create", "--role=worker", "--data-directory=/no/such"], "'' is no name of a worker"),
    (["create", "--role=admin", "--worker=w0", "--data-directory=/no/such"], "a token of role admin names no worker"),
    (["create", "--role=user", "--ttl=soon"], "'soon' is no time such as 10s, 45m, 12h or 30d"),
    (["create", "--role=user", "--data-directory=/no/such"], "'' is no name of a tenant"),
    (["create", "--role=admin", "--tenant=red", "--data-directory=/no/such"], "only a user's has one"),
    (["create", "--role=admin", "--data-directory=/no/such/data"], "--data-directory: /no/such/data: No such file"),
    (["revoke"], "expected `fairway token revoke ID`"),
    (["revoke", "1x"], "expected `fairway token revoke ID`"),
])
def test_wrong_words_are_one_line(words, fault):
    done = run("fairway", "token", *words)
    assert done.returncode in (1, 2) and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and fault in done.stderr


def test_a_directory_has_one_controller_and_a_lost_token_is_made_anew_without_it(cluster):
    create = ["token", "create", "--role=admin", f"--data-directory={cluster.directory}/data",
              f"--to={cluster.directory}/second.token"]
    busy = run("fairway", *create)
    assert busy.returncode == 1 and "another process uses this directory" in busy.stderr
    other = run("fairway-controller", "--config", f"{cluster.directory}/fairway.toml", "--port=0", "--http-port=0",
                "--link-port=0", "--data-port=0")
    assert other.returncode == 1 and "another process uses this directory" in other.stderr
    cluster.controller.stop()
    assert run("fairway", *create).returncode == 0
    cluster.start()
    assert cluster.do("token", "list", token="second.token").returncode == 0


def test_a_controller_with_certificates_needs_a_data_directory(cluster):
    files = [f"--tls-ca={cluster.directory}/ca.pem", f"--tls-certificate={cluster.directory}/controller.pem",
             f"--tls-key={cluster.directory}/controller.key"]
    missing = run("fairway-controller", "--print-config", *files)
    assert missing.returncode == 2 and "--data-directory is missing: with certificates clients need tokens" in missing.stderr
    alone = run("fairway-controller", "--print-config", "--data-directory=/x")
    assert alone.returncode == 2 and "for which only a controller with certificates asks" in alone.stderr


def test_a_killed_controller_loses_no_revocation(cluster):
    """Revocations that were answered before kill -9, at whatever moment, hold in the next process."""
    for _ in range(3):
        tokens = [cluster.make("viewer") for _ in range(3)]
        revoker = subprocess.Popen(
            ["/bin/sh", "-c", 'for id in "$@"; do ' + " ".join(
                [str(BIN / "fairway"), "token", "revoke", '"$id"', *cluster.flags(cluster.directory / "admin.token")])
             + " || exit 1; done", "sh", *(number for _, number in tokens)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        answered = [revoker.stdout.readline()]
        cluster.controller.process.send_signal(signal.SIGKILL)
        cluster.controller.process.wait()
        answered += revoker.communicate(timeout=240)[0].splitlines()
        revoked = {line.split()[1] for line in answered if line.strip()}
        assert revoked
        cluster.start()
        for name, number in tokens:
            if number in revoked:
                assert f"token {number} was revoked on" in cluster.do("status", token=name).stderr


def methods():
    """All methods of the descriptors, but gRPC's own: (path, client streams, server streams)."""
    out = subprocess.run(
        ["protoc", f"-I{ROOT}/proto", "--include_imports", "--descriptor_set_out=/dev/stdout",
         *(str(path.relative_to(ROOT / "proto")) for path in (ROOT / "proto").rglob("*.proto"))],
        capture_output=True, check=True, timeout=240).stdout
    files = descriptor_pb2.FileDescriptorSet.FromString(out).file
    return [(f"/{file.package}.{service.name}/{method.name}", method.client_streaming, method.server_streaming)
            for file in files if not file.package.startswith("grpc.") for service in file.service
            for method in service.method]


def answer(channel, method, secret):
    """The code and the text with which a call of nothing ends."""
    path, client_streams, server_streams = method
    kind = f"{'stream' if client_streams else 'unary'}_{'stream' if server_streams else 'unary'}"
    call = getattr(channel, kind)(path)
    metadata = [("authorization", f"Bearer {secret}")] if secret else []
    try:
        out = call(iter([b""]) if client_streams else b"", metadata=metadata, timeout=240)
        if server_streams:
            list(out)
        return grpc.StatusCode.OK, ""
    except grpc.RpcError as error:
        return error.code(), error.details()


@contextlib.contextmanager
def gateway(cluster, token=None):
    """A channel to the controller, by a gateway: a certificate has no name of a host, which Python's
    gRPC wants."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        serving = Daemon(cluster.folder / "gateway.log", "fairway", "gateway",
                         *cluster.flags(token and cluster.directory / token), f"--listen=unix:{path}")
        wait_for(lambda: "listening on" in serving.log.read_text(), "the gateway")
        try:
            with grpc.insecure_channel(f"unix:{path}") as channel:
                yield channel
        finally:
            serving.process.terminate()
            serving.process.wait()


ADMIN, IFRT = "/fairway.v1.Admin/", "/xla.ifrt.proxy.GrpcIfrtService/"
OPERATORS = {"admin", "operator"}
MAY = {
    ADMIN + "GetStatus": {"admin", "operator", "user", "viewer"},
    **{ADMIN + "List" + kind: {"admin", "operator", "user", "viewer"} for kind in ("Sessions", "Arrays", "Programs", "Nodes", "Events")},
    ADMIN + "GetLogs": OPERATORS,
    ADMIN + "RestartExecutor": OPERATORS,
    **{ADMIN + verb + "Island": OPERATORS for verb in ("Cordon", "Uncordon", "Drain")},
    ADMIN + "Shutdown": OPERATORS,
    ADMIN + "CreateToken": {"admin"},
    ADMIN + "ListTokens": {"admin"},
    ADMIN + "RevokeToken": {"admin"},
    ADMIN + "Join": {"worker"},
    ADMIN + "ListCertificates": {"admin"},
    ADMIN + "RevokeCertificates": {"admin"},
    "/fairway.v1.Client/Session": {"user"},
    "/fairway.v1.Callbacks/Serve": {"user"},
    IFRT + "GetVersion": {"user"},
    IFRT + "IfrtSession": {"user"},
    IFRT + "HostBufferStore": {"user"},
    IFRT + "HostBufferLookup": {"user"},
    IFRT + "HostBufferDelete": {"user"},
    IFRT + "HostBufferReadFromDisk": {"user"},
}


def test_every_method_asks_who_calls(cluster):
    """Shutdown, which would end the test, comes last, with a role that may not call it."""
    secrets = {role: (cluster.directory / cluster.make(role, *flags)[0]).read_text().strip()
               for role, *flags in (("admin",), ("operator",), ("viewer",), ("user", "--tenant=red"), ("worker", "--worker=w9"))}
    every = methods()
    assert {path for path, *_ in every} == set(MAY), "a method without a rule, or a rule without a method"
    with gateway(cluster) as channel:
        for method in every:
            code, text = answer(channel, method, None)
            assert code == grpc.StatusCode.UNAUTHENTICATED and "without a token" in text, method
            code, text = answer(channel, method, "fw_" + 64 * "0")
            assert code == grpc.StatusCode.UNAUTHENTICATED and "does not know the token" in text, method
        # gRPC's own services: health answers everybody, and there is no reflection.
        assert answer(channel, ("/grpc.health.v1.Health/Check", False, False), None)[0] == grpc.StatusCode.OK
        assert answer(channel, ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", True, True),
                      None)[0] == grpc.StatusCode.UNIMPLEMENTED
        for role, secret in secrets.items():
            for method in every:
                if method[0] == ADMIN + "Shutdown" and role in OPERATORS:
                    continue
                code, text = answer(channel, method, secret)
                assert code != grpc.StatusCode.UNAUTHENTICATED, (role, method)
                assert (code != grpc.StatusCode.PERMISSION_DENIED) == (role in MAY[method[0]]), (role, method, text)


def test_a_gateway_makes_all_calls_as_its_own_user(cluster):
    user, _ = cluster.make("user", "--tenant=red")
    with gateway(cluster, user) as channel:
        status = next(method for method in methods() if method[0] == ADMIN + "GetStatus")
        for other in (None, "fw_" + 64 * "0", (cluster.directory / "admin.token").read_text().strip()):
            assert answer(channel, status, other)[0] == grpc.StatusCode.OK
            tokens = next(method for method in methods() if method[0] == ADMIN + "ListTokens")
            assert answer(channel, tokens, other)[0] == grpc.StatusCode.PERMISSION_DENIED


def test_wrong_tokens_of_an_address_are_slowed_and_right_ones_are_not(cluster):
    status = next(method for method in methods() if method[0] == ADMIN + "GetStatus")
    right = (cluster.directory / "admin.token").read_text().strip()

    def seconds(channel, secret):
        begin = time.monotonic()
        answer(channel, status, secret)
        return time.monotonic() - begin

    with gateway(cluster) as channel:
        for _ in range(10):
            seconds(channel, "fw_" + 64 * "1")
        # The eleventh within a minute: where ten take longer, others follow.
        wait_for(lambda: seconds(channel, "fw_" + 64 * "1") >= 2.0, "a refusal that takes 2 s")
        code, _ = answer(channel, status, right)
        assert code == grpc.StatusCode.OK


def test_a_user_lists_only_what_is_of_its_tenant(cluster):
    cluster.island()
    users = {tenant: cluster.make("user", f"--tenant={tenant}")[0] for tenant in ("red", "blue")}
    viewer, _ = cluster.make("viewer")
    running = [subprocess.Popen(
        [str(BIN / "fairway"), "run", str(PROGRAM), "--arg", "x=1.5", "--repeat=100000000",
         *cluster.flags(cluster.directory / user)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for user in users.values()]

    def tenants(kind, token):
        done = cluster.do("get", kind, "-o", "json", token=token)
        assert done.returncode == 0, done.stderr
        return {item["tenant"] for item in json.loads(done.stdout)["items"]}

    try:
        for kind in ("sessions", "programs", "arrays"):
            for token in ("admin.token", viewer):
                wait_for(lambda: tenants(kind, token) == {"red", "blue"}, f"the {kind} of all")
            for tenant, user in users.items():
                assert tenants(kind, user) == {tenant}, kind
        sessions = {item["tenant"]: str(item["id"])
                    for item in json.loads(cluster.do("get", "sessions", "-o", "json").stdout)["items"]}
        assert cluster.do("describe", "session", sessions["red"], token=users["red"]).returncode == 0
        foreign = cluster.do("describe", "session", sessions["red"], token=users["blue"])
        # As for one that does not exist.
        assert foreign.stderr == (
            f"fairway describe: no session '{sessions['red']}' (there is {sessions['blue']})\n")
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_revoking_ends_a_session_and_names_the_reason(cluster):
    """Also of a client that is stopped, and so reads nothing."""
    cluster.island()
    for stop in (False, True):
        user, number = cluster.make("user", "--tenant=red")
        running = subprocess.Popen(
            [str(BIN / "fairway"), "run", str(PROGRAM), "--arg", "x=1.5", "--repeat=100000000",
             *cluster.flags(cluster.directory / user)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: cluster.sessions() == 1, "the session")
        if stop:
            running.send_signal(signal.SIGSTOP)
        assert cluster.do("token", "revoke", number).returncode == 0
        wait_for(lambda: cluster.sessions() == 0, "the session's end")
        if stop:
            running.kill()
            running.communicate(timeout=240)
        else:
            _, said = running.communicate(timeout=240)
            assert running.returncode == 1 and f"token {number} was revoked on" in said


def test_refusals_uses_and_what_admins_do_are_in_the_audit_log(cluster):
    cluster.island()
    user, number = cluster.make("user", "--tenant=red")
    run("fairway", "status", *cluster.flags())
    assert cluster.do("run", str(PROGRAM), "--arg", "x=1.5", token=user).returncode == 0
    assert cluster.do("restart", "w0", token=user).returncode == 1
    assert cluster.do("restart", "w0").returncode == 0
    assert cluster.do("restart", "nobody").returncode == 1
    assert cluster.do("token", "revoke", number).returncode == 0
    assert cluster.do("down").returncode == 0
    said = [(line["verb"], line["code"], line.get("token")) for line in cluster.audit("refused")]
    assert said == [("see the cluster's status", "UNAUTHENTICATED", None),
                    ("restart an executor", "PERMISSION_DENIED", int(number))]
    sessions = [line for line in cluster.audit("used") if line["verb"] == "open a session"]
    assert len(sessions) == 1 and sessions[0]["tenant"] == "red" and sessions[0]["host"] == "127.0.0.1"
    assert [(line["verb"], line.get("object"), line["code"]) for line in cluster.audit("admin")] == [
        ("make or revoke tokens", f"make token {number}, role user of tenant red", "OK"),
        ("restart an executor", "w0", "OK"),
        ("restart an executor", "nobody", "NOT_FOUND"),
        ("make or revoke tokens", f"revoke token {number}", "OK"),
        ("end the cluster", None, "OK")]


def test_no_secret_is_in_a_log_an_argument_an_environment_or_the_data_directory(cluster):
    cluster.island()
    user, _ = cluster.make("user", "--tenant=red")
    secrets = {(cluster.directory / name).read_text().strip().removeprefix("fw_") for name in ("admin.token", user)}
    wrong = 64 * "5"
    own = {daemon.process.pid for daemon in cluster.daemons}
    with gateway(cluster, user) as channel:
        for method in methods()[:3]:
            answer(channel, method, "fw_" + wrong)
        running = subprocess.Popen(
            [str(BIN / "fairway"), "run", str(PROGRAM), "--arg", "x=1.5", "--repeat=100000000",
             *cluster.flags(cluster.directory / user)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: cluster.sessions() == 1, "the session")
            seen = 0
            for folder in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    texts = [(folder / name).read_bytes() for name in ("cmdline", "environ")]
                except OSError:
                    continue
                seen += str(cluster.directory).encode() in texts[0]
                for secret in secrets:
                    assert not any(secret.encode() in text for text in texts), folder
            assert seen >= len(own)  # the gateway and the program, too
        finally:
            running.kill()
            running.wait()
    run("fairway", "status", *cluster.flags())
    with gateway(cluster) as channel:
        answer(channel, methods()[0], "fw_" + wrong)
    cluster.controller.stop()
    files = [path for path in cluster.folder.rglob("*") if path.is_file() and path.suffix != ".token"]
    assert {"refused.log", "used.log", "fairway.db", "controller1.log", "w0.log"} <= {path.name for path in files}
    for path in files:
        for secret in [*secrets, wrong]:
            assert secret.encode() not in path.read_bytes(), path


def test_a_full_disk_refuses_new_tokens_and_not_running_work(cluster):
    """The data directory is a small file system, which is then filled."""
    cluster.controller.stop()
    data, here = cluster.directory / "data", cluster.folder / "before"
    shutil.copytree(data, here)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k,mode=0700", "none", str(data)], check=False,
                             capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("this user may mount nothing")
    try:
        shutil.copytree(here, data, dirs_exist_ok=True)
        data.chmod(0o700)
        cluster.start()
        cluster.island()
        user, number = cluster.make("user", "--tenant=red")
        with contextlib.suppress(OSError), (data / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        refused = cluster.do("token", "create", "--role=viewer")
        assert refused.returncode == 1 and "the controller's data directory takes no more" in refused.stderr
        done = cluster.do("run", str(PROGRAM), "--arg", "x=1.5", token=user)
        assert done.returncode == 0, done.stderr
        revoked = cluster.do("token", "revoke", number)
        if revoked.returncode != 0:
            assert "counts no longer, but this could not be written down" in revoked.stderr
        assert f"token {number} was revoked on" in cluster.do("status", token=user).stderr
        (data / "filler").unlink()
        assert cluster.do("token", "revoke", number).returncode == 0
        assert cluster.do("token", "create", "--role=viewer").returncode == 0
        for daemon in reversed(cluster.daemons):
            if daemon.process.poll() is None:
                daemon.stop()
    finally:
        subprocess.run(["umount", "-l", str(data)], check=False)


def join(line, folder):
    """Types what `fairway token create --worker` has printed, without the start of the worker."""
    line = re.sub(r" && fairway-worker --config \S+/fairway\.toml", "", line)
    return subprocess.run(["/bin/sh", "-c", line], cwd=folder, capture_output=True, text=True, timeout=240, check=False,
                          env={"PATH": f"{BIN}:/usr/bin:/bin"})


def test_a_worker_joins_by_a_token_which_works_once(cluster, tmp_path):
    created = cluster.do("token", "create", "--worker=w7")
    assert created.returncode == 0, created.stderr
    line = created.stdout
    assert line.startswith(f"fairway join 127.0.0.1:{cluster.port} --ca-hash sha256:")
    assert "fw_" not in line.splitlines()[0]  # the arguments
    done = join(line, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "w7 has what worker w7 needs" in done.stdout
    words = next(line for line in done.stdout.splitlines() if line.startswith("  fairway-worker ")).split()
    for name in ("ca.pem", "worker.pem", "worker.key", "fairway.toml"):
        assert (tmp_path / "w7" / name).stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "w7" / "worker.key.joining").exists()
    settings = (tmp_path / "w7" / "fairway.toml").read_text()
    assert f"controller = '127.0.0.1:{cluster.link}'" in settings and "data-bind = '127.0.0.1:0'" in settings
    words = [word.replace("w7/", f"{tmp_path}/w7/") for word in words]
    cluster.daemons.append(Daemon(tmp_path / "w7.log", *words, "--island=i", "--runtime=host", "--devices=2"))
    cluster.controller.wait("islands up: 1")
    again = join(line.replace("--to w7", "--to again"), tmp_path)
    assert again.returncode == 1 and "was used as often as it may be" in again.stderr
    assert not (tmp_path / "again" / "worker.key").exists()
    assert [(entry["object"], entry["code"]) for entry in cluster.audit("admin")] == [
        ("make token 2, role worker of name w7", "OK"), ("worker w7", "OK"), ("worker w7", "FAILED_PRECONDITION")]
    # Also in the next process.
    for daemon in reversed(cluster.daemons):
        daemon.stop()
    cluster.start()
    port = line.split()[2]
    again = join(line.replace("--to w7", "--to again").replace(port, f"127.0.0.1:{cluster.port}"), tmp_path)
    assert again.returncode == 1 and "was used as often as it may be" in again.stderr


def test_a_join_without_a_file_asks_for_the_token_and_does_not_show_it(cluster, tmp_path):
    created = cluster.do("token", "create", "--worker=w7")
    assert "without --token-file /dev/stdin <<'END' asks for the token" in created.stderr
    line, secret, _ = created.stdout.splitlines()
    words = [str(BIN / "fairway"), *line.partition(" --token-file")[0].split()[1:]]
    ours, theirs = pty.openpty()
    with subprocess.Popen(words, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs) as joins:
        os.close(theirs)
        said = os.read(ours, 4096)  # it asks
        os.write(ours, secret.encode() + b"\n")
        with contextlib.suppress(OSError):  # the end of a terminal
            while more := os.read(ours, 4096):
                said += more
    os.close(ours)
    assert joins.returncode == 0 and b"w7 has what worker w7 needs" in said and secret.encode() not in said, said
    # Where there is no terminal it comes by standard input.
    again = subprocess.run(words, cwd=tmp_path, input=secret, text=True, stderr=subprocess.PIPE, check=False)
    assert "was used as often as it may be" in again.stderr


def test_a_join_whose_answer_is_lost_is_repeated_with_the_same_line(cluster, tmp_path):
    """The worker's host cannot write what it got, and then it can: the token has counted once."""
    line = cluster.do("token", "create", "--worker=w7").stdout
    (tmp_path / "w7" / "worker.pem").mkdir(parents=True)
    (tmp_path / "w7").chmod(0o700)
    failed = join(line, tmp_path)
    assert failed.returncode == 1 and "cannot write w7/worker.pem" in failed.stderr
    stolen = join(line.replace("--to w7", "--to another"), tmp_path)
    assert stolen.returncode == 1 and "was used as often as it may be, by others" in stolen.stderr
    (tmp_path / "w7" / "worker.pem").rmdir()
    done = join(line, tmp_path)
    assert done.returncode == 0, done.stderr
    listed = json.loads(cluster.do("certificate", "list", "-o", "json").stdout)["certificates"]
    assert [(one["worker"], one["token"], one["revoked_s"]) for one in listed] == [("w7", "2", "0")]


def test_who_joins_believes_the_ca_of_that_hash_only_and_sends_no_token_elsewhere(cluster, tmp_path):
    line = cluster.do("token", "create", "--worker=w7").stdout
    hash = line.split("--ca-hash ")[1].split()[0]
    other = join(line.replace(hash, "sha256:" + 64 * "0"), tmp_path)
    assert other.returncode == 1 and "shows no CA with the hash sha256:0000" in other.stderr
    assert len(cluster.audit("used")) == 0 and not any(
        entry["verb"] == "join as a worker" for entry in cluster.audit("refused"))
    links = join(line.replace(f":{cluster.port} ", f":{cluster.link} "), tmp_path)
    assert links.returncode == 1 and len(links.stderr.splitlines()) == 1
    silent = join(line.replace(f":{cluster.port} ", ":1 "), tmp_path)
    assert silent.returncode == 1 and "no controller answers at 127.0.0.1:1" in silent.stderr
    assert join(line, tmp_path).returncode == 0  # nothing of that has used the token up


def test_a_controller_without_the_cas_key_lets_nobody_join(cluster):
    cluster.controller.stop()
    settings = cluster.directory / "fairway.toml"
    text = "".join(line for line in settings.read_text().splitlines(True) if "tls-ca-key" not in line)
    settings.write_text(text)
    cluster.start()
    refused = cluster.do("token", "create", "--worker=w7")
    assert refused.returncode == 1 and "this controller has not the CA's key (--tls-ca-key)" in refused.stderr
    wrong = run("fairway-controller", "--print-config", "--config", str(settings),
                f"--tls-ca-key={cluster.directory}/controller.key")
    assert wrong.returncode == 2 and "--tls-ca-key: what should sign it is no CA's certificate with its key" in wrong.stderr


def test_jax_is_told_in_one_line_what_is_wrong_with_its_token(cluster):
    viewer, number = cluster.make("viewer")
    user, revoked = cluster.make("user", "--tenant=red")
    assert cluster.do("token", "revoke", revoked).returncode == 0
    open_to_all = cluster.directory / "open.token"
    open_to_all.write_text((cluster.directory / user).read_text())
    open_to_all.chmod(0o644)
    for token, said in ((None, "cannot open a session without a token"),
                        (viewer, f"token {number} (role viewer) may not open a session; that takes the role user"),
                        (user, f"token {revoked} was revoked on"),
                        ("open.token", "a token that other users can reach")):
        words = [f"token_file='{cluster.directory / token}'"] if token else []
        done = subprocess.run(
            [sys.executable, "-c", "import fairway, jax; fairway.connect(" + ", ".join(
                [f"'127.0.0.1:{cluster.port}'", f"tls_ca='{cluster.directory}/ca.pem'", *words]) + "); jax.devices()"],
            capture_output=True, text=True, timeout=240, check=False, env=clean_environment(PATH=f"{BIN}:/usr/bin:/bin"))
        last = done.stderr.strip().splitlines()[-1]
        assert done.returncode != 0 and said in last, done.stderr
