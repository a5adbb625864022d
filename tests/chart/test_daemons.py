# SPDX-License-Identifier: Apache-2.0
"""What the chart gives to daemons, given to the real ones: settings, flags, the Job's steps, the sidecar's script.

A folder stands for a pod's files: each absolute path in what was rendered is put below it. There is no Kubernetes.
"""

import base64
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request

import pytest
import yaml

import chart

BIN = chart.ROOT / "build" / "release" / "bin"
PAGE = (chart.ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
MINIMAL, EXISTING = (chart.HERE / "values" / name for name in ("minimal.yaml", "existing_secrets.yaml"))
# What the images have in their environment, which counts before settings files.
PLUGIN = next((chart.ROOT / ".venv").glob("lib/python3*/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"))
IMAGES = {"fairway-controller": {"FAIRWAY_SPOOL_DIRECTORY": "/var/lib/fairway"}, "fairway-worker": {"FAIRWAY_PJRT_PLUGIN": str(PLUGIN)}}
PATHS = re.compile(r"(?<![\w.$/-])/(?=(?:scratch|programs|ca|admin|token|secrets|run/fairway|var/lib/fairway|etc/fairway|scripts|tmp|opt)\b)")
each = pytest.mark.parametrize("values", chart.VALUES, ids=lambda path: path.stem)


def moved(text, folder):
    """The text with the paths of a pod below the folder."""
    return PATHS.sub(f"{folder}/", text)


def shell(command, folder, **more):
    """Runs a container's command; sh is the one of this machine."""
    command = [moved(word, folder) for word in command]
    if command[0].startswith("/usr/bin/fairway"):
        command[0] = str(BIN / pathlib.PurePosixPath(command[0]).name)
    return subprocess.run(command, text=True, capture_output=True, timeout=60, **more)


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.05)
    return found


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


@contextlib.contextmanager
def started(command, log, **more):
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, **more) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def write_secret(folder, data):
    """As a kubelet does: the files are behind a link, which one rename replaces, and open to the pod's group."""
    version = folder / f"..{len(list(folder.glob('..*')))}"
    version.mkdir(parents=True)
    for name, content in data.items():
        (version / name).write_bytes(base64.b64decode(content))
        (version / name).chmod(0o640)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    (folder / "..next").symlink_to(version.name)
    (folder / "..next").rename(folder / "..data")


def run_job(folder, secrets):
    """The steps of the Job but kubectl's. Returns the Secrets, name -> data, that they would write."""
    shutil.rmtree(folder / "scratch", ignore_errors=True)
    (folder / "scratch").mkdir(parents=True)
    job = chart.of_kind(MINIMAL, "Job")["fw-fairway-certificates"]["spec"]["template"]["spec"]
    for name in ("ca", "admin"):
        (folder / name).mkdir(exist_ok=True)
        volume = next(one for one in job["volumes"] if one["name"] == name)
        if volume["secret"]["secretName"] in secrets and not (folder / name / "..data").exists():
            write_secret(folder / name, secrets[volume["secret"]["secretName"]])
    written = []
    for step in [*job["initContainers"], *job["containers"]]:
        if step["image"].partition(":")[0].endswith("kubectl"):
            [given] = [word.partition("=")[2] for word in step["args"] if word.startswith("--filename=")]
            written.append([yaml.safe_load(path.read_text()) for path in pathlib.Path(moved(given, folder)).iterdir()])
            continue
        environment = {**os.environ, **{one["name"]: one["value"] for one in step.get("env", [])}}
        done = shell(step["command"], folder, env=environment)
        assert done.returncode == 0, f"{step['name']}: {done.stdout}{done.stderr}"
    first, then = written
    made = [*first, *then]
    assert {one["metadata"]["namespace"] for one in made} == {"accelerators"}
    allowed = {name for rule in chart.of_kind(MINIMAL, "Role")["fw-fairway-certificates"]["rules"]
               for name in rule.get("resourceNames", [])}
    assert {one["metadata"]["name"] for one in made} == allowed
    assert all(one["immutable"] for one in first) and not any(one["immutable"] for one in then)
    assert {one["metadata"]["name"] for one in first} == {"fw-fairway-ca", "fw-fairway-admin", "fw-fairway-viewer"}
    return {one["metadata"]["name"]: one["data"] for one in made}


