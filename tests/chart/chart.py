# SPDX-License-Identifier: Apache-2.0
"""Renders the chart with the values of tests/chart/values.

`python tests/chart/chart.py` writes tests/chart/golden anew: look at what git shows to be different.
"""

import pathlib
import subprocess
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "chart"
CHART = ROOT / "deploy" / "helm" / "fairway"
HELM = ROOT / ".deps" / "helm" / "helm"
VALUES = sorted((HERE / "values").glob("*.yaml"))
NEWEST = "1.37"  # helm that is built by `go install` takes itself for one of Kubernetes 1.20


def helm(*arguments, check=True, **more):
    return subprocess.run([HELM, *arguments], text=True, capture_output=True, check=check, timeout=120, **more)


def render(values, *arguments, check=True):
    return helm("template", "fw", CHART, "--namespace", "accelerators", "--kube-version", NEWEST, "-f", values,
                *arguments, check=check)


def golden(values):
    return HERE / "golden" / values.name


def objects(values):
    """What the values render to, as the golden file has it."""
    return [one for one in yaml.safe_load_all(golden(values).read_text(encoding="utf-8")) if one]


def of_kind(values, kind):
    """Name -> object."""
    return {one["metadata"]["name"]: one for one in objects(values) if one["kind"] == kind}


def template(one):
    """The pods that an object makes, as {metadata, spec}, or None."""
    if one["kind"] in ("StatefulSet", "Job"):
        return one["spec"]["template"]
    if one["kind"] == "LeaderWorkerSet":
        return one["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    if one["kind"] == "JobSet":
        [job] = one["spec"]["replicatedJobs"]
        return job["template"]["spec"]["template"]
    return one if one["kind"] == "Pod" else None


def pods(values):
    """(owner, pod spec) of all pods that the objects make."""
    for one in objects(values):
        if template(one):
            yield one, template(one)["spec"]


def daemons(values):
    """(owner, pod) of the controller and of each island, whatever keeps its pods."""
    for one in objects(values):
        if one["kind"] in ("StatefulSet", "LeaderWorkerSet", "JobSet"):
            yield one, template(one)


def containers(pod):
    return [*pod.get("initContainers", []), *pod["containers"]]


if __name__ == "__main__":
    for path in VALUES:
        done = render(path, check=False)
        if done.returncode != 0:
            sys.exit(f"{path.name}: {done.stderr}")
        golden(path).write_text(done.stdout, encoding="utf-8")
