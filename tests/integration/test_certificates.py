# SPDX-License-Identifier: Apache-2.0
"""Certificates of daemons: they are renewed before they end, and everything goes on."""

import datetime
import json
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess

import pytest

from cluster import BIN, wait_for
from test_settings import Daemon, run
from test_tickets import pull
from test_tls import connect, pinged
from test_tokens import PROGRAM, Cluster, join

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "operate.md"
LIFE = 30  # seconds that a certificate lives here; it is renewed when two thirds have passed


class Workers(Cluster):
    """A cluster with workers that join."""

    def join(self, name):
        """What the worker needs, in a directory of that name."""
        created = self.do("token", "create", f"--worker={name}")
        assert created.returncode == 0, created.stderr
        done = join(created.stdout, self.folder)
        assert done.returncode == 0, done.stderr
        return self.folder / name

    def work(self, name, files, *flags):
        self.daemons.append(Daemon(
            self.folder / f"{name}.log", "fairway-worker", f"--name={name}", f"--island={name}", "--runtime=host",
            "--devices=2", f"--controller=127.0.0.1:{self.link}", f"--tls-ca={files}/ca.pem",
            f"--tls-certificate={files}/worker.pem", f"--tls-key={files}/worker.key", *flags))
        return self.daemons[-1]


@pytest.fixture
def plain(tmp_path):
    out = Workers(tmp_path)
    yield out
    for daemon in reversed(out.daemons):
        if daemon.process.poll() is None:
            daemon.stop()


@pytest.fixture
def cluster(plain):
    """One whose workers' certificates live for seconds."""
    plain.controller.stop()
    settings = plain.directory / "fairway.toml"
    settings.write_text(settings.read_text() + f"worker-certificate-life = '{LIFE}s'\n")
    plain.start()
    return plain


def openssl(*words, text=None):
    return subprocess.run(["openssl", *words], input=text, capture_output=True, text=True, timeout=240, check=False)


def signed_by(authority, certificate):
    return openssl("verify", "-CAfile", str(authority), str(certificate)).returncode == 0


def end_of(certificate):
    said = openssl("x509", "-noout", "-enddate", "-in", str(certificate)).stdout
    end = datetime.datetime.strptime(said.strip().removeprefix("notAfter="), "%b %d %H:%M:%S %Y %Z")
    return end.replace(tzinfo=datetime.timezone.utc)


def executor_up(cluster, worker):
    said = json.loads(cluster.do("status", "-o", "json").stdout)
    return any(one["worker"] == worker and one["up"] for one in said.get("executors", []))


def test_a_worker_renews_its_certificate_and_all_its_processes_use_it(cluster):
    user, _ = cluster.make("user", "--tenant=red")
    files = {name: cluster.join(name) for name in ("w0", "w1")}
    ends = {name: end_of(path / "worker.pem") for name, path in files.items()}
    workers = {name: cluster.work(name, path) for name, path in files.items()}
    cluster.controller.wait("islands up: 2")
    for name, worker in workers.items():
        worker.wait(f"the certificate of worker {name} is renewed", "supervisor")
        worker.wait("has been replaced, and is used from now on", "supervisor")
        worker.wait("has been replaced, and is used from now on", "executor")
        assert end_of(files[name] / "worker.pem") > ends[name]
    # What they had first has ended; a new executor and its links show the new one.
    wait_for(lambda: datetime.datetime.now(datetime.timezone.utc) > max(ends.values()), "the first certificates' end")
    assert cluster.do("restart", "w0").returncode == 0
    wait_for(lambda: cluster.do("run", str(PROGRAM), "--arg", "x=1.5", token=user).returncode == 0, "a program")
    renewed = [line for line in cluster.audit("admin") if "renew the certificate" in line.get("object", "")]
    assert {"renew the certificate of worker w0", "renew the certificate of worker w1"} <= {
        line["object"] for line in renewed} and all(line["code"] == "OK" for line in renewed)