def environment_of(container, pod, folder):
    """What Kubernetes gives a container of that pod."""
    known = {"metadata.name": pod, "status.podIP": "127.0.0.1", "metadata.labels['leaderworkerset.sigs.k8s.io/worker-index']": "0",
             "metadata.annotations['batch.kubernetes.io/job-completion-index']": "0"}
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FAIRWAY_")}
    environment |= IMAGES.get(pathlib.PurePosixPath(container["command"][0]).name, {})
    for one in container.get("env", []):
        given = one["value"] if "value" in one else known[one["valueFrom"]["fieldRef"]["fieldPath"]]
        environment[one["name"]] = moved(re.sub(r"\$\((\w+)\)", lambda name: environment[name[1]], given), folder)
    return environment


class Pod:
    """The pod of a StatefulSet, in a folder, with the Secrets that it mounts."""

    def __init__(self, values, owner, folder, secrets, name):
        self.folder, self.name = folder, name
        self.spec = chart.of_kind(values, "StatefulSet")[owner]["spec"]["template"]["spec"]
        for path in ("run/fairway/tls", "var/lib/fairway", "etc/fairway", "tmp"):
            (folder / path).mkdir(parents=True)
        for volume in self.spec["volumes"]:
            if "secret" in volume:
                data = secrets[volume["secret"]["secretName"]]
                items = volume["secret"].get("items") or [{"key": key, "path": key} for key in data]
                write_secret(folder / volume["name"], {one["path"]: data[one["key"]] for one in items})
        for name, text in chart.of_kind(values, "ConfigMap")[owner]["data"].items():
            (folder / "etc" / "fairway" / name).write_text(moved(text, folder), encoding="utf-8")
        scripts = next(data for found, data in chart.of_kind(values, "ConfigMap").items() if found.endswith("-scripts"))
        (folder / "scripts").mkdir()
        (folder / "scripts" / "certificates.sh").write_text(moved(scripts["data"]["certificates.sh"], folder), encoding="utf-8")

    def step(self, name):
        return next(one for one in chart.containers(self.spec) if one["name"] == name)

    def command(self, name, *flags):
        """Of a container, with its arguments and the environment that Kubernetes gives it."""
        one = self.step(name)
        words = [word.replace("$(POD_NAME)", self.name) for word in [*one["command"], *one.get("args", [])]]
        words = [moved(word, self.folder) for word in words]
        words[0] = str(BIN / pathlib.PurePosixPath(words[0]).name) if words[0].startswith("/usr/bin/") else words[0]
        return {"args": [*words, *flags], "env": environment_of(one, self.name, self.folder)}

    @contextlib.contextmanager
    def sidecar(self):
        """Waits as the kubelet does: for the startup probe."""
        given = self.command("certificates")
        probe = [moved(word, self.folder) for word in self.step("certificates")["startupProbe"]["exec"]["command"]]
        with started(given["args"], self.folder / "sidecar.log", env=given["env"]):
            wait_for(lambda: subprocess.run(probe, check=False).returncode == 0, "certificates")
            yield


@pytest.fixture(scope="module")
def secrets(tmp_path_factory):
    return run_job(tmp_path_factory.mktemp("job"), {})


def test_the_job_makes_a_ca_once_and_its_certificates_fit(secrets, tmp_path):
    again = run_job(tmp_path, secrets)
    for name in ("fw-fairway-ca", "fw-fairway-admin", "fw-fairway-viewer"):
        assert again[name] == secrets[name]
    assert again["fw-fairway-controller"]["controller.pem"] != secrets["fw-fairway-controller"]["controller.pem"]
    assert again["fw-fairway-controller"]["ca.pem"] == secrets["fw-fairway-ca"]["ca.pem"]
    assert set(again["fw-fairway-island0"]) == {"ca.pem", "fw-fairway-island0-0.pem", "fw-fairway-island0-0.key"}


