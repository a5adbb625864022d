# SPDX-License-Identifier: Apache-2.0
"""`fairway doctor` on a real cluster that is well, and with each of many planted faults."""

import json
import os
import pathlib
import re
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading

import pytest

from cluster import BIN, clean_environment, free_ports, wait_for
from clinic import MOVED_CLOCK, OF_THE_HOST, build, clinic, compare, doctor  # noqa: F401
from test_settings import Daemon, run


@pytest.fixture(scope="module")
def moved_clock(tmp_path_factory):
    """The environment of a process whose clock is wrong by so many seconds."""
    library = build(tmp_path_factory.mktemp("clock"), "clock", MOVED_CLOCK)
    return lambda seconds: {"LD_PRELOAD": str(library), "CLOCK_MOVED": str(seconds)}


def without_the_host(text):
    """The lines, and of those whose verdict is the host's only what they are about; no counts."""
    lines = []
    for line in text.splitlines()[:-1]:
        what = line[6:].partition(": ")[0]
        lines.append(f"HOST  {what}" if what in OF_THE_HOST else line)
    return "\n".join(lines) + "\n"


def faults(text):
    """The lines that warn or fail, but for those that are of the host."""
    return [line for line in without_the_host(text).splitlines() if line.startswith(("WARN", "FAIL"))]


def test_a_healthy_cluster_has_no_fault(clinic):
    words = [*clinic.words(), f"--config={clinic.worker_toml}"]
    done = wait_for(lambda: (ran := doctor(*words)).returncode == 0 and ran, "the doctor to find no fault")
    assert done.stderr == "" and "FAIL" not in done.stdout, done.stdout
    compare("doctor_healthy.txt", lambda: without_the_host(clinic.golden(doctor(*words).stdout)))

    def own_findings():
        told = json.loads(doctor(*words, "-o", "json").stdout)
        assert sum(told[verdict] for verdict in ("pass", "warn", "fail", "skip")) == len(told["findings"])
        own = [finding for finding in told["findings"] if finding["what"] not in OF_THE_HOST]
        return clinic.golden(json.dumps(own, indent=1)) + "\n"

    compare("doctor_healthy.json", own_findings)


def test_on_a_clients_host_it_checks_what_a_client_needs(clinic):
    user, _ = clinic.token()
    compare("doctor_client.txt", lambda: without_the_host(clinic.golden(doctor(
        "--controller", clinic.address, f"--tls-ca={clinic.directory}/ca.pem", f"--token-file={user}",
        f"--python={sys.executable}", f"--plugin={clinic.plugin}").stdout)))


def test_on_a_workers_host_it_asks_no_controller_of_clients(clinic):
    done = doctor(f"--config={clinic.worker_toml}", f"--python={sys.executable}")
    assert done.returncode == 0 and faults(done.stdout) == [], done.stdout
    assert "controller's link port" in done.stdout and "controller port" not in done.stdout


# ---- the planted faults: each returns flags, or flags and options of the process ----


def wrong_address(clinic, tmp_path):
    return clinic.words(controller=f"{'a' * 64}.invalid:29000", tls_ca=f"{clinic.directory}/ca.pem")  # longer than a label may be: nobody is asked


def closed_port(clinic, tmp_path):
    [port] = free_ports(1)
    clinic.others["closed"] = port
    return clinic.words(controller=f"127.0.0.1:{port}", tls_ca=f"{clinic.directory}/ca.pem")


def wrong_ca(clinic, tmp_path):
    assert run("fairway", "init", str(tmp_path / "other")).returncode == 0
    return clinic.words(tls_ca=tmp_path / "other" / "ca.pem")


def missing_ca(clinic, tmp_path):
    return clinic.words(tls_ca="/no/such/ca.pem")


def no_tls(clinic, tmp_path):
    return clinic.words(config=None, controller=clinic.address, token_file=None)


def no_token(clinic, tmp_path):
    return clinic.words(token_file=None)


def open_token_file(clinic, tmp_path):
    token, _ = clinic.token("viewer")
    token.chmod(0o644)
    return clinic.words(token_file=token)


def revoked_token(clinic, tmp_path):
    token, number = clinic.token("viewer")
    assert run("fairway", "token", "revoke", number, *clinic.as_admin()).returncode == 0
    return clinic.words(token_file=token)