def test_without_the_cas_key_a_worker_says_so_once_and_goes_on(cluster):
    files = cluster.join("w0")
    cluster.controller.stop()
    settings = cluster.directory / "fairway.toml"
    settings.write_text("".join(line for line in settings.read_text().splitlines(True) if "tls-ca-key" not in line))
    cluster.start()
    worker = cluster.work("w0", files)
    said = worker.wait("cannot renew the certificate of worker w0", "supervisor")
    assert "this controller has not the CA's key (--tls-ca-key)" in said and "fairway issue w0" in said
    refused = lambda: [line for line in cluster.audit("admin") if "renew the certificate" in line.get("object", "")]
    wait_for(lambda: len(refused()) >= 3, "further tries")
    assert sum("cannot renew" in line["msg"] for line in worker.lines()) == 1
    assert worker.process.poll() is None and executor_up(cluster, "w0")


def test_a_worker_renews_over_a_change_of_the_ca_and_gets_all_of_them(cluster):
    files = cluster.join("w0")
    old = (cluster.directory / "ca.pem").read_text()
    assert (files / "ca.pem").read_text() == old
    worker = cluster.work("w0", files)
    cluster.controller.wait("islands up: 1")
    # The next CA comes first, and signs from now on; the one before is still believed.
    assert run("fairway", "init", str(cluster.folder / "next")).returncode == 0
    new = (cluster.folder / "next" / "ca.pem").read_text()
    for name, text in (("ca.pem", new + old), ("ca.key", (cluster.folder / "next" / "ca.key").read_text())):
        fresh = cluster.directory / f"{name}.fresh"
        fresh.touch(mode=0o600)
        fresh.write_text(text)
        fresh.replace(cluster.directory / name)
    worker.wait("the certificate of worker w0 is renewed", "supervisor")
    assert (files / "ca.pem").read_text() == new + old
    verified = openssl("verify", "-CAfile", str(cluster.folder / "next" / "ca.pem"), str(files / "worker.pem"))
    assert verified.returncode == 0, verified.stderr
    # So does one that joins now.
    joined = cluster.join("w1")
    assert (joined / "ca.pem").read_text() == new + old
    cluster.work("w1", joined)
    cluster.controller.wait("islands up: 2")