@each
def test_the_daemons_take_all_settings_and_flags_that_are_rendered(values, secrets, tmp_path):
    """`fairway config check` reads the certificates, too."""
    files = {"ca.pem": secrets["fw-fairway-ca"]["ca.pem"], "ca.key": secrets["fw-fairway-ca"]["ca.key"],
             "controller.pem": secrets["fw-fairway-controller"]["controller.pem"],
             "controller.key": secrets["fw-fairway-controller"]["controller.key"],
             "worker.pem": secrets["fw-fairway-island0"]["fw-fairway-island0-0.pem"],
             "worker.key": secrets["fw-fairway-island0"]["fw-fairway-island0-0.key"]}
    for path in ("run/fairway/tls", "etc/fairway"):
        (tmp_path / path).mkdir(parents=True)
    for name, content in files.items():
        path = tmp_path / "run" / "fairway" / "tls" / name
        path.write_bytes(base64.b64decode(content))
        path.chmod(0o600)
    settings = chart.of_kind(values, "ConfigMap")
    for _, pod in chart.daemons(values):
        [container] = pod["spec"]["containers"]
        name = next(volume["configMap"]["name"] for volume in pod["spec"]["volumes"] if volume["name"] == "settings")
        environment = environment_of(container, "fw-fairway-island0-0", tmp_path)
        words = [moved(word, tmp_path) for word in [*container["command"], *container["args"]]]
        [(file, text)] = settings[name]["data"].items()
        (tmp_path / "etc" / "fairway" / file).write_text(moved(text, tmp_path), encoding="utf-8")
        for library in re.findall(r"/opt/[^ \"]+", " ".join([*words, moved(text, tmp_path)])):  # the image of the island has it
            path = tmp_path / library.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        # The words of the container, and no value that another source has: the settings file counts.
        printed = subprocess.run([BIN / pathlib.PurePosixPath(words[0]).name, *words[1:], "--print-config"], text=True,
                                 capture_output=True, timeout=60, env=environment)
        assert printed.returncode == 0, f"{name}: {printed.stderr}"
        told = dict(re.findall(r"^--([\w-]+)=.*\((.*)\)$", printed.stdout, re.M))
        for setting in re.findall(r"^([\w-]+) = ", text, re.M):
            assert file in told[setting], f"{name}: {setting} is from {told[setting]}"
        checked = subprocess.run([BIN / "fairway", "config", "check", tmp_path / "etc" / "fairway" / file], text=True,
                                 capture_output=True, timeout=60, env=environment)
        assert checked.returncode == 0, f"{name}: {checked.stderr}\n{text}"


def test_a_setting_that_no_daemon_has_would_be_found(secrets, tmp_path):
    path = tmp_path / "wrong.toml"
    path.write_text('[worker]\nlog-levl = "debug"\n', encoding="utf-8")
    done = subprocess.run([BIN / "fairway", "config", "check", path], text=True, capture_output=True, timeout=60)
    assert done.returncode != 0 and "log-levl" in done.stderr


