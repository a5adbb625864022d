# SPDX-License-Identifier: Apache-2.0
"""The chart on nodes with real kubelets. These tests use one release and leave all its pods ready."""

import json
import subprocess

import pytest

from cluster import ROOT
from release import NAMESPACE, PYTHON, WORKERS, Client
from waiting import wait_for

ADD = """
import jax, jax.numpy as jnp
out = [jax.jit(lambda x: x + 1)(jax.device_put(jnp.arange(3.), jax.devices()[at])) for at in (0, 4)]
print([device.slice_index for device in jax.devices()][:8:4] if hasattr(jax.devices()[0], "slice_index") else "", *out)
"""
# Holds an array on the first island, says so, and reads it when a line comes.
HOLD = """
import sys, jax, jax.numpy as jnp
held = jax.jit(lambda x: x + 1)(jax.device_put(jnp.arange(3.), jax.devices()[0])).block_until_ready()
print("held", flush=True)
sys.stdin.readline()
try:
    print(held + 1)
except Exception as error:
    print("lost:", error)
"""


def status(client):
    return json.loads(client.run("fairway", "status", "-o", "json"))


def executors_up(client):
    return sorted(one["worker"] for one in status(client)["executors"] if one["up"])


def all_serve(client):
    """All workers register, and a program runs on two islands."""
    wait_for(lambda: executors_up(client) == WORKERS, lambda: f"all workers, not {executors_up(client)} alone")
    assert client.python(ADD).rstrip().endswith("[1. 2. 3.] [1. 2. 3.]")


@pytest.fixture(autouse=True)
def ready(release):
    yield
    release.wait_until_ready()


def test_the_notes_lead_to_a_status_and_to_a_token(release, user):
    """helm test among them; the status comes through kubectl port-forward."""
    assert "Phase:          Succeeded" in release.typed
    for pod in WORKERS:
        assert f"{pod} up " in release.typed
    assert sorted(path.name for path in user.iterdir() if path.suffix) == ["admin.token", "ca.pem", "red.token"]
    assert "fw-fairway-test" not in release.pods(), "a test that succeeds leaves no pod"


def test_all_pods_are_confined(release):
    """Of each container's first process, by what the kernel says."""
    for name, pod in release.pods().items():
        node = release.cluster.nodes[pod["spec"]["nodeName"]]
        for one in [*pod["status"]["containerStatuses"], pod["status"]["initContainerStatuses"][-1]]:
            said = json.loads(node.run("ctr", "-n", "k8s.io", "containers", "info", one["containerID"].removeprefix("containerd://")).stdout)
            assert said["Spec"]["root"]["readonly"] and said["Spec"]["process"]["noNewPrivileges"], name
            assert said["Spec"]["linux"]["seccomp"]["defaultAction"] == "SCMP_ACT_ERRNO", name
            assert not said["Spec"]["process"]["capabilities"].get("effective"), name
            assert said["Spec"]["process"]["user"]["uid"] == 65532, name


def test_the_volume_is_the_pods_groups_and_the_data_are_the_daemons_alone(release):
    volume = release.cluster.folder / "volumes" / "first"
    assert (volume.stat().st_gid, volume.stat().st_mode & 0o2070) == (65532, 0o2070), "as fsGroup wants it"
    data = volume / "data"
    assert (data.stat().st_uid, data.stat().st_mode & 0o777) == (65532, 0o700)


def test_a_jax_program_runs_through_the_service_on_two_islands(client):
    all_serve(client)


def test_a_pipeline_is_trained_on_the_islands(client):
    assert "accuracy" in client.run(PYTHON, ROOT / "examples" / "digits_pipeline.py", seconds=300)


