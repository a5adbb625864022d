# SPDX-License-Identifier: Apache-2.0
"""TLS of all ports but HTTP: certificates from `fairway init` and `fairway issue`, and what is refused."""

import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import tempfile

import pytest

from cluster import BIN, clean_environment, wait_for
from test_settings import Daemon, run

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "examples" / "programs" / "two_stages.txtpb"


def make(directory, *workers):
    assert run("fairway", "init", str(directory)).returncode == 0
    for worker in workers:
        assert run("fairway", "issue", worker, "--from", str(directory)).returncode == 0
    made = run("fairway", "token", "create", "--role=user", "--tenant=red", f"--to={directory}/user.token",
               f"--data-directory={directory}/data")
    assert made.returncode == 0, made.stderr


def user_of(directory):
    """The flags of a client of tenant red."""
    return [f"--tls-ca={directory}/ca.pem", f"--token-file={directory}/user.token"]


def tls_of(directory, worker):
    return [f"--tls-ca={directory}/{worker}/ca.pem", f"--tls-certificate={directory}/{worker}/worker.pem",
            f"--tls-key={directory}/{worker}/worker.key"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tls") / "cluster"
    make(directory, "w0", "w1")
    return directory


class Secured:
    """A controller with TLS, and the workers that a test starts."""

    def __init__(self, certificates, folder, *flags):
        self.folder, self.daemons = folder, []
        self.controller = self.start("controller", "fairway-controller", "--config",
                                     f"{certificates}/fairway.toml", "--port=0", "--http-port=0",
                                     "--link-port=0", "--data-port=0", *flags)
        said = self.controller.wait("listening on")
        self.port, self.link = (int(said.partition(f"{word} ")[2].partition(",")[0])
                                for word in ("clients", "workers"))

    def start(self, name, *words):
        self.daemons.append(Daemon(self.folder / f"{name}.log", *words))
        return self.daemons[-1]

    def worker(self, name, island, *flags):
        return self.start(name, "fairway-worker", f"--name={name}", f"--island={island}", "--runtime=host",
                          "--devices=2", f"--controller=127.0.0.1:{self.link}", *flags)


@pytest.fixture
def secured(certificates, tmp_path):
    cluster = Secured(certificates, tmp_path)
    yield cluster
    for daemon in reversed(cluster.daemons):
        if daemon.process.poll() is None:
            daemon.stop()


def test_a_cluster_with_tls_runs_a_program_over_two_islands(secured, certificates):
    for number in (0, 1):
        secured.worker(f"w{number}", f"island{number}", *tls_of(certificates, f"w{number}"))
    secured.controller.wait("islands up: 2")
    done = run("fairway", "run", str(PROGRAM), "--controller", f"127.0.0.1:{secured.port}", "--arg", "x=1.5",
               *user_of(certificates))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "doubled  f32[8]  [3, 3, 3, 3, 3, 3, 3, 3]\nsum  f32[4]  [6, 6, 6, 6]\n"


def test_what_init_and_issue_write_is_their_owners_alone(certificates):
    for folder, _, files in os.walk(certificates):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        for file in files:
            assert stat.S_IMODE(os.stat(os.path.join(folder, file)).st_mode) == 0o600
    again = run("fairway", "init", str(certificates))
    assert again.returncode == 1
    assert again.stderr == (f"fairway init: {certificates} has ca.key, and init replaces nothing, since a cluster "
                            "may need it; give another directory\n")


def test_init_and_issue_change_no_directory_that_is_there(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir(0o755)
    assert run("fairway", "init", str(theirs)).returncode == 0
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o755
    # The CA's key may be kept elsewhere.
    (theirs / "ca.key").rename(tmp_path / "ca.key")
    again = run("fairway", "init", str(theirs))
    assert again.returncode == 1 and f"{theirs} has ca.pem, and init replaces nothing" in again.stderr
    (tmp_path / "ca.key").rename(theirs / "ca.key")
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    refused = run("fairway", "issue", "w0", "--from", str(theirs), "--to", str(open_to_all))
    assert refused.returncode == 1 and f"other users can replace files in {open_to_all}" in refused.stderr
    assert not list(open_to_all.iterdir())


def test_the_controllers_certificate_is_renewed(tmp_path):
    make(tmp_path / "cluster")
    before = (tmp_path / "cluster" / "controller.pem").read_text()
    done = run("fairway", "issue", "--controller", "--from", str(tmp_path / "cluster"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "cluster" / "controller.pem").read_text() != before
    controller = Daemon(tmp_path / "controller.log", "fairway-controller", "--config",
                        str(tmp_path / "cluster" / "fairway.toml"), "--port=0", "--http-port=0", "--link-port=0",
                        "--data-port=0")
    try:
        controller.wait("listening on")
    finally:
        controller.stop()


@pytest.mark.parametrize("words, fault", [
    (["init"], "expected `fairway init DIRECTORY`"),
    (["init", "/x", "--days=0"], "--days is 0, not 1 to 36500"),
    (["init", "/proc/no"], "cannot make /proc/no"),
    (["issue", "w0"], "expected `fairway issue NAME --from DIRECTORY`"),
    (["issue", "a b", "--from", "/x"], "'a b' is no name of a worker in a certificate"),
    (["issue", "w0", "--from", "/no/such"], "--from takes the directory that `fairway init` made"),
])
def test_wrong_words_are_one_line(words, fault):
    done = run("fairway", *words)
    assert done.returncode in (1, 2) and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and fault in done.stderr


def test_daemons_refuse_files_that_cannot_be_theirs(certificates):
    def fault(program, *flags):
        done = run(program, "--print-config", *flags)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
        return done.stderr

    right = tls_of(certificates, "w0")
    assert "--tls-key is missing" in fault("fairway-worker", *right[:2])
    assert "is the certificate of worker w0, and this is a controller" in fault("fairway-controller", *right)
    # A key in the certificate's own file counts instead of --tls-key.
    alone = certificates / "w0" / "alone.pem"
    subprocess.run(["openssl", "x509", "-in", f"{certificates}/w0/worker.pem", "-out", str(alone)], check=True, timeout=240)
    assert "is not the key of the certificate" in fault(
        "fairway-worker", right[0], f"--tls-certificate={alone}", f"--tls-key={certificates}/w1/worker.key")
    assert "cannot be read" in fault("fairway-worker", *right[1:], "--tls-ca=/no/such.pem")


def test_strangers_are_refused_and_told_why(secured, certificates, tmp_path):
    other = tmp_path / "other"
    make(other, "w0")
    stranger = secured.worker("w0", "island0", *tls_of(other, "w0"))
    assert "the certificate of controller is refused" in stranger.wait("cannot connect to", "supervisor")
    stranger.stop()  # the controller logs one refusal a second, and the next one is waited for
    plain = secured.worker("plain", "island0")
    plain.wait("controller closed the link", "supervisor")
    secured.controller.wait("does not speak TLS: give both ends --tls-ca")
    # A worker of this cluster under another one's name ends with the reason.
    liar = secured.worker("w1", "island1", *tls_of(certificates, "w0"))
    assert liar.process.wait(240) != 0
    liar.wait("it calls itself worker 'w1', and its certificate (--tls-certificate) is that of worker 'w0'")
    # Bytes that are no TLS end their connection.
    with socket.create_connection(("127.0.0.1", secured.link), timeout=240) as raw:
        raw.sendall(b"GET / HTTP/1.0\r\n\r\n")
        raw.settimeout(240)
        while raw.recv(4096):
            pass
    # Nobody was disturbed.
    secured.worker("w1-right", "island1", *tls_of(certificates, "w1"), "--name=w1")
    secured.controller.wait("islands up: 1")


def test_a_worker_with_tls_is_told_that_its_controller_has_none(certificates, tmp_path):
    controller = Daemon(tmp_path / "controller.log", "fairway-controller", "--port=0", "--http-port=0",
                        "--link-port=0", "--data-port=0")
    link = controller.wait("listening on").partition("workers ")[2].partition(",")[0]
    worker = Daemon(tmp_path / "worker.log", "fairway-worker", "--name=w0", "--runtime=host",
                    f"--controller=127.0.0.1:{link}", *tls_of(certificates, "w0"))
    try:
        assert "TLS" in worker.wait("cannot connect to", "supervisor")
    finally:
        worker.stop()
        controller.stop()


def test_a_fault_in_the_files_of_tls_keeps_no_other_setting_from_changing(tmp_path):
    make(tmp_path / "cluster")
    settings = tmp_path / "cluster" / "fairway.toml"
    with settings.open("a") as file:
        file.write("port = 0\nhttp-port = 0\nlink-port = 0\ndata-port = 0\n")
    controller = Daemon(tmp_path / "controller.log", "fairway-controller", "--config", str(settings))
    try:
        controller.wait("listening on")
        (tmp_path / "cluster" / "controller.key").write_text("garbage")
        with settings.open("a") as file:
            file.write("log-level = 'debug'\n")
        assert "settings read again; changed: log-level from 'info' to 'debug'" in controller.reload()[0]["msg"]
        assert run("fairway", "config", "check", str(settings)).returncode == 1
    finally:
        controller.stop()


def test_a_worker_whose_certificate_is_refused_says_so_once(secured, certificates, tmp_path):
    """It believes the controller, and the controller does not believe it: in TLS 1.3 only its first reading tells."""
    other, both = tmp_path / "other", tmp_path / "both.pem"
    make(other, "w0")
    both.write_text((certificates / "ca.pem").read_text() + (other / "ca.pem").read_text())
    worker = secured.worker("w0", "island0", f"--tls-ca={both}", *tls_of(other, "w0")[1:])
    said = worker.wait("refuses this one's certificate (--tls-certificate)", "supervisor")
    assert "unknown ca" in said and "its log says why" in said
    refusals = "the certificate of worker w0 is refused"

    def refused():
        return [line for line in secured.controller.lines() if refusals in line["msg"]]

    wait_for(lambda: len(refused()) > 1, "it to come again")
    told = [line for line in worker.lines() if "refuses this one's certificate" in line["msg"]]
    assert len([line for line in told if line["component"] == "supervisor"]) == 1, told


def test_a_worker_that_is_killed_is_told_of_at_once(certificates, tmp_path):
    """Its connections end without a word of TLS. With a grace of an hour nothing else tells of its end."""
    cluster = Secured(certificates, tmp_path, "--link-grace=1h")
    try:
        worker = cluster.worker("w0", "island0", *tls_of(certificates, "w0"))
        cluster.controller.wait("islands up: 1")
        wait_for(lambda: connections(cluster.link) >= 3, "the executor's link, the supervisor's, and its pulse")
        worker.process.kill()
        worker.process.wait()
        cluster.controller.wait("the executor of worker w0 (island0) was lost")
    finally:
        cluster.controller.stop()


def connections(port):
    shown = subprocess.run(["ss", "-Htn", "state", "established", f"( sport = :{port} )"],
                           capture_output=True, text=True, check=True).stdout
    return len(shown.splitlines())


def executor_of(secured):
    up = [line["msg"] for line in secured.controller.lines() if line["msg"].startswith("executor of worker w0 is up")]
    return int(up[-1].rpartition("pid ")[2])


def test_a_certificate_that_is_replaced_counts_at_the_next_connection(secured, certificates, tmp_path):
    """First by another right one, then by one of a stranger's CA: who is connected stays."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    make(other)
    assert run("fairway", "issue", "w0", "--from", str(certificates), "--to", str(mine)).returncode == 0
    flags = [f"--tls-ca={mine}/ca.pem", f"--tls-certificate={mine}/worker.pem", f"--tls-key={mine}/worker.key"]
    worker = secured.worker("w0", "island0", *flags)
    secured.controller.wait("islands up: 1")
    assert run("fairway", "issue", "w0", "--from", str(certificates), "--to", str(mine)).returncode == 0
    restart = run("fairway", "restart", "w0", "--controller", f"127.0.0.1:{secured.port}",
                  f"--tls-ca={certificates}/ca.pem", f"--token-file={certificates}/admin.token")
    assert restart.returncode == 0, restart.stderr
    wait_for(lambda: len([line for line in secured.controller.lines() if "islands up: 1" in line["msg"]]) == 2,
             "the island's return with the new certificate")
    assert run("fairway", "issue", "w0", "--from", str(other), "--to", str(mine)).returncode == 0
    os.kill(executor_of(secured), signal.SIGKILL)
    worker.wait("the certificate of controller is refused", "executor")
    assert worker.process.poll() is None  # the supervisor's link stands


def faults(address, *flags):
    """What `fairway status` and `fairway run` (which uses the SDK) say: one line each."""
    out = []
    for words in (["status"], ["run", str(PROGRAM)]):
        done = run("fairway", *words, "--controller", address, *flags)
        assert done.returncode == 1 and done.stdout == ""
        assert len(done.stderr.splitlines()) == 1, done.stderr
        out.append(done.stderr)
    return out


def test_clients_and_controllers_that_do_not_fit_are_told_why(secured, certificates, tmp_path):
    address, ca = f"127.0.0.1:{secured.port}", f"--tls-ca={certificates}/ca.pem"
    assert run("fairway", "status", "--controller", address, *user_of(certificates)).returncode == 0
    assert run("fairway", "status", "--controller", address, FAIRWAY_TLS_CA=f"{certificates}/ca.pem",
               FAIRWAY_TOKEN_FILE=f"{certificates}/user.token").returncode == 0
    for said in faults(address):
        assert "the server there speaks TLS, and this client does not: give it the cluster's CA (--tls-ca" in said
    make(tmp_path / "other")
    for said in faults(address, f"--tls-ca={tmp_path}/other/ca.pem"):
        assert "certificate is refused" in said and "it must be signed by a CA in --tls-ca" in said
    for said in faults(f"127.0.0.1:{secured.link}", ca):
        assert "speaks TLS, but no gRPC: give the controller's clients' port" in said
    for said in faults(address, f"--tls-ca={certificates}/ca.key"):
        assert f"{certificates}/ca.key: has no certificate (PEM)" in said
    plain = secured.start("plain", "fairway-controller", "--port=0", "--http-port=0", "--link-port=0", "--data-port=0")
    port = plain.wait("listening on").partition("clients ")[2].partition(",")[0]
    for said in faults(f"127.0.0.1:{port}", ca):
        assert "the server there does not speak TLS, and this client does" in said


def connect(port, ca, newest=None):
    """A connection to the clients' port that has shaken hands and begun HTTP/2."""
    context = ssl.create_default_context(cafile=str(ca))
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    if newest is not None:
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, newest
    out = context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=240))
    out.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    return out


def pinged(connection):
    """Whether an HTTP/2 PING is answered."""
    connection.sendall(bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + b"8 bytes.")
    seen = b""
    while bytes([0, 0, 8, 6, 1, 0, 0, 0, 0]) + b"8 bytes." not in seen:
        more = connection.recv(4096)
        if not more:
            return False
        seen += more
    return True


def test_clients_see_the_controllers_new_certificate_and_their_streams_stand(tmp_path):
    mine, other = tmp_path / "mine", tmp_path / "other"
    make(mine)
    make(other)
    new_ca = tmp_path / "new-ca.pem"
    shutil.copy(other / "ca.pem", new_ca)
    cluster = Secured(mine, tmp_path)
    try:
        with connect(cluster.port, mine / "ca.pem") as before:
            assert pinged(before)
            for name in ("controller.key", "controller.pem", "ca.pem"):
                os.replace(other / name, mine / name)
            # The files are looked at when somebody connects, once a second.
            wait_for(lambda: run("fairway", "status", "--controller", f"127.0.0.1:{cluster.port}",
                                 f"--tls-ca={new_ca}", f"--token-file={mine}/user.token").returncode == 0,
                     "the new certificate")
            assert pinged(before)
    finally:
        cluster.controller.stop()


@pytest.mark.filterwarnings("ignore:.*TLSv1:DeprecationWarning")
def test_who_does_not_shake_hands_is_let_go_of(secured, certificates):
    ca = certificates / "ca.pem"
    with pytest.raises(ssl.SSLError, match="(?i)protocol"):
        connect(secured.port, ca, ssl.TLSVersion.TLSv1_1)
    with connect(secured.port, ca, ssl.TLSVersion.TLSv1_2) as oldest:
        assert oldest.version() == "TLSv1.2" and pinged(oldest)
    # 200 that say nothing, and one that says half a greeting.
    silent = [socket.create_connection(("127.0.0.1", secured.port), timeout=240) for _ in range(200)]
    silent[0].sendall(bytes([22, 3, 1, 2, 0, 1]))
    assert run("fairway", "status", "--controller", f"127.0.0.1:{secured.port}",
               *user_of(certificates)).returncode == 0
    for connection in silent:
        assert connection.recv(1) == b""
        connection.close()


JAX = """
import os, sys, fairway, jax, numpy as np
fairway.connect(sys.argv[1], tls_ca=sys.argv[2], token_file=sys.argv[3])
there = jax.device_put(np.arange(1 << 22))
print(len(jax.devices()), int(np.asarray(there).sum()), flush=True)
if sys.argv[4:] and os.fork() == 0:
    print("forked", flush=True)
sys.stdin.readline()
"""


class Jax:
    """A JAX program by TLS; it has printed a sum, and waits for its standard input."""

    def __init__(self, secured, ca, token, *words, code=JAX):
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, f"127.0.0.1:{secured.port}", str(ca), str(token), *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=clean_environment(PATH=f"{BIN}:/usr/bin:/bin"))

    def gateways(self):
        """The gateways of the cluster that the program has connected to."""
        mine = f"--controller={self.process.args[3]}".encode()
        out = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"gateway" in words and mine in words:
                out.append(int(folder.name))
        return out