def test_the_schema_has_all_settings_of_the_daemons_but_those_that_the_chart_sets():
    definitions = json.loads((chart.CHART / "values.schema.json").read_text(encoding="utf-8"))["$defs"]
    # What no value sets: relays are not in the chart, and GPUs are given by Kubernetes.
    ours = {"controller": {"bind", "port", "http-port", "http-name", "link-port", "data-port", "relay-fan-out", "spool-directory",
                           "log-dir", "data-directory", "tls-ca", "tls-certificate", "tls-key", "tls-ca-key", "life-fd", "notify-fd"},
            "worker": {"role", "controller", "name", "island", "island-workers", "devices", "runtime", "plugin", "plugin-kind", "gpus",
                       "write-target-config", "data-bind", "advertise-host", "relay-bind", "http-bind", "tls-ca", "tls-certificate", "tls-key",
                       "life-fd"}}
    for daemon, set_by_chart in ours.items():
        done = subprocess.run([BIN / f"fairway-{daemon}", "--help"], text=True, capture_output=True, check=True, timeout=60)
        flags = set(re.findall(r"^ +--([\w-]+)", done.stdout, re.M)) - {"help", "version", "print-config", "config"}
        assert set(definitions[f"{daemon}Settings"]["properties"]) == flags - set_by_chart


@contextlib.contextmanager
def cluster(values, secrets, folder):
    """A controller and the worker of the first island, from what is rendered. Yields them and the controller's port."""
    start = "fw-fairway"
    controller = Pod(values, f"{start}-controller", folder / "controller", secrets, f"{start}-controller-0")
    worker = Pod(values, f"{start}-island0", folder / "worker", secrets, f"{start}-island0-0")
    done = shell(controller.step("data")["command"], controller.folder)
    assert done.returncode == 0, done.stderr
    grpc, http, link, data, health = free_ports(5)
    here = controller.command("controller", "--bind=127.0.0.1", f"--port={grpc}", f"--http-port={http}",
                              f"--link-port={link}", f"--data-port={data}")
    there = worker.command("worker", f"--controller=127.0.0.1:{link}", "--data-bind=127.0.0.1:0", f"--http-bind=127.0.0.1:{health}")
    with controller.sidecar(), worker.sidecar(), started(here["args"], folder / "controller.log", env=here["env"]), \
            started(there["args"], folder / "worker.log", env=there["env"]):
        wait_for(lambda: is_ready(worker, health), f"the readiness probe; see {folder}")
        yield controller, worker, grpc


def is_ready(worker, port):
    """What a kubelet asks, which looks at no certificate."""
    probe = worker.step("worker")["readinessProbe"]["httpGet"]
    assert probe["port"] == "health"
    try:
        with urllib.request.urlopen(f"{probe['scheme'].lower()}://127.0.0.1:{port}{probe['path']}", timeout=10,
                                    context=ssl._create_unverified_context()) as answer:
            return answer.status == 200
    except OSError:
        return False


def status(port, ca, token):
    done = subprocess.run([BIN / "fairway", "status", "-o", "json", f"--controller=127.0.0.1:{port}", f"--tls-ca={ca}",
                           f"--token-file={token}"], text=True, capture_output=True, timeout=60)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def is_up(port, folder):
    def seen():
        told = status(port, folder / "ca.pem", folder / "admin.token")
        return [(one["worker"], one["island"], one["up"]) for one in told.get("executors", [])]

    wait_for(lambda: seen() == [("fw-fairway-island0-0", "island0", True)], f"the island; see {folder}")


def helm_test(secrets, folder, port):
    """The pod of `helm test`."""
    pod = chart.of_kind(MINIMAL, "Pod")["fw-fairway-test"]["spec"]
    (folder / "scratch").mkdir(parents=True)
    for volume in pod["volumes"]:
        if "secret" in volume:
            data = secrets[volume["secret"]["secretName"]]
            write_secret(folder / volume["name"], {one["path"]: data[one["key"]] for one in volume["secret"]["items"]})
    for one in chart.containers(pod):
        command = [f"127.0.0.1:{port}" if word == "fw-fairway-controller.accelerators.svc:29000" else word for word in one["command"]]
        done = shell(command, folder)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "fw-fairway-island0-0" in done.stdout


