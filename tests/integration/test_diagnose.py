# SPDX-License-Identifier: Apache-2.0
"""`fairway diagnose`: what is in the archive, that no secret is, and that it ends when nobody answers."""

import json
import os
import re
import secrets
import shutil
import socket
import stat
import subprocess
import tarfile

import pytest

from cluster import BIN, ROOT, clean_environment
from clinic import clinic, compare  # noqa: F401
from test_settings import run


def diagnose(*words, environment=None, **options):
    return subprocess.run([BIN / "fairway", "diagnose", *words], env=clean_environment(**(environment or {})), text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=240, check=False, **options)


def unpack(archive):
    """{name: text} of the archive, whose files are in one folder and their owner's alone."""
    files = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            folder, _, name = member.name.partition("/")
            assert re.fullmatch(r"fairway-diagnose-\d{8}-\d{6}", folder) and "/" not in name
            assert member.isfile() and member.mode == 0o600
            files[name] = tar.extractfile(member).read().decode()
    return files


def index(clinic, files):
    """The index, without sizes."""
    return re.sub(r": [\d.]+ (B|KiB|MiB)\b", ": SIZE", clinic.golden(files["INDEX.txt"]))


def plant(clinic, tmp_path):
    """Puts secrets wherever the archive's texts come from. Returns what must not be found, and an environment."""
    hidden = {name: secrets.token_hex(32) for name in ("island", "log", "setting", "variable", "path")}
    pem = (clinic.directory / "ca.key").read_text()
    hidden["bearer"], hidden["password"], hidden["address"] = "Bea.rer-92", "hunter2!", "pa55word"
    log = [f"a token fw_{hidden['log']}", f"Authorization: Bearer {hidden['bearer']}", f'{{"password": "{hidden["password"]}"}}',
           f"postgres://me:{hidden['address']}@db/x", pem, json.dumps({"msg": pem})]
    (clinic.folder / "logs" / "old.log").write_text("the log of before\n" + "\n".join(log) + "\n")
    spool = tmp_path / f"fw_{hidden['setting']}"
    spool.mkdir()
    settings = clinic.settings("planted.toml", f"spool-directory = '{spool}'\n# password = '{hidden['password']}'\n")
    assert run("fairway", "issue", "w1", "--from", str(clinic.directory)).returncode == 0
    own = clinic.directory / "w1"
    clinic.start("w1", "fairway-worker", "--name=w1", f"--island=fw_{hidden['island']}", "--runtime=host",
                 f"--controller=127.0.0.1:{clinic.ports['link-port']}", f"--tls-ca={own}/ca.pem",
                 f"--tls-certificate={own}/worker.pem", f"--tls-key={own}/worker.key")
    clinic.daemons[0].wait("islands up: 2")
    state = tmp_path / f"fw_{hidden['path']}"
    environment = {"XDG_STATE_HOME": str(state), "JAX_SECRET": hidden["variable"], "XLA_FLAGS": f"--token=fw_{hidden['variable']}"}
    hidden["token"] = (clinic.directory / "admin.token").read_text().strip().removeprefix("fw_")
    for number, key in enumerate([*clinic.directory.glob("*.key"), *clinic.directory.glob("*/*.key")]):
        for line, text in enumerate(key.read_text().splitlines()[1:-1]):
            hidden[f"key {number}, line {line}"] = text
    return hidden, settings, environment


def test_one_archive_has_what_a_report_needs_and_no_secret(clinic, tmp_path):
    hidden, settings, environment = plant(clinic, tmp_path)
    archive = tmp_path / "report.tar.gz"
    done = diagnose(*clinic.words(config=settings), f"--config={clinic.worker_toml}", "-o", str(archive), environment=environment)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert re.fullmatch(rf"{archive} has 1\d of 2\d parts \([\d.]+ KiB\); INDEX.txt in it says what could not be had, and why\n", done.stdout)
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600 and archive.stat().st_size < 1 << 20
    files = unpack(archive)
    for name, text in files.items():
        for what, secret in hidden.items():
            assert secret not in text, f"the secret '{what}' is in {name}"
    # What is around the secrets is there.
    assert "a token [left out: token]\n" in files["logs-here.txt"] and "[left out: private key]" in files["logs-here.txt"]
    assert "[left out: token]" in files["islands.txt"] and "the controller" not in files["islands.txt"]
    assert "JAX_SECRET=[left out]\n" in files["environment.txt"]
    assert "spool-directory=" in files["settings-3-controller.txt"] and "(file " in files["settings-3-controller.txt"]
    assert "--devices=2  (file" in files["settings-4-worker.txt"]
    assert "PASS  controller's certificate" in files["doctor.txt"] and "controller 0." in files["status.txt"]
    assert '"component":"controller"' in files["logs.txt"] and "fairway_executor_up" in files["metrics.txt"]
    assert json.loads(files["status.json"])["executors"] and json.loads(files["arrays.json"])["kind"] == "arrays"
    shown = index(clinic, files).replace(str(tmp_path), "TMP")
    compare("diagnose_index.txt", lambda: re.sub(r"logs-journal.txt: .*\(", "logs-journal.txt: ... (", shown))