@pytest.fixture
def island(secured, certificates):
    secured.worker("w0", "island0", *tls_of(certificates, "w0"))
    secured.controller.wait("islands up: 1")
    return secured


def sessions(secured, certificates):
    done = run("fairway", "status", "-o", "json", "--controller", f"127.0.0.1:{secured.port}",
               *user_of(certificates))
    return int(json.loads(done.stdout)["counts"].get("sessions", 0))


def test_jax_works_by_tls_and_its_gateway_ends_with_it(island, certificates):
    for end in ("orderly", "killed", "forked"):
        jax = Jax(island, certificates / "ca.pem", certificates / "user.token", *(["fork"] if end == "forked" else []))
        assert jax.process.stdout.readline() == f"2 {(1 << 22) * ((1 << 22) - 1) // 2}\n", jax.process.stderr.read()
        assert len(jax.gateways()) == 1 and sessions(island, certificates) == 1
        if end == "forked":  # the child lives on, and keeps no gateway
            assert jax.process.stdout.readline() == "forked\n"
        if end == "orderly":
            jax.process.communicate("end\n", timeout=240)
        else:
            jax.process.kill()
        wait_for(lambda: not jax.gateways(), "the gateway's end")
        wait_for(lambda: sessions(island, certificates) == 0, "the session's end")
        jax.process.communicate(timeout=240)