def test_a_cluster_comes_up_from_what_the_job_made(secrets, tmp_path):
    (tmp_path / "ca.pem").write_bytes(base64.b64decode(secrets["fw-fairway-ca"]["ca.pem"]))
    (tmp_path / "admin.token").write_bytes(base64.b64decode(secrets["fw-fairway-admin"]["admin.token"]))
    (tmp_path / "admin.token").chmod(0o600)
    with cluster(MINIMAL, secrets, tmp_path) as (controller, _, port):
        is_up(port, tmp_path)
        tls = controller.folder / "run" / "fairway" / "tls"
        assert {path.name: path.stat().st_mode & 0o777 for path in tls.glob("*.*")} == {
            name: 0o600 for name in ("ca.key", "ca.pem", "controller.key", "controller.pem")}
        helm_test(secrets, tmp_path / "test", port)
        # An upgrade makes new certificates: the sidecar takes them over.
        before = (tls / "controller.pem").read_bytes()
        newer = run_job(tmp_path / "job", secrets)["fw-fairway-controller"]
        write_secret(controller.folder / "secrets", newer)
        wait_for(lambda: (tls / "controller.pem").read_bytes() != before, "the new certificate")
        is_up(port, tmp_path)


def test_a_worker_whose_secret_has_no_certificate_for_it_is_told(secrets, tmp_path):
    given = Pod(MINIMAL, "fw-fairway-island0", tmp_path, secrets, "fw-fairway-island0-7").command("certificates")
    done = subprocess.run(given["args"], env=given["env"], text=True, capture_output=True, timeout=60)
    assert done.returncode == 1 and "the Secret has no fw-fairway-island0-7.pem" in done.stderr


def test_a_start_on_a_volume_that_has_tokens_keeps_them(secrets, tmp_path):
    pod = Pod(MINIMAL, "fw-fairway-controller", tmp_path, secrets, "fw-fairway-controller-0")
    data = tmp_path / "var" / "lib" / "fairway" / "data"
    for content in (None, b"tokens of later"):
        if content:
            (data / "fairway.db").write_bytes(content)
            data.chmod(0o770)  # as drivers do that open volumes to the pod's group
        assert shell(pod.step("data")["command"], tmp_path).returncode == 0
        assert (data.stat().st_mode & 0o777) == 0o700
    assert (data / "fairway.db").read_bytes() == b"tokens of later"