def test_with_a_controller_that_says_nothing_it_ends_and_says_what_is_missing(clinic, tmp_path):
    archive = tmp_path / "report.tar.gz"
    logs = tmp_path / "fairway" / "29000"
    logs.mkdir(parents=True)
    (logs / "controller.log").write_text("x" * 300000 + "\nthe last words\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = diagnose(*clinic.words(config=None, controller=f"127.0.0.1:{port}", plugin="/no/such", token_file=None),
                        "-o", str(archive), environment={"XDG_STATE_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    files = unpack(archive)
    said = files["INDEX.txt"]
    for part in ("status.txt", "arrays.json", "metrics.txt", "logs.txt"):
        assert part not in files and re.search(rf"^{part}: MISSING: .*no answer from 127.0.0.1:{port} within 5 s", said, re.M), said
    assert "FAIL" in files["doctor.txt"] and files["versions.txt"].startswith("fairway ")
    # Of a log the last lines.
    assert "the last words\n" in files["logs-up.txt"] and "xx" not in files["logs-up.txt"]


def test_the_commands_of_the_page_run(clinic, tmp_path):
    """Of the sections doctor and diagnose of docs/operate.md, where these files are."""
    for path, name in ((clinic.controller_toml, "controller.toml"), (clinic.worker_toml, "worker.toml"),
                       (clinic.directory / "admin.token", "admin.token")):
        shutil.copy2(path, tmp_path / name)
    page = (ROOT / "docs" / "operate.md").read_text().partition("\n## doctor\n")[2]
    lines = [line for block in re.findall(r"```sh\n(.*?)```", page, re.S) for line in block.splitlines()]
    assert len(lines) == 5
    for line in lines:
        done = subprocess.run(["sh", "-c", line], cwd=tmp_path, text=True, capture_output=True, timeout=240, check=False,
                              env=clean_environment(PATH=f"{BIN}:{os.environ['PATH']}", FAIRWAY_CONTROLLER=clinic.address,
                                                    FAIRWAY_TLS_CA=f"{clinic.directory}/ca.pem"))
        assert done.returncode == 0 and done.stderr == "", f"{line}\n{done.stdout}{done.stderr}"
    assert len(list(tmp_path.glob("*.tar.gz"))) == 2


@pytest.mark.parametrize("place, said", [("there.tar.gz", "is there, and is not replaced; give another --output"),
                                         ("no/such/folder.tar.gz", "No such file or directory")])
def test_an_archive_that_cannot_be_written_is_one_line(tmp_path, place, said):
    (tmp_path / "there.tar.gz").write_text("kept")
    done = diagnose("--python=", "--controller=127.0.0.1:1", "-o", str(tmp_path / place))
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("fairway diagnose: ") and said in done.stderr
    assert (tmp_path / "there.tar.gz").read_text() == "kept"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_run_by_root_it_follows_no_link_of_a_log_folder(tmp_path):
    (tmp_path / "secret.log").write_text("roots own\n")
    logs = tmp_path / "fairway" / "29000"
    logs.mkdir(parents=True)
    (logs / "controller.log").write_text("the log\n")
    (logs / "link.log").symlink_to(tmp_path / "secret.log")
    os.link(tmp_path / "secret.log", logs / "second.log")
    os.mkfifo(logs / "pipe.log")

    def logs_of_up(name):
        done = diagnose("--python=", "--controller=127.0.0.1:1", "-o", str(tmp_path / name), environment={"XDG_STATE_HOME": str(tmp_path)})
        assert done.returncode == 0, done.stderr
        files = unpack(tmp_path / name)
        return files.get("logs-up.txt", ""), files["INDEX.txt"]

    text, _ = logs_of_up("a.tar.gz")
    assert text == f"==> {logs}/controller.log <==\nthe log\n\n"
    # The folder itself is a link of a user who is not root.
    (tmp_path / "fairway").rename(tmp_path / "elsewhere")
    (tmp_path / "fairway").symlink_to(tmp_path / "elsewhere")
    os.lchown(tmp_path / "fairway", 65534, 65534)
    text, index_text = logs_of_up("b.tar.gz")
    assert text == "" and "is a link that another user can have made, and is not followed" in index_text


def test_without_a_name_it_is_named_for_the_time_and_lies_here(tmp_path):
    done = diagnose("--python=", "--controller=127.0.0.1:1", cwd=tmp_path)
    assert done.returncode == 0
    [archive] = tmp_path.iterdir()
    assert re.fullmatch(r"fairway-diagnose-\d{8}-\d{6}\.tar\.gz", archive.name) and done.stdout.startswith(archive.name)