CALLBACK = """
import sys, fairway, jax, numpy as np
fairway.connect(sys.argv[1], tls_ca=sys.argv[2], token_file=sys.argv[3])
doubled = jax.jit(lambda v: jax.pure_callback(lambda a: np.float32(2) * a, v, v))
for value in range(3):
    print(float(doubled(np.float32(value))))
jax.debug.print("{} was printed by the client", 3)
jax.effects_barrier()
"""


def test_callbacks_of_jax_work_by_tls_and_token(secured, certificates, new_cluster):
    plugin = new_cluster(devices=1).executors()[0].flag("plugin")
    secured.start("w0", "fairway-worker", "--name=w0", f"--controller=127.0.0.1:{secured.link}", f"--plugin={plugin}",
                  *tls_of(certificates, "w0"))
    secured.controller.wait("islands up: 1")
    done = subprocess.run(
        [sys.executable, "-c", CALLBACK, f"127.0.0.1:{secured.port}", f"{certificates}/ca.pem", f"{certificates}/user.token"],
        text=True, capture_output=True, timeout=240, env=clean_environment(PATH=f"{BIN}:/usr/bin:/bin"))
    assert done.stdout == "0.0\n2.0\n4.0\n3 was printed by the client\n", done.stderr


LOSES = """
import sys, fairway, jax, numpy as np
fairway.connect(sys.argv[1], tls_ca=sys.argv[2], token_file=sys.argv[3])
there = jax.device_put(np.arange(1 << 22))
print(int(np.asarray(there).sum()), flush=True)
sys.stdin.readline()
for _ in range(2):
    try:
        jax.device_put(np.arange(1 << 16)).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        print(str(error).partition(":")[0], flush=True)
"""