def test_a_cluster_comes_up_from_the_secrets_that_the_page_tells_to_make(tmp_path):
    """The commands of docs/kubernetes.md, with a kubectl that keeps what it is given."""
    section = PAGE.partition("### Secrets of your own")[2]
    block = re.search(r"```sh\n(.*?)```", section, re.S)[1]
    kept = tmp_path / "kept"
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "kubectl"
    script.write_text(f"""#!/bin/sh -eu
[ "$1 $2 $3 $4 $5" = "-n accelerators create secret generic" ]
name=$6
shift 6
mkdir -p {shlex.quote(str(kept))}/"$name"
for given; do
  given=${{given#--from-file=}}
  key=${{given%%=*}}
  cp "${{given#*=}}" {shlex.quote(str(kept))}/"$name/${{key##*/}}"
done
""")
    script.chmod(0o755)
    done = subprocess.run(["sh", "-euc", block], cwd=tmp_path, text=True, capture_output=True, timeout=60,
                          env={**os.environ, "PATH": f"{tmp_path}/bin:{BIN}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stdout + done.stderr
    secrets = {folder.name: {path.name: base64.b64encode(path.read_bytes()) for path in folder.iterdir()}
               for folder in kept.iterdir()}
    (tmp_path / "ca.pem").write_bytes((tmp_path / "cluster" / "ca.pem").read_bytes())
    shutil.copy(tmp_path / "cluster" / "admin.token", tmp_path / "admin.token")
    with cluster(EXISTING, secrets, tmp_path) as (_, _, port):
        is_up(port, tmp_path)


# Keeps an array on the cluster's one island until its input ends.
HOLDER = """
import sys
import jax, jax.numpy as jnp
kept = jax.device_put(jnp.arange(50000.0), jax.devices()[0]).block_until_ready()
print("ready", flush=True)
sys.stdin.read()
"""
# What the Job's kubectl is here: it lists the pods in the file `old`, then those in `later`, and notes what it is told; when it deletes, also
# what the island is then. With the file `away` its API server does not answer, with `leaves` after the first time.
KUBECTL = """#!/bin/sh
cd {folder}
case $1 in
  get)
    if [ -e away ]; then echo "The connection to the server was refused" >&2; exit 1; fi
    cat old; if [ -e later ]; then mv later old; fi; if [ -e leaves ]; then mv leaves away; fi ;;
  delete) echo "$* ($(fairway get islands | grep ^island0))" >>told ;;
  *) echo "$*" >>told ;;
esac
"""
# The real one, but for what the file `failures` says: `once drain`, `always drain`.
FAIRWAY = """#!/bin/sh
if grep -q " $1$" {folder}/failures; then
  sed -i "0,/^once $1$/{{//d}}" {folder}/failures
  echo "fairway $1: no answer" >&2
  exit 1
fi
exec {bin}/fairway "$@"
"""
# Nobody waits here between tries.
BUSYBOX = """#!/bin/sh
[ "$1" = sleep ]
"""


class Roll:
    """The Job that rolls islands, without its kubectl, at a cluster."""

    def __init__(self, secrets, folder, port):
        values, self.folder = chart.HERE / "values" / "operators.yaml", folder
        self.spec = chart.of_kind(values, "Job")["fw-fairway-roll"]["spec"]["template"]["spec"]
        for path in ("scratch", "programs", "scripts", "opt"):
            (folder / path).mkdir(parents=True)
        for name, file, data in (("token", "admin.token", secrets["fw-fairway-admin"]), ("ca", "ca.pem", secrets["fw-fairway-ca"])):
            write_secret(folder / name, {file: data[file]})
        self.script = folder / "scripts" / "roll.sh"
        self.script.write_text(chart.of_kind(values, "ConfigMap")["fw-fairway-scripts"]["data"]["roll.sh"], encoding="utf-8")
        for path, text in (("programs/kubectl", KUBECTL), ("programs/fairway", FAIRWAY), ("opt/busybox", BUSYBOX)):
            program = folder / path
            program.write_text(text.format(folder=shlex.quote(str(folder)), bin=shlex.quote(str(BIN))), encoding="utf-8")
            program.chmod(0o755)
        [step] = self.spec["containers"]
        environment = {one["name"]: moved(one["value"], folder) for one in step["env"]}
        assert environment["FAIRWAY_CONTROLLER"] == "fw-fairway-controller.accelerators.svc:29000"
        self.environment = environment | {"PATH": f"{folder}/programs:{BIN}:/usr/bin:/bin", "FAIRWAY_CONTROLLER": f"127.0.0.1:{port}"}
        assert step["command"] == ["/programs/busybox", "sh", "/scripts/roll.sh"]

    def copy(self):
        """The first step: busybox, and the CA and the token for the user alone."""
        command = [word.replace("/bin/busybox", "/opt/busybox") for word in self.spec["initContainers"][0]["command"]]
        return shell(command, self.folder)

    def begin(self, old, limit="1", then="stop", islands="island0 abc fw-fairway-island0 2", later=None, failures=""):
        (self.folder / "old").write_text(old, encoding="utf-8")
        (self.folder / "failures").write_text(failures, encoding="utf-8")
        if later is not None:
            (self.folder / "later").write_text(later, encoding="utf-8")
        (self.folder / "told").write_text("", encoding="utf-8")
        return subprocess.Popen(["sh", self.script], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.environment | {
            "ISLANDS": islands, "DRAIN_SECONDS": limit, "AT_LIMIT": then})

    def run(self, *words, **more):
        """(code, what it said, what kubectl was told)."""
        with self.begin(*words, **more) as process:
            said, _ = process.communicate(timeout=120)
        return process.returncode, said, (self.folder / "told").read_text(encoding="utf-8")

    def fairway(self, *words):
        return subprocess.run([BIN / "fairway", *words], env=self.environment, text=True, capture_output=True, check=True, timeout=60).stdout

    def cordoned(self):
        [island] = json.loads(self.fairway("get", "islands", "-o", "json"))["items"]
        return bool(island["cordoned_by"])


WAITS = "wait --for=create --timeout=300s pod/fw-fairway-island0-0 pod/fw-fairway-island0-1\n" \
    "wait --for=condition=Ready --timeout=600s pod/fw-fairway-island0-0 pod/fw-fairway-island0-1\n"


@contextlib.contextmanager
def holder(roll, folder):
    """A JAX program that holds the island."""
    (folder / "holder.py").write_text(HOLDER, encoding="utf-8")
    python = chart.ROOT / ".venv" / "bin" / "python"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("JAX_", "XLA_", "FAIRWAY_"))}
    environment |= {key: value for key, value in roll.environment.items() if key.startswith("FAIRWAY_") or key == "PATH"}
    roll.fairway("token", "create", "--role=user", "--tenant=red", f"--to={folder}/red.token")
    environment["FAIRWAY_TOKEN_FILE"] = str(folder / "red.token")
    with subprocess.Popen([python, folder / "holder.py"], env=environment | {"JAX_PLATFORMS": "fairway,cpu"}, text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


def test_the_job_that_rolls_drains_an_island_before_it_deletes_its_pods(secrets, tmp_path):
    with cluster(MINIMAL, secrets, tmp_path) as (_, _, port):
        roll = Roll(secrets, tmp_path / "roll", port)
        assert roll.copy().returncode == 0
        assert {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "roll" / "scratch").iterdir()} == {"token": 0o600, "ca.pem": 0o600}
        wait_for(lambda: "island0" in roll.fairway("get", "islands"), "the island")
        assert roll.run("") == (0, "", WAITS), "an island that has not changed is not drained"
        with holder(roll, tmp_path):
            code, said, told = roll.run("pod/fw-fairway-island0-0")
            assert code == 3 and told == "" and not roll.cordoned(), said
            assert "1 session holds island0" in said and "roll: island0 is not drained (rollDrain.limitSeconds=1): no pod of it was deleted" in said
            code, said, told = roll.run("pod/fw-fairway-island0-0", then="delete")
            assert code == 0 and re.fullmatch(rf"delete --ignore-not-found pod/fw-fairway-island0-0 \(island0 +up, cordoned .*\)\n{WAITS}", told), said + told
            assert not roll.cordoned()
            with roll.begin("pod/fw-fairway-island0-0", limit="3600") as process:
                wait_for(roll.cordoned, "the drain")
                process.terminate()
                said = process.communicate(timeout=60)[0]
            assert process.returncode == 143 and not roll.cordoned(), said
        code, said, told = roll.run("pod/fw-fairway-island0-0\npod/fw-fairway-island0-1", limit="60")
        assert code == 0 and not roll.cordoned(), said
        assert re.fullmatch(rf"delete --ignore-not-found pod/fw-fairway-island0-0 pod/fw-fairway-island0-1 \(island0 +up, drained .*\)\n{WAITS}", told), told
        # What somebody cordoned stays cordoned. Of what never came up nobody has anything.
        roll.fairway("cordon", "island0")
        both = "island0 abc fw-fairway-island0 1\nnew abc fw-fairway-new 1"
        code, said, told = roll.run("pod/fw-fairway-island0-0\npod/fw-fairway-new-0", limit="60", islands=both)
        assert code == 0 and roll.cordoned() and told.count("delete") == 2, said
        assert "roll: island0 was cordoned before, and stays so" in said and "roll: the controller knows no worker of new" in said