def test_a_worker_pod_that_is_killed_comes_back_and_fails_only_who_had_arrays_there(release, client):
    before = release.numbers().get("fw-fairway-a-0")
    with client.cluster.start(*client.words(PYTHON, "-c", HOLD), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout.readline() == "held\n"
        release.kubectl("delete", "pod", "fw-fairway-a-0", "--force", "--grace-period=0")
        wait_for(lambda: release.numbers().get("fw-fairway-a-0", before) != before, "another pod")
        release.wait_until_ready("fw-fairway-a-0")
        said, _ = program.communicate("\n", timeout=120)
    assert said.startswith("lost: ") and "fw-fairway-a-0" in said
    all_serve(client)


def first_process(release, pod, container):
    """Its number on this machine, and its node."""
    one = release.pods()[pod]
    node = release.cluster.nodes[one["spec"]["nodeName"]]
    identity = next(status["containerID"] for status in one["status"]["containerStatuses"] if status["name"] == container)
    told = node.run("ctr", "-n", "k8s.io", "tasks", "ls").stdout
    return node, next(line.split()[1] for line in told.splitlines() if line.startswith(identity.removeprefix("containerd://")))


def restarts(release, pod, container):
    return next(one["restartCount"] for one in release.pods()[pod]["status"]["containerStatuses"] if one["name"] == container)


def test_a_worker_whose_process_is_killed_is_started_again_in_its_pod(release, client):
    before, times = release.numbers()["fw-fairway-b-0"], restarts(release, "fw-fairway-b-0", "worker")
    node, process = first_process(release, "fw-fairway-b-0", "worker")
    node.run("kill", "-KILL", process)
    wait_for(lambda: restarts(release, "fw-fairway-b-0", "worker") == times + 1, "a restart")
    wait_for(lambda: "fw-fairway-b-0" in executors_up(client), "its registration")
    assert release.numbers()["fw-fairway-b-0"] == before


def test_a_controller_that_hangs_is_restarted_by_its_liveness_probe(release, client):
    times = restarts(release, "fw-fairway-controller-0", "controller")
    node, process = first_process(release, "fw-fairway-controller-0", "controller")
    node.run("kill", "-STOP", process)
    wait_for(lambda: restarts(release, "fw-fairway-controller-0", "controller") == times + 1, "a restart", 240)
    release.wait_until_ready()
    all_serve(client)


def test_a_drained_node_gives_its_pods_to_the_other_and_tokens_still_count(release, client):
    where = release.pods()["fw-fairway-controller-0"]["spec"]["nodeName"]
    release.cluster.kubectl("drain", where, "--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--pod-selector=app.kubernetes.io/instance={release.name}",
                            "--timeout=120s", seconds=150)
    try:
        release.wait_until_ready()
        assert {pod["spec"]["nodeName"] for pod in release.pods().values()} == set(release.cluster.nodes) - {where}
        all_serve(client)
    finally:
        release.cluster.kubectl("uncordon", where)


def opens(run, host, port):
    """Whether a connection is made, by busybox."""
    return "told: 0" in run("sh", "-c", f"nc -w 3 {host} {port} </dev/null; echo told: $?")


def test_the_policies_let_through_what_is_needed_and_nothing_else(cluster, release, client, user):
    controller, port = f"fw-fairway-controller.{NAMESPACE}.svc", 29000
    worker = release.pods()["fw-fairway-a-0"]["status"]["podIP"]
    python = "import socket; socket.create_connection(({!r}, {}), timeout=3); print('told: 0')"

    def from_client(*words):
        host, number = words[2].split()[3:5]
        return client.run(PYTHON, "-c", python.format(host, number), check=False)

    def from_worker(*words):
        return release.kubectl("exec", "fw-fairway-b-0", "-c", "certificates", "--", *words)

    assert opens(from_client, controller, port)
    for host, number in ((controller, 29001), (controller, 29002), (controller, 29003), (worker, 29004)):
        assert not opens(from_client, host, number), f"{host}:{number} from a user's pod"
    assert opens(from_worker, controller, 29002) and opens(from_worker, controller, 29003) and opens(from_worker, worker, 29004)
    for host, number in ((controller, port), (controller, 29001), ("10.96.0.1", 443), (client.address(), 22)):
        assert not opens(from_worker, host, number), f"{host}:{number} from a worker's pod"
    stranger = Client(cluster, "stranger", user, namespace="default")
    try:
        assert not opens(lambda *words: stranger.run(*words), controller, port), "from a namespace that is not named"
    finally:
        stranger.remove()


def memory_of(client, worker):
    (line,) = [line for line in client.run("fairway", "status").splitlines() if line.split()[:1] == [worker]]
    return line


def test_an_upgrade_restarts_nothing_and_counts_in_pods_that_start_afterwards(release, client):
    before = release.numbers()
    release.upgrade("--set=islands[0].settings.device-memory=512MiB")
    assert release.numbers() == before and "512" not in memory_of(client, "fw-fairway-a-0")
    release.kubectl("delete", "pod", "fw-fairway-a-0")
    release.wait_until_ready()
    assert {name for name, number in release.numbers().items() if number != before[name]} == {"fw-fairway-a-0"}
    wait_for(lambda: "fw-fairway-a-0" in executors_up(client), "its registration")
    assert "512.0 MiB" in memory_of(client, "fw-fairway-a-0")
    release.helm("rollback", release.name)


def test_a_job_rolls_the_islands_that_changed_one_after_the_other(release, client):
    before = release.numbers()
    release.upgrade("--set=rollIslands=true", "--set=islands[0].settings.device-memory=1GiB", "--set=islands[1].settings.device-memory=1GiB")
    after = release.pods()
    assert {name for name, number in release.numbers().items() if number != before[name]} == {"fw-fairway-a-0", "fw-fairway-b-0"}
    ready = next(one for one in after["fw-fairway-a-0"]["status"]["conditions"] if one["type"] == "Ready")
    assert ready["lastTransitionTime"] <= after["fw-fairway-b-0"]["metadata"]["creationTimestamp"]
    all_serve(client)
    assert "1.0 GiB" in memory_of(client, "fw-fairway-b-0")
    assert not release.cluster.all("jobs", NAMESPACE, "app.kubernetes.io/instance=fw")


def test_certificates_of_an_upgrade_are_used_without_a_restart(release, client):
    before = release.numbers()

    def certificate(pod, container):
        node, process = first_process(release, pod, container)
        role = {"controller": "controller", "worker": "worker"}[container]
        done = node.run("cat", f"/proc/{process}/root/run/fairway/tls/{role}.pem")
        assert done.returncode == 0, done.stderr
        return done.stdout

    pods = {"fw-fairway-controller-0": "controller", "fw-fairway-host-1": "worker"}
    old = {pod: certificate(pod, container) for pod, container in pods.items()}
    release.upgrade()
    for pod, container in pods.items():
        wait_for(lambda pod=pod, container=container: certificate(pod, container) != old[pod], f"the new certificate of {pod}", 180)
        wait_for(lambda pod=pod, container=container: "has been replaced, and is used from now on"
                 in release.kubectl("logs", pod, "-c", container), "its use")
    assert release.numbers() == before
    all_serve(client)


def test_a_rollback_to_more_workers_brings_their_certificates_back(release, client):
    fewer = [{"name": "a", "devices": 4}, {"name": "b", "devices": 4}, {"name": "host", "runtime": "host", "workers": 1}]
    release.upgrade(islands=fewer)
    wait_for(lambda: "fw-fairway-host-1" not in release.pods(), "the end of the second worker")
    release.helm("rollback", release.name)
    release.kubectl("delete", "pod", "fw-fairway-host-0", "--wait=false")
    release.wait_until_ready()
    all_serve(client)