def port_taken(clinic, tmp_path):
    taken = socket.create_server(("127.0.0.1", 0))
    path = clinic.settings("taken.toml", **{"http-port": taken.getsockname()[1]})
    return clinic.words(config=path), {"kept": taken}


def unknown_setting(clinic, tmp_path):
    path = tmp_path / "unknown.toml"
    path.write_text(clinic.controller_toml.read_text() + "spool-directroy = '/tmp'\n")
    return clinic.words(config=path)


def settings_that_others_may_write(clinic, tmp_path):
    path = tmp_path / "open.toml"
    path.write_text(clinic.controller_toml.read_text())
    path.chmod(0o666)
    return clinic.words(config=path, controller=clinic.address, tls_ca=f"{clinic.directory}/ca.pem")


def other_package(clinic, tmp_path):
    facts = tmp_path / "fairway-0.0.9.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: fairway\nVersion: 0.0.9\n")
    return clinic.words(), {"environment": {"PYTHONPATH": str(tmp_path)}}


def old_jaxlib(clinic, tmp_path):
    facts = tmp_path / "jaxlib-0.4.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: jaxlib\nVersion: 0.4.1\n")
    return clinic.words(), {"environment": {"PYTHONPATH": str(tmp_path)}}


def missing_plugin(clinic, tmp_path):
    return clinic.words(plugin="/no/such/plugin.so")


def plugin_of_another_processor(clinic, tmp_path):
    with open(clinic.plugin, "rb") as file:
        header = bytearray(file.read(4096))
    header[18:20] = (183).to_bytes(2, "little")  # EM_AARCH64
    (tmp_path / "arm.so").write_bytes(header)
    return clinic.words(plugin=tmp_path / "arm.so")


def plugin_that_is_none(clinic, tmp_path):
    return clinic.words(plugin=build(tmp_path, "none", "int nothing;\n"))


def plugin_that_crashes(clinic, tmp_path):
    return clinic.words(plugin=build(tmp_path, "crashes", "#include <stdlib.h>\nvoid* GetPjrtApi(void) { abort(); }\n"))


def open_data_directory(clinic, tmp_path):
    tmp_path.chmod(0o755)
    return clinic.words(data_directory=tmp_path)


def data_directory_that_cannot_be_written(clinic, tmp_path):
    tmp_path.chmod(0o500)
    return clinic.words(data_directory=tmp_path)


def missing_data_directory(clinic, tmp_path):
    return clinic.words(data_directory="/no/such/data")


def few_open_files(clinic, tmp_path):
    return clinic.words(), {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))}


PLANTED = [wrong_address, closed_port, wrong_ca, missing_ca, no_tls, no_token, open_token_file, revoked_token, port_taken,
           unknown_setting, settings_that_others_may_write, other_package, old_jaxlib, missing_plugin,
           plugin_of_another_processor, plugin_that_is_none, plugin_that_crashes, open_data_directory,
           data_directory_that_cannot_be_written, missing_data_directory, few_open_files]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found_and_its_cure_is_told(clinic, tmp_path, plant):
    planted = plant(clinic, tmp_path)
    words, options = planted if isinstance(planted, tuple) else (planted, {})
    kept = options.pop("kept", None)
    if kept:
        clinic.others["taken"] = kept.getsockname()[1]

    def found():
        done = doctor(*words, **options)
        lines = faults(done.stdout)
        if plant is few_open_files:
            lines += [line for line in done.stdout.splitlines() if "limit of open files" in line]
        fails = any(line.startswith("FAIL") for line in lines)
        assert done.stderr == "" and done.returncode == (1 if fails else 0) and lines, done.stdout
        assert fails == (plant is not no_token) and all("(fix: " in line for line in lines)
        return clinic.golden("\n".join(lines) + "\n").replace(str(tmp_path), "TMP")

    compare(f"doctor_{plant.__name__}.txt", found)
    if kept:
        kept.close()


# ---- faults of processes ----