def step_of_another_ca(cluster, step):
    """Types what docs/operate.md says for one of its three steps."""
    block = PAGE.read_text().partition("\n## Another CA\n")[2].partition("\n## ")[0].split("```sh\n")[step].partition("```")[0]
    done = subprocess.run(["/bin/sh", "-ec", block], cwd=cluster.folder, capture_output=True, text=True, timeout=240, check=False,
                          env={"PATH": f"{BIN}:/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr


def test_another_ca_takes_over_in_three_steps_and_no_stream_ends(cluster):
    """Of a client's session, a list that is watched, a bare connection of HTTP/2, and the workers' links."""
    user, _ = cluster.make("user", "--tenant=red")
    files = {name: cluster.join(name) for name in ("w0", "w1")}
    workers = [cluster.work(name, path) for name, path in files.items()]
    cluster.controller.wait("islands up: 2")
    before = cluster.folder / "before.pem"
    shutil.copy(cluster.directory / "ca.pem", before)
    after = cluster.folder / "next" / "ca.pem"
    slow = cluster.folder / "slow.txtpb"
    slow.write_text(PROGRAM.read_text().replace("nanoseconds: 1000000 ", "nanoseconds: 100000000 "))
    session = ["run", str(slow), "--arg", "x=1.5", "--repeat=100000000", *cluster.flags(cluster.directory / user)]
    watch = ["get", "workers", "--watch", *cluster.flags(cluster.directory / "admin.token")]
    streams = [subprocess.Popen([str(BIN / "fairway"), *words], stdout=subprocess.DEVNULL) for words in (session, watch)]
    try:
        wait_for(lambda: cluster.sessions() == 1, "the session")
        with connect(cluster.port, before) as bare:
            step_of_another_ca(cluster, 1)
            both = (cluster.directory / "ca.pem").read_text()
            assert both == before.read_text() + after.read_text()
            wait_for(lambda: all((path / "ca.pem").read_text() == both for path in files.values()), "workers that know both")
            assert signed_by(before, files["w0"] / "worker.pem")
            step_of_another_ca(cluster, 2)
            assert signed_by(after, cluster.directory / "controller.pem")
            wait_for(lambda: all(signed_by(after, path / "worker.pem") for path in files.values()), "certificates of the next CA")
            workers.append(cluster.work("w2", cluster.join("w2")))
            cluster.controller.wait("islands up: 3")
            step_of_another_ca(cluster, 3)
            says = lambda ca: run("fairway", "status", "--controller", f"127.0.0.1:{cluster.port}", f"--tls-ca={ca}",
                                  f"--token-file={cluster.directory}/admin.token")
            assert says(cluster.directory / "ca.pem").returncode == 0
            assert "certificate is refused" in says(before).stderr
            assert pinged(bare) and all(stream.poll() is None for stream in streams) and cluster.sessions() == 1
        ups = [line["msg"] for line in cluster.controller.lines() if line["msg"].startswith("executor of worker")]
        assert len(ups) == 3 and all(" is up" in line for line in ups)
    finally:
        for stream in streams:
            stream.kill()
            stream.wait()
    # Who connects now shows a certificate of the next CA, and believes that one only.
    wait_for(lambda: all((path / "ca.pem").read_text() == (cluster.directory / "ca.pem").read_text()
                         for path in files.values()), "workers that have forgotten the CA before")
    assert cluster.do("restart", "w0").returncode == 0
    wait_for(lambda: cluster.do("run", str(PROGRAM), "--arg", "x=1.5", token=user).returncode == 0, "a program")
    assert all(worker.process.poll() is None for worker in workers)


SIGNING = """
[ca]
default_ca = cluster
[cluster]
database = {folder}/index
serial = {folder}/serial
new_certs_dir = {folder}
certificate = {cluster}/ca.pem
private_key = {cluster}/ca.key
default_md = sha256
policy = any
x509_extensions = controller
[any]
commonName = optional
[controller]
subjectAltName = URI:fairway://controller, DNS:here.example, IP:127.0.0.1
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
"""


def give_controller_seconds(cluster):
    """A certificate that ends LIFE seconds from now, and began, as all do, an hour before it was made."""
    folder = cluster.folder / "signing"
    folder.mkdir()
    (folder / "index").touch()
    (folder / "serial").write_text("1000")
    (folder / "settings").write_text(SIGNING.format(folder=folder, cluster=cluster.directory))
    request = openssl("req", "-new", "-key", str(cluster.directory / "controller.key"), "-subj", "/CN=x")
    (folder / "request").write_text(request.stdout)
    now = datetime.datetime.now(datetime.timezone.utc)
    begin, end = (f"{now + datetime.timedelta(seconds=s):%Y%m%d%H%M%SZ}" for s in (-3600, LIFE))
    signed = openssl("ca", "-batch", "-notext", "-config", str(folder / "settings"), "-in", str(folder / "request"),
                     "-startdate", begin, "-enddate", end, "-out", str(cluster.directory / "controller.pem"))
    assert signed.returncode == 0, signed.stderr


def served(cluster):
    """What the controller shows to the next client."""
    return ssl.get_server_certificate(("127.0.0.1", cluster.port), timeout=240)


def test_a_controller_with_the_cas_key_renews_its_own_certificate_and_streams_go_on(plain):
    plain.controller.stop()
    give_controller_seconds(plain)
    plain.start()
    first, end = served(plain), end_of(plain.directory / "controller.pem")
    plain.work("w0", plain.join("w0"))
    plain.controller.wait("islands up: 1")
    flags = plain.flags(plain.directory / "admin.token")
    watch = subprocess.Popen([str(BIN / "fairway"), "get", "workers", "--watch", *flags], stdout=subprocess.DEVNULL)
    try:
        plain.controller.wait("the certificate of the controller is renewed")
        assert "DNS:here.example" in openssl("x509", "-noout", "-ext", "subjectAltName", "-in",
                                             str(plain.directory / "controller.pem")).stdout
        wait_for(lambda: served(plain) != first, "the new certificate on the port for clients")
        wait_for(lambda: datetime.datetime.now(datetime.timezone.utc) > end, "the first certificate's end")
        assert executor_up(plain, "w0")
        assert plain.do("restart", "w0").returncode == 0  # its links shake hands anew
        wait_for(lambda: executor_up(plain, "w0"), "the executor")
        assert watch.poll() is None
    finally:
        watch.terminate()
        watch.wait()
    renewed = [line for line in plain.audit("admin") if "certificate of the controller" in line.get("object", "")]
    assert renewed and all(line["code"] == "OK" for line in renewed)


def listed(cluster, worker):
    """Of the certificates of a worker, whether each counts."""
    said = json.loads(cluster.do("certificate", "list", "-o", "json").stdout)["certificates"]
    return [one["revoked_s"] == "0" for one in said if one["worker"] == worker]


def test_revoking_ends_a_workers_connections_and_keeps_it_out(plain):
    """Also one whose certificate `fairway issue` has made, and over kill -9 of the controller."""
    cluster = plain
    joined = cluster.join("w0")
    issued = cluster.folder / "w1"
    assert run("fairway", "issue", "w1", "--from", str(cluster.directory), "--to", str(issued)).returncode == 0
    workers = {"w0": cluster.work("w0", joined), "w1": cluster.work("w1", issued)}
    cluster.controller.wait("islands up: 2")
    assert listed(cluster, "w0") == [True] and listed(cluster, "w1") == []
    for name, known in (("w0", 1), ("w1", 0)):
        revoked = cluster.do("certificate", "revoke", name)
        assert revoked.stdout.startswith(f"no certificate of worker {name} counts any more: {known} of this controller")
        wait_for(lambda name=name: not executor_up(cluster, name), "the executor's loss")
        # Its daemon is told, and ends.
        wait_for(lambda name=name: workers[name].process.poll() == 4, "the worker's end")
        assert "its certificate was revoked by an admin" in workers[name].said("ends with code 4", "supervisor")
    assert listed(cluster, "w0") == [False]
    for again in (False, True):
        if again:
            cluster.controller.process.send_signal(signal.SIGKILL)
            cluster.controller.process.wait()
            cluster.start()
        for name, files in (("w0", joined), ("w1", issued)):
            back = cluster.work(name, files)
            cluster.controller.wait(f"the certificate of worker {name} was revoked on")
            assert not executor_up(cluster, name)
            back.stop()
    # An admin lets it come back.
    shutil.rmtree(joined)
    cluster.join("w0")
    cluster.work("w0", joined)
    cluster.controller.wait("islands up: 1")
    assert sorted(listed(cluster, "w0")) == [False, True]
    said = [(line["verb"], line["object"], line["code"]) for line in cluster.audit("admin")
            if line["verb"] == "revoke certificates"]
    assert said == [("revoke certificates", "worker w0", "OK"), ("revoke certificates", "worker w1", "OK")]


class Dials:
    """Connects with a worker's certificate."""

    def __init__(self, files):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname = False
        self.context.load_verify_locations(files / "ca.pem")
        self.context.load_cert_chain(files / "worker.pem", files / "worker.key")

    def dial(self, port):
        return self.context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=240))

    def counts(self, port):
        """Whether the data port answers such a connection: in TLS 1.3 who dials has shaken hands before it is looked
        at."""
        try:
            with self.dial(port) as dialed:
                return answers(dialed)
        except OSError:
            return False

    def is_refused(self, port):
        """Waits until the port has ended such a connection. Data ports end only what they refuse."""
        try:
            with self.dial(port) as dialed:
                return ended(dialed)
        except OSError:
            return True