def test_the_job_that_rolls_begins_a_drain_anew_that_fails_before_its_limit_and_deletes_nothing_meanwhile(secrets, tmp_path):
    with cluster(MINIMAL, secrets, tmp_path) as (_, _, port):
        roll = Roll(secrets, tmp_path / "roll", port)
        assert roll.copy().returncode == 0
        wait_for(lambda: "island0" in roll.fairway("get", "islands"), "the island")
        failures = "once drain\nonce uncordon\nonce uncordon\n"
        code, said, told = roll.run("pod/fw-fairway-island0-0", limit="60", then="delete", failures=failures)
        assert code == 0 and not roll.cordoned(), said
        assert said.count("roll: the drain of island0 ended with 1") == 1 and said.count("fairway uncordon: no answer") == 2
        assert re.fullmatch(rf"delete --ignore-not-found pod/fw-fairway-island0-0 \(island0 +up, drained .*\)\n{WAITS}", told), told
        # Also at the limit a failure is none of the island's, whatever `atLimit` says of that.
        code, said, told = roll.run("pod/fw-fairway-island0-0", then="delete", failures="always drain\nonce uncordon\n")
        assert code == 1 and told == "" and not roll.cordoned(), said
        assert "roll: whether sessions hold island0 is not known at the limit (rollDrain.limitSeconds=1): no pod of it was deleted" in said