@pytest.fixture(scope="module")
def late(tmp_path_factory, moved_clock):
    """A controller on whose host it is ten minutes earlier, without workers."""
    folder = tmp_path_factory.mktemp("late")
    assert run("fairway", "init", str(folder / "cluster")).returncode == 0
    daemon = Daemon(folder / "controller.log", "fairway-controller", "--config", f"{folder}/cluster/fairway.toml",
                    "--port=0", "--http-port=0", "--link-port=0", "--data-port=0", environment=moved_clock(-600))
    port = daemon.wait("listening on").partition("clients ")[2].partition(",")[0]
    yield [f"--controller=127.0.0.1:{port}", f"--tls-ca={folder}/cluster/ca.pem", f"--token-file={folder}/cluster/admin.token",
           "--python="]
    daemon.stop()


def wait_to_be_told(pattern, *words, **options):
    """Where other programs have the processors, an answer may take longer than the doctor waits."""
    wait_for(lambda: re.search(pattern, doctor(*words, **options).stdout, re.M), f"the doctor to say {pattern}")


def test_a_clock_that_is_off_is_told_with_how_much(late):
    wait_to_be_told(r"^FAIL  clock: this host's clock is (59\d|60\d)s ahead of the controller's  "
                    r"\(fix: timedatectl set-ntp true, on the host whose clock is wrong\)$", *late)


def test_a_cluster_without_workers_is_told_how_to_start_one(late):
    wait_to_be_told(r"^WARN  workers: none has registered  \(fix: start one: fairway-worker --controller=127\.0\.0\.1:\d+\)$",
                    *late)


def test_certificates_are_expired_or_not_valid_yet_by_this_hosts_clock(clinic, moved_clock):
    words = clinic.words(config=None, controller=clinic.address, tls_ca=f"{clinic.directory}/ca.pem", python="", plugin=None)
    for days, verdict, fault, fix in (
            (700, "FAIL", "the certificate of controller has expired on", "fairway issue --controller --from"),
            (350, "WARN", "expires on", "fairway issue --controller --from"),
            (-2, "FAIL", "by this host's clock that is later", "timedatectl set-ntp true"),
            (4000, "FAIL", "ca.pem has expired on", "fairway init")):
        wait_to_be_told(rf"^{verdict}  .*{fault}.*  \(fix: .*{fix}", *words, environment=moved_clock(days * 86400))


def test_a_certificate_of_another_daemon_is_not_taken_for_the_controllers(clinic):
    own = clinic.directory / "w0"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own / "worker.pem", own / "worker.key")
    context.set_alpn_protocols(["h2"])
    with socket.create_server(("127.0.0.1", 0)) as server:
        def serve():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return  # the test is over
                try:
                    context.wrap_socket(connection, server_side=True).close()
                except OSError:
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        wait_to_be_told(
            r"^FAIL  controller's certificate: the server there is worker w0, not the controller  \(fix: name the controller's "
            r"clients' port by --controller \(29000 by default\)\)$",
            *clinic.words(config=None, controller=f"127.0.0.1:{server.getsockname()[1]}", python="", plugin=None,
                          tls_ca=f"{clinic.directory}/ca.pem"))
        server.shutdown(socket.SHUT_RDWR)