def data_ports(worker):
    return [int(line["msg"].rpartition(":")[2]) for line in worker.lines() if "data port 127.0.0.1:" in line["msg"]]


def ended(dialed):
    """Waits until the other end closes it."""
    try:
        return dialed.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def answers(dialed):
    """Whether the data port at the other end answers."""
    dialed.sendall(pull(1, 1, 1))
    return len(dialed.recv(1 << 16)) >= 32


def test_other_workers_refuse_one_that_was_revoked_and_end_its_connections(plain):
    cluster = plain
    files = {name: cluster.join(name) for name in ("w0", "w1")}
    workers = {name: cluster.work(name, path, "--relay-bind=127.0.0.1:0") for name, path in files.items()}
    cluster.controller.wait("islands up: 2")
    stolen = Dials(files["w0"])
    relay = int(workers["w1"].wait("the relay of worker w1 listens at").rpartition(":")[2])
    data, = data_ports(workers["w1"])
    assert stolen.counts(data)
    standing = [stolen.dial(port) for port in (data, relay)]
    at_controller = stolen.dial(cluster.data)
    assert answers(standing[0])
    assert cluster.do("certificate", "revoke", "w0").returncode == 0
    for dialed in (*standing, at_controller):
        assert ended(dialed)
    workers["w1"].wait("with workers whose certificates were revoked are ended", "executor")
    for port in (data, relay):
        assert stolen.is_refused(port)
    workers["w1"].wait("the certificate of worker w0 was revoked on", "executor")
    workers["w1"].wait("the certificate of worker w0 was revoked on", "relay")
    # An executor that registers later knows it, too.
    assert cluster.do("restart", "w1").returncode == 0
    wait_for(lambda: len(data_ports(workers["w1"])) == 2, "the next executor")
    again = data_ports(workers["w1"])[1]
    assert stolen.is_refused(again)
    # What the controller has issued since counts everywhere.
    wait_for(lambda: workers["w0"].process.poll() == 4, "the end of the worker that was revoked")
    shutil.rmtree(files["w0"])
    back = Dials(cluster.join("w0"))
    wait_for(lambda: back.counts(again), "its next certificate to count")
    assert executor_up(cluster, "w1")