@pytest.mark.parametrize("lost", ["gateway", "controller"])
def test_a_jax_session_whose_gateway_or_controller_goes_ends_with_one_line(island, certificates, lost):
    jax = Jax(island, certificates / "ca.pem", certificates / "user.token", code=LOSES)
    assert jax.process.stdout.readline() == f"{(1 << 22) * ((1 << 22) - 1) // 2}\n", jax.process.stderr.read()
    (gateway,) = jax.gateways()
    os.kill(gateway if lost == "gateway" else island.controller.process.pid, signal.SIGKILL)
    if lost == "controller":
        island.controller.process.wait()
        island.daemons.remove(island.controller)
    out, said = jax.process.communicate("on\n", timeout=240)
    assert out == "UNAVAILABLE\n" * 2, said
    line, = [line for line in said.splitlines() if line]
    if lost == "gateway":
        assert line.startswith(f"fairway: `fairway gateway` (pid {gateway}), by which this process reached 127.0.0.1:"), said
        assert "was ended by signal 9; so this session ended at" in line
    else:
        assert line.startswith("fairway: the controller at 127.0.0.1:") and "ended this session at" in line, said


def test_jax_says_in_one_line_why_there_is_no_tls(secured, certificates, tmp_path):
    make(tmp_path / "other")
    other = tmp_path / "other"
    _, said = Jax(secured, other / "ca.pem", other / "user.token").process.communicate(timeout=240)
    last = said.strip().splitlines()[-1]
    assert "no session by TLS: connecting to 127.0.0.1:" in last and "certificate is refused" in last


