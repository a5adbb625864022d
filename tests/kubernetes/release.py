# SPDX-License-Identifier: Apache-2.0
"""The chart as a user installs it, in a namespace that takes restricted pods alone; and users' pods, in another one."""

import json
import pathlib
import sys

import images
from cluster import ROOT
from waiting import wait_for

CHART = ROOT / "deploy" / "helm" / "fairway"
BIN = ROOT / "build" / "release" / "bin"
PYTHON = ROOT / ".venv" / "bin" / "python"
NAMESPACE, USERS = "accelerators", "users"
SMALL = {"requests": {"cpu": "50m", "memory": "256Mi"}}
VALUES = {
    "images": {"controller": "localhost/fairway-controller", "worker": "localhost/fairway-worker", "tools": images.TOOLS,
               "kubectl": images.KUBECTL},
    "controller": {"resources": SMALL}, "islandDefaults": {"resources": SMALL},
    "islands": [{"name": "a", "devices": 4}, {"name": "b", "devices": 4}, {"name": "host", "runtime": "host", "workers": 2}],
    "networkPolicy": {"clients": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": USERS}}}]},
}
WORKERS = ["fw-fairway-a-0", "fw-fairway-b-0", "fw-fairway-host-0", "fw-fairway-host-1"]
PODS = [*WORKERS, "fw-fairway-controller-0"]


def namespaces():
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}} for name, labels in (
        (NAMESPACE, {"pod-security.kubernetes.io/enforce": "restricted"}), (USERS, {}))]


class Release:
    """`name` in the namespace; what is typed is typed as docs and notes tell to."""

    def __init__(self, cluster, name="fw"):
        self.cluster, self.name = cluster, name

    def values(self, **changes):
        path = self.cluster.folder / f"values-{self.name}.json"
        path.write_text(json.dumps(VALUES | changes))
        return path

    def helm(self, *words, **more):
        return self.cluster.helm("-n", NAMESPACE, *words, **more)

    def install(self, **changes):
        return self.helm("install", self.name, CHART, "-f", self.values(**changes))

    def upgrade(self, *flags, **changes):
        return self.helm("upgrade", self.name, CHART, "-f", self.values(**changes), *flags)

    def kubectl(self, *words, **more):
        return self.cluster.kubectl("-n", NAMESPACE, *words, **more)

    def pods(self):
        """Name -> pod, of this release."""
        return {one["metadata"]["name"]: one for one in self.cluster.all("pods", NAMESPACE, f"app.kubernetes.io/instance={self.name}")}

    def numbers(self):
        """Name -> what a pod of the same name that is made anew has not got."""
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def all_end(self):
        wait_for(lambda: not self.pods(), lambda: f"the end of {list(self.pods())}")

    def is_ready(self, *pods):
        return all(self.cluster.is_ready("pod", pod, NAMESPACE) for pod in pods)

    def wait_until_ready(self, *pods, seconds=180):
        wait_for(lambda: self.is_ready(*(pods or PODS)), lambda: self.cluster.kubectl(
            "-n", NAMESPACE, "describe", "pods", check=False)[-8000:] + self.kubectl("get", "pods", "-o=wide", check=False), seconds)


class Client:
    """A user's pod, which has this machine's programs, .venv and repository, and no rights. `folder`: its CA and token are there."""

    def __init__(self, cluster, name, folder, namespace=USERS):
        self.cluster, self.name, self.namespace = cluster, name, namespace
        python = pathlib.Path(PYTHON).resolve()  # where .venv's Python is
        places = {path: path for path in {ROOT, (ROOT / ".venv").resolve(), python.parents[1], folder}}
        places |= {pathlib.Path(inside): pathlib.Path(inside).resolve() for inside in ("/usr", "/lib", "/lib64")}
        places = {inside: place for inside, place in places.items() if pathlib.Path("/usr") not in inside.parents}
        container = {
            "name": "client", "image": images.TOOLS, "command": ["sleep", "86400"], "securityContext": {"runAsUser": 0},
            "env": [{"name": key, "value": value} for key, value in {
                "PATH": f"{BIN}:/usr/bin:/bin", "HOME": "/tmp", "JAX_PLATFORMS": "fairway,cpu",
                "FAIRWAY_CONTROLLER": f"fw-fairway-controller.{NAMESPACE}.svc:29000",
                "FAIRWAY_TLS_CA": str(folder / "ca.pem"), "FAIRWAY_TOKEN_FILE": str(folder / "red.token")}.items()],
            "volumeMounts": [{"name": f"v{number}", "mountPath": str(inside)} for number, inside in enumerate(places)]}
        spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                "tolerations": [{"operator": "Exists"}],
                "volumes": [{"name": f"v{number}", "hostPath": {"path": str(place)}} for number, place in enumerate(places.values())]}
        cluster.apply([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}])
        wait_for(lambda: cluster.is_ready("pod", name, namespace), lambda: cluster.kubectl("-n", namespace, "describe", "pod", name))

    def address(self):
        return self.cluster.get(f"pod/{self.name}", self.namespace)["status"]["podIP"]

    def words(self, *command):
        return ("-n", self.namespace, "exec", self.name, "-i", "--", *command)

    def run(self, *command, seconds=180, check=True):
        return self.cluster.kubectl(*self.words(*command), seconds=seconds, check=check)

    def python(self, program, seconds=180, check=True):
        return self.run(PYTHON, "-c", program, seconds=seconds, check=check)

    def remove(self):
        self.cluster.kubectl("-n", self.namespace, "delete", "pod", self.name, "--now")


if __name__ == "__main__":  # the values, for a look by hand
    json.dump(VALUES, sys.stdout, indent=1)