def test_a_server_that_says_nothing_does_not_hold_it_up(clinic):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = doctor(*clinic.words(config=None, controller=f"127.0.0.1:{port}", tls_ca=f"{clinic.directory}/ca.pem",
                                    python="", plugin=None))
    assert done.returncode == 1
    assert f"FAIL  controller's certificate: the server at 127.0.0.1:{port} does not speak TLS" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_what_is_another_users_is_told(clinic, tmp_path):
    plain = Daemon(tmp_path / "controller.log", "fairway-controller", "--port=0", "--http-port=0", "--link-port=0", "--data-port=0")
    data = pathlib.Path("/proc/1")  # a folder of root's that anybody can look at

    def found():
        done = doctor("--python=", "--plugin=", f"--data-directory={data}", f"--controller=127.0.0.1:{port}", user=65534, cwd="/")
        shown = [line for line in faults(done.stdout) if line.startswith("FAIL")]
        # How the connection ends is the moment's.
        shown[0] = re.sub(r"(answer of the controller: ).*?(  \(fix: )", r"\1...\2", shown[0])
        return clinic.golden("\n".join(shown) + "\n")

    try:
        port = plain.wait("listening on").partition("clients ")[2].partition(",")[0]
        clinic.others["plain"] = port
        compare("doctor_another_user.txt", found)
    finally:
        plain.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_run_by_root_it_opens_the_plugin_as_the_daemons_user(tmp_path):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # where that user can read
        os.chmod(folder, 0o755)
        data = pathlib.Path(folder) / "data"
        data.mkdir(mode=0o700)
        plugin = build(pathlib.Path(folder), "plugin", """
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void f(void) { if (geteuid() == 0 || getegid() == 0) abort(); }""")
        key, settings = pathlib.Path(folder) / "worker.key", pathlib.Path(folder) / "worker.toml"
        key.write_text("")
        settings.write_text(f'[worker]\ntls-key = "{key}"\n')
        os.chown(data, 65534, 65534)  # the controller's user reads the CA's key, so it opens nothing
        words = ("--python=", f"--plugin={plugin}", f"--data-directory={data}", "--controller=127.0.0.1:1", f"--config={settings}")
        done = doctor(*words)
        assert "opened as user nobody" not in done.stdout, done.stdout
        if "opened as root, since no daemon's user is known" in done.stdout:  # else this host has a user fairway
            assert "ends by signal 6 (Aborted); opened as root, since" in done.stdout, done.stdout
        os.chown(key, 65534, 65534)
        done = doctor(*words)
        assert re.search(r"^FAIL  plugin: .* is no PJRT plugin: .*; opened as user nobody  ", done.stdout, re.M), done.stdout


def test_daemons_of_another_version_beside_the_command_are_found(tmp_path):
    fairway = shutil.copy(BIN / "fairway", tmp_path)
    (tmp_path / "fairway-worker").write_text("#!/bin/sh\necho fairway-worker 0.0.9\n")
    (tmp_path / "fairway-worker").chmod(0o755)
    done = subprocess.run([fairway, "doctor", "--python="], text=True, capture_output=True, timeout=240,
                          env=clean_environment(), check=False)
    assert f"FAIL  version of fairway-worker: {tmp_path}/fairway-worker says 'fairway-worker 0.0.9', and this command is" in done.stdout
    assert f"SKIP  version of fairway-controller: {tmp_path}/fairway-controller: No such file" in done.stdout


@pytest.mark.parametrize("size, verdict", [("1m", "FAIL"), ("256m", "WARN")])
def test_a_disk_without_room_is_found(tmp_path, size, verdict):
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no mount namespaces here")
    data = tmp_path / "data"
    data.mkdir()
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o mode=700,size=$1 tmpfs "$2" && exec "$3" doctor --python= '
         '--data-directory="$2"', "sh", size, str(data), str(BIN / "fairway")],
        env=clean_environment(), text=True, capture_output=True, timeout=240, check=False)
    assert re.search(rf"^{verdict}  data directory: {data} has [\d.]+ MiB free  \(fix: make room: df -h {data}; ", done.stdout, re.M), done


def test_a_worker_that_is_down_is_found(clinic):
    [worker] = [daemon for daemon in clinic.daemons if "w0" in daemon.log.name]
    worker.stop()
    try:
        clinic.daemons[0].wait("islands up: 0")
        compare("doctor_worker_down.txt", lambda: clinic.golden(
            "\n".join(faults(doctor(*clinic.words(python="", plugin=None)).stdout)) + "\n"))
    finally:
        clinic.start("w0-again", "fairway-worker", "--config", str(clinic.worker_toml))
        wait_for(lambda: doctor(*clinic.words(python="", plugin=None)).returncode == 0, "the worker to be back")


def test_it_changes_nothing(clinic, tmp_path):
    """Not in the folders that it looks at, nor where it runs; a plugin that crashes leaves no file."""
    def looks(folder):
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")
                if not path.name.endswith((".log", "-wal", "-shm"))}

    crashes = build(tmp_path, "crashes", "#include <stdlib.h>\nvoid* GetPjrtApi(void) { abort(); }\n")
    before = looks(clinic.folder), looks(tmp_path)
    doctor(*clinic.words(plugin=crashes), cwd=tmp_path)
    assert (looks(clinic.folder), looks(tmp_path)) == before


def test_wrong_words_are_one_line():
    done = doctor("-o", "yaml")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "fairway doctor: no --output 'yaml' (there are text, json)\n"