def test_the_job_that_rolls_deletes_what_is_old_after_the_drain_and_of_the_islands_size(secrets, tmp_path):
    with cluster(MINIMAL, secrets, tmp_path) as (_, _, port):
        roll = Roll(secrets, tmp_path / "roll", port)
        assert roll.copy().returncode == 0
        wait_for(lambda: "island0" in roll.fairway("get", "islands"), "the island")
        first, second, third = (f"pod/fw-fairway-island0-{number}" for number in range(3))
        code, said, told = roll.run(f"{first}\n{second}\n{third}", limit="60", later=f"{second}\n{third}")
        assert code == 0 and re.fullmatch(rf"delete --ignore-not-found {second} \(island0 +up, drained .*\)\n{WAITS}", told), said + told
        code, said, told = roll.run(first, limit="60", later="")
        assert code == 0 and told == WAITS and not roll.cordoned(), said


def test_the_job_that_rolls_says_that_it_has_no_token_and_that_it_reaches_no_controller(secrets, tmp_path):
    roll = Roll({**secrets, "fw-fairway-admin": {"admin.token": b""}}, tmp_path, 1)
    told = roll.copy()
    assert told.returncode == 1 and "the Secret fw-fairway-admin has no admin.token" in told.stderr
    code, said, told = roll.run("pod/fw-fairway-island0-0")
    assert code == 1 and told == "" and "roll: cannot ask the controller what to drain" in said
    code, said, told = roll.run("pod/fw-fairway-island0-0", limit="0")
    assert code == 0 and told.startswith("delete --ignore-not-found pod/fw-fairway-island0-0 "), "without a drain it asks no controller"


def test_the_job_that_rolls_deletes_nothing_while_the_api_server_is_away_and_lets_sessions_in_again(secrets, tmp_path):
    with cluster(MINIMAL, secrets, tmp_path) as (_, _, port):
        roll = Roll(secrets, tmp_path / "roll", port)
        assert roll.copy().returncode == 0
        wait_for(lambda: "island0" in roll.fairway("get", "islands"), "the island")
        for when, drained in (("away", False), ("leaves", True)):
            (roll.folder / when).write_text("", encoding="utf-8")
            code, said, told = roll.run("pod/fw-fairway-island0-0", limit="60")
            assert code == 1 and told == "" and not roll.cordoned(), said
            assert "roll: cannot ask the API server which pods of island0 are old: no pod of it was deleted, nor of the islands behind it. " in said
            assert ("roll: island0 has pods of another revision" in said) == drained
            (roll.folder / "away").unlink()
        code, said, told = roll.run("pod/fw-fairway-island0-0", limit="60")
        assert code == 0 and told.startswith("delete "), said