def test_a_gateway_serves_its_own_user_alone(secured, certificates, tmp_path):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = f"{folder}/socket"
        words = ["gateway", f"--controller=127.0.0.1:{secured.port}", f"--tls-ca={certificates}/ca.pem",
                 f"--listen=unix:{path}"]
        gateway = secured.start("gateway", "fairway", *words)
        wait_for(lambda: f"listening on unix:{path}" in gateway.log.read_text(), "the gateway")
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert "cannot listen on" in run("fairway", *words).stderr  # it is taken
        if os.geteuid() == 0:  # another user, who gets as far as the socket
            os.chmod(path, 0o666)
            other = subprocess.run(
                ["/usr/bin/python3", "-c", "import socket, sys; s = socket.socket(socket.AF_UNIX); "
                 "s.connect(sys.argv[1]); s.settimeout(60); print(s.recv(1))", path],
                capture_output=True, text=True, user=65534, cwd="/", check=False, timeout=240)
            assert other.stdout == "b''\n", other.stderr
        gateway.process.kill()
        gateway.process.wait()
        after = secured.start("after", "fairway", *words)  # the socket that was left behind is replaced
        wait_for(lambda: f"listening on unix:{path}" in after.log.read_text(), "the next gateway")
        after.process.terminate()
        assert after.process.wait(240) == 0 and not os.path.exists(path)


@pytest.mark.parametrize("words, fault", [
    ([], "--listen is '', not unix:PATH"),
    (["--listen=unix:/x"], "--tls-ca is missing"),
    (["--listen=unix:/x", "--tls-ca=/no/such"], "--tls-ca: /no/such: cannot be read"),
])
def test_a_gateways_wrong_words_are_one_line(words, fault):
    done = run("fairway", "gateway", *words)
    assert done.returncode in (1, 2) and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and fault in done.stderr