def test_a_killed_controller_loses_no_revocation_of_certificates(plain):
    """Those that were answered before kill -9, at whatever moment, hold in the next process."""
    cluster = plain
    for turn in range(3):
        names = [f"w{turn}{number}" for number in range(3)]
        # One of which the controller knows, and two that it has not made.
        cluster.join(names[0])
        for name in names[1:]:
            issued = run("fairway", "issue", name, "--from", str(cluster.directory), "--to", str(cluster.folder / name))
            assert issued.returncode == 0, issued.stderr
        revoker = subprocess.Popen(
            ["/bin/sh", "-c", 'for name in "$@"; do ' + " ".join(
                [str(BIN / "fairway"), "certificate", "revoke", '"$name"',
                 *cluster.flags(cluster.directory / "admin.token")]) + " || exit 1; done", "sh", *names],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        answered = [revoker.stdout.readline()]
        cluster.controller.process.send_signal(signal.SIGKILL)
        cluster.controller.process.wait()
        answered += revoker.communicate(timeout=240)[0].splitlines()
        revoked = {line.removeprefix("no certificate of worker ").split()[0] for line in answered if line.strip()}
        assert revoked and revoked <= set(names)
        cluster.start()
        for name in revoked:
            back = cluster.work(name, cluster.folder / name)
            cluster.controller.wait(f"the certificate of worker {name} was revoked on")
            assert not executor_up(cluster, name)
            back.stop()


@pytest.mark.parametrize("words, fault", [
    ([], "which verb?"),
    (["make"], "no verb 'make'"),
    (["revoke"], "expected `fairway certificate revoke NAME`"),
    (["list", "-o", "xml"], "--output must be text or json, not 'xml'"),
])
def test_wrong_words_are_one_line(words, fault):
    done = run("fairway", "certificate", *words)
    assert done.returncode in (1, 2) and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and fault in done.stderr


PKI = """
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
[daemon]
subjectAltName = ${ENV::NAMES}
extendedKeyUsage = serverAuth, clientAuth
"""


class Pki:
    """A root with an RSA key, and an authority below it, which signs the daemons' certificates."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        (folder / "settings").write_text(PKI)
        self.key("root", "RSA", "rsa_keygen_bits:2048")
        self.openssl("req", "-new", "-x509", "-key", "root.key", "-subj", "/CN=root", "-days", "10", "-extensions", "ca",
                     "-out", "root.pem")
        self.sign("below", "root", "ca")

    def openssl(self, *words, names=""):
        config = ["-config", "settings"] if words[0] == "req" else []
        subprocess.run(["openssl", *words, *config], cwd=self.folder, check=True, capture_output=True, timeout=240,
                       env={"PATH": "/usr/bin:/bin", "NAMES": names})

    def key(self, name, algorithm="EC", option="ec_paramgen_curve:P-256"):
        self.openssl("genpkey", "-algorithm", algorithm, "-pkeyopt", option, "-out", f"{name}.key")
        (self.folder / f"{name}.key").chmod(0o600)

    def sign(self, name, by, extensions, names="", **key):
        self.key(name, **key)
        self.openssl("req", "-new", "-key", f"{name}.key", "-subj", f"/CN={name}", "-out", "request")
        self.openssl("x509", "-req", "-in", "request", "-CA", f"{by}.pem", "-CAkey", f"{by}.key", "-CAcreateserial", "-days",
                     "9", "-extfile", "settings", "-extensions", extensions, "-out", f"{name}.pem", names=names)

    def daemon(self, name, names, **key):
        """The flags of a daemon: three files."""
        self.sign(name, "below", "daemon", names, **key)
        chain = self.folder / f"{name}.pem"
        chain.write_text(chain.read_text() + (self.folder / "below.pem").read_text())
        return [f"--tls-ca={self.folder}/root.pem", f"--tls-certificate={chain}", f"--tls-key={self.folder}/{name}.key"]


def test_a_pki_of_ones_own_takes_three_files_for_each_daemon(tmp_path):
    pki, data = Pki(tmp_path / "pki"), tmp_path / "data"
    token = tmp_path / "user.token"
    made = run("fairway", "token", "create", "--role=user", "--tenant=red", f"--to={token}", f"--data-directory={data}")
    assert made.returncode == 0, made.stderr
    daemons = [Daemon(tmp_path / "controller.log", "fairway-controller", "--port=0", "--http-port=0", "--link-port=0",
                      "--data-port=0", f"--data-directory={data}",
                      *pki.daemon("controller", "URI:fairway://controller", algorithm="RSA", option="rsa_keygen_bits:2048"))]
    try:
        said = daemons[0].wait("listening on")
        port, link = (int(said.partition(f"{word} ")[2].partition(",")[0]) for word in ("clients", "workers"))
        for name in ("w0", "w1"):
            daemons.append(Daemon(tmp_path / f"{name}.log", "fairway-worker", f"--name={name}", f"--island={name}",
                                  "--runtime=host", "--devices=2", f"--controller=127.0.0.1:{link}",
                                  *pki.daemon(name, f"URI:fairway://worker/{name}")))
        daemons[0].wait("islands up: 2")
        client = ["--controller", f"127.0.0.1:{port}", f"--tls-ca={pki.folder}/root.pem", f"--token-file={token}"]
        done = run("fairway", "run", str(PROGRAM), "--arg", "x=1.5", *client)
        assert done.returncode == 0, done.stderr
        # One that the same authority signed for somebody else is no daemon of the cluster.
        daemons.append(Daemon(tmp_path / "w2.log", "fairway-worker", "--name=w2", "--island=w2", "--runtime=host",
                              "--devices=2", f"--controller=127.0.0.1:{link}", *pki.daemon("w2", "DNS:web.example")))
        assert daemons[-1].process.wait(120) == 2
        assert "it names no daemon: its subjectAltName has neither" in daemons.pop().log.read_text()
    finally:
        for daemon in reversed(daemons):
            daemon.stop()
