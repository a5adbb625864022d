# SPDX-License-Identifier: Apache-2.0
"""What each render promises: confinement, no API token, drains that are not blocked, one source of the rules."""

import json
import re
import shutil
import subprocess
import sys
import tarfile

import pytest
import yaml

import chart

sys.path.append(str(chart.ROOT / "deploy" / "helm"))
import readme  # noqa: E402

each = pytest.mark.parametrize("values", chart.VALUES, ids=lambda path: path.stem)
METRICS = (chart.ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


@each
def test_each_pod_is_as_restricted_pod_security_wants_it(values):
    count = 0
    for _, pod in chart.pods(values):
        security = pod["securityContext"]
        assert security["runAsNonRoot"] and security["runAsUser"] == security["fsGroup"] == 65532
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not [name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name)]
        assert not [volume for volume in pod.get("volumes", []) if "hostPath" in volume]
        for one in chart.containers(pod):
            assert one["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                              "capabilities": {"drop": ["ALL"]}}
            assert one["resources"]["requests"] and one["resources"]["limits"]
            count += 1
    assert count >= 5


@each
def test_no_container_has_a_token_of_the_api_but_those_that_use_kubectl(values):
    for _, pod in chart.pods(values):
        assert pod["automountServiceAccountToken"] is False
        tokens = {volume["name"] for volume in pod.get("volumes", []) for source in volume.get("projected", {}).get("sources", [])
                  if "serviceAccountToken" in source}
        have = [one["name"] for one in chart.containers(pod)
                if tokens & {mount["name"] for mount in one.get("volumeMounts", [])}]
        assert have in ([], ["apply-once", "apply-manifests"], ["roll"])


@each
def test_what_a_container_mounts_its_pod_has(values):
    for _, pod in chart.pods(values):
        claims = {"data"}
        there = {volume["name"] for volume in pod.get("volumes", [])} | claims
        for one in chart.containers(pod):
            assert {mount["name"] for mount in one.get("volumeMounts", [])} <= there


@each
def test_keys_of_others_are_not_in_the_containers_that_run_programs(values):
    for owner, pod in chart.pods(values):
        if owner["metadata"]["labels"].get("app.kubernetes.io/component") == "worker":
            mounts = {mount["name"] for one in pod["containers"] for mount in one["volumeMounts"]}
            assert mounts == {"settings", "tls", "data", "tmp"}


@each
def test_no_drain_is_blocked_and_no_upgrade_restarts_islands(values):
    budgets = chart.of_kind(values, "PodDisruptionBudget")
    sets = chart.of_kind(values, "StatefulSet")
    # Not over the pods of Jobs: they have no scale, so such a budget lets none go.
    assert budgets.keys() == sets.keys() | chart.of_kind(values, "LeaderWorkerSet").keys()
    for name, one in chart.of_kind(values, "LeaderWorkerSet").items():
        assert budgets[name]["spec"]["selector"]["matchLabels"].items() <= chart.template(one)["metadata"]["labels"].items()
    for name, one in sets.items():
        assert budgets[name]["spec"]["maxUnavailable"] >= 1 and "minAvailable" not in budgets[name]["spec"]
        # Otherwise the only pod of a set, when it is not ready, would block the drain.
        assert budgets[name]["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        assert budgets[name]["spec"]["selector"] == one["spec"]["selector"]
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert one["spec"]["selector"]["matchLabels"].items() <= labels.items()
        if labels["app.kubernetes.io/component"] == "worker":
            assert one["spec"]["updateStrategy"] == {"type": "OnDelete"}
            assert one["spec"]["podManagementPolicy"] == "Parallel"
        else:
            assert one["spec"]["replicas"] == 1


OPERATORS = chart.HERE / "values" / "operators.yaml"


def test_each_worker_has_the_name_of_its_certificate_whatever_keeps_its_pod():
    """FULLNAME-ISLAND-NUMBER; a pod of a JobSet has a random name."""
    secrets = next(env["value"] for job in chart.of_kind(OPERATORS, "Job").values() for one in chart.containers(job["spec"]["template"]["spec"])
                   for env in one.get("env", []) if env["name"] == "ISLANDS")
    assert secrets.split("\n") == ["group 4", "batch 3", "set 2", "alone 1"]
    where = {"LeaderWorkerSet": "metadata.labels['leaderworkerset.sigs.k8s.io/worker-index']",
             "JobSet": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}
    for owner, pod in chart.daemons(OPERATORS):
        if owner["kind"] in where:
            [sidecar], [worker] = pod["spec"]["initContainers"], pod["spec"]["containers"]
            assert sidecar["command"][-1] == "$(POD_NAME)"
            for container, variable in ((sidecar, "POD_NAME"), (worker, "FAIRWAY_NAME")):
                number, name = container["env"][:2]
                assert number == {"name": "WORKER_NUMBER", "valueFrom": {"fieldRef": {"fieldPath": where[owner["kind"]]}}}
                assert name == {"name": variable, "value": f"fw-fairway-{owner['metadata']['labels']['fairway/island']}-$(WORKER_NUMBER)"}


def test_an_island_of_an_operator_is_one_gang_of_all_its_workers():
    [group] = chart.of_kind(OPERATORS, "LeaderWorkerSet").values()
    assert group["spec"]["replicas"] == 1 and group["spec"]["leaderWorkerTemplate"]["size"] == 4
    assert "leaderTemplate" not in group["spec"]["leaderWorkerTemplate"], "the leader is a worker as the others"
    batch = next(one for name, one in chart.of_kind(OPERATORS, "JobSet").items() if "batch" in name)
    [job] = batch["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    assert job["replicas"] == 1 and spec["completions"] == spec["parallelism"] == 3 and spec["completionMode"] == "Indexed"
    # Two pods of one name in Fairway would push each other out.
    assert spec["podReplacementPolicy"] == "Failed" and spec["template"]["spec"]["restartPolicy"] == "OnFailure"


def test_kueue_finds_the_queue_of_each_island_that_has_one_on_what_keeps_its_pods():
    queues = {owner["metadata"]["labels"]["fairway/island"]: owner["metadata"]["labels"].get("kueue.x-k8s.io/queue-name")
              for owner, _ in chart.daemons(OPERATORS) if "fairway/island" in owner["metadata"]["labels"]}
    assert queues == {"group": "research", "batch": None, "set": "research", "alone": None}
    assert "kueue" not in chart.golden(chart.HERE / "values" / "islands.yaml").read_text(encoding="utf-8")


def test_a_job_set_that_changes_is_another_one_since_none_can_be_changed(tmp_path):
    path = tmp_path / "values.yaml"

    def names(**more):
        values = yaml.safe_load(OPERATORS.read_text(encoding="utf-8"))
        values["islands"][1] |= more
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
        return {one["metadata"]["name"] for one in yaml.safe_load_all(chart.render(path).stdout) if one and one["kind"] == "JobSet"}

    first = names()
    for change in ({"workers": 2}, {"settings": {"log-level": "debug"}}, {"podAnnotations": {}}, {"image": "other:1"}):
        assert len(names(**change) - first) == 1 == len(first - names(**change)), change
    assert names(workloadAnnotations={"a": "b"}) == first, "which can be changed"
    # With the longest name the pods' names are of 63 characters: NAME-12345678-w-0-511-abcde.
    longest = names(name="a" * 29, workers=512) - first
    assert [len(name) for name in longest] == [63 - len("-w-0-511-abcde")]


def test_another_version_of_the_chart_alone_changes_no_pod_of_lws_and_no_job_set(tmp_path):
    """They would start anew, all at once."""
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(OPERATORS.read_text(encoding="utf-8")) | {"images": {"tag": "1"}}), encoding="utf-8")

    def islands(version):
        copy = tmp_path / version / "fairway"
        shutil.copytree(chart.CHART, copy)
        about = yaml.safe_load((copy / "Chart.yaml").read_text(encoding="utf-8")) | {"version": version, "appVersion": version}
        (copy / "Chart.yaml").write_text(yaml.safe_dump(about), encoding="utf-8")
        done = chart.helm("template", "fw", copy, "--kube-version", chart.NEWEST, "-f", path)
        found = [one for one in yaml.safe_load_all(done.stdout) if one and one["kind"] in ("LeaderWorkerSet", "JobSet")]
        assert {one["metadata"]["labels"]["helm.sh/chart"] for one in found} == {f"fairway-{version}"}
        return {(one["kind"], one["metadata"]["name"]): one["spec"] for one in found}

    first = islands("7.0.0")
    assert len(first) == 3 and first == islands("7.0.1")


@each
def test_each_statefulset_has_its_service(values):
    services = chart.of_kind(values, "Service")
    for name, one in chart.of_kind(values, "StatefulSet").items():
        service = services[one["spec"]["serviceName"]]
        assert service["spec"]["selector"].items() <= one["spec"]["template"]["metadata"]["labels"].items()
        worker = service["metadata"]["labels"]["app.kubernetes.io/component"] == "worker"
        assert (service["spec"].get("clusterIP") == "None") == worker
        ports = {port["name"] for container in one["spec"]["template"]["spec"]["containers"] for port in container["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


@each
def test_islands_reach_a_controller_that_is_not_ready_since_they_make_it_so(values):
    for name, service in chart.of_kind(values, "Service").items():
        assert service["spec"]["publishNotReadyAddresses"], name


def test_the_job_that_rolls_islands_may_delete_their_pods_alone_and_knows_which_are_old():
    values = chart.HERE / "values" / "everything.yaml"
    (role,) = [one for name, one in chart.of_kind(values, "Role").items() if name.endswith("-roll")]
    workers = ["pilot-first-0", "pilot-first-1", "pilot-second-0"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
                             {"apiGroups": [""], "resources": ["pods"], "resourceNames": workers, "verbs": ["get", "watch", "delete"]}]
    (job,) = [one for name, one in chart.of_kind(values, "Job").items() if name.endswith("-roll")]
    pod = job["spec"]["template"]["spec"]
    [roll] = pod["containers"]
    given = {one["name"]: one["value"] for one in roll["env"]}
    islands = [(one["metadata"]["name"], one["spec"]["template"]["metadata"]["labels"], one["spec"]["replicas"])
               for one in chart.of_kind(values, "StatefulSet").values() if "fairway/island" in one["metadata"]["labels"]]
    assert given["ISLANDS"].split("\n") == [
        f"{labels['fairway/island']} {labels['fairway/revision']} {name} {workers}" for name, labels, workers in islands]
    assert given["AT_LIMIT"] == "delete" and given["DRAIN_SECONDS"] == "600"
    assert job["spec"]["activeDeadlineSeconds"] == len(islands) * (1200 + 600)
    # The code of files/roll.sh for an island that is held.
    [rule] = job["spec"]["podFailurePolicy"]["rules"]
    assert rule == {"action": "FailJob", "onExitCodes": {"containerName": roll["name"], "operator": "In", "values": [3]}}
    # Of the token's Secret it sees the token alone, and may be without: the first step says so.
    [token] = [volume["secret"] for volume in pod["volumes"] if volume["name"] == "token"]
    assert token == {"secretName": "our-admin", "optional": True, "items": [{"key": "admin.token", "path": "admin.token"}]}
    assert not [name for path in chart.VALUES if path not in (values, OPERATORS) for name in chart.of_kind(path, "Job") if name.endswith("-roll")], "only if asked for"


def test_a_job_that_rolls_and_does_not_drain_has_no_token_and_reaches_no_controller(tmp_path):
    path = tmp_path / "values.yaml"
    path.write_text("{rollIslands: true, rollDrain: {limitSeconds: 0}}", encoding="utf-8")
    made = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(chart.render(path).stdout) if one}
    pod = made["Job", "fw-fairway-roll"]["spec"]["template"]["spec"]
    assert {volume["name"] for volume in pod["volumes"]} == {"scratch", "programs", "scripts", "api"}
    assert ("NetworkPolicy", "fw-fairway-roll") not in made
    assert "component: roll" not in str(made["NetworkPolicy", "fw-fairway-controller"])


def test_a_rollback_makes_certificates_too():
    for values in chart.VALUES:
        for job in chart.of_kind(values, "Job").values():
            events = job["metadata"]["annotations"]["helm.sh/hook"].split(",")
            assert any(event.endswith("-rollback") for event in events)


def test_the_controller_is_looked_at_by_its_own_pages():
    pod = next(pod for owner, pod in chart.pods(chart.VALUES[0]) if owner["metadata"]["name"] == "fw-fairway-controller")
    container = pod["containers"][0]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http", "scheme": "HTTPS"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http", "scheme": "HTTPS"}


def peers_of(policy):
    """(direction, component or None, ports) of each rule."""
    for direction, way in (("ingress", "from"), ("egress", "to")):
        for rule in policy["spec"].get(direction, []):
            for peer in rule.get(way, [{}]):
                labels = peer.get("podSelector", {}).get("matchLabels", {})
                yield direction, labels.get("app.kubernetes.io/component"), {port["port"] for port in rule["ports"]}


@each
def test_policies_let_through_what_daemons_need_and_nothing_else(values):
    policies = chart.of_kind(values, "NetworkPolicy")
    start = next(name for name in policies if name.endswith("-default")).removesuffix("-default")
    default = policies[f"{start}-default"]["spec"]
    assert set(default["policyTypes"]) == {"Ingress", "Egress"} and "ingress" not in default
    assert [rule["ports"] for rule in default["egress"]] == [[{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]]
    for owner, _ in chart.pods(values):
        labels = owner["spec"].get("template", owner)["metadata"]["labels"]
        assert default["podSelector"]["matchLabels"].items() <= labels.items()
    controller, workers = list(peers_of(policies[f"{start}-controller"])), list(peers_of(policies[f"{start}-workers"]))
    assert ("ingress", "worker", {29002, 29003}) in controller and ("egress", "worker", {29004}) in controller
    assert sorted(map(str, workers)) == sorted(map(str, [
        ("ingress", "controller", {29004}), ("ingress", "worker", {29004}),
        ("egress", "controller", {29002, 29003}), ("egress", "worker", {29004})]))
    # An empty list of peers would mean everybody.
    assert all(rule.get("from") for policy in policies.values() for rule in policy["spec"].get("ingress", []))
    assert {29002, 29003} not in [ports for direction, who, ports in controller if direction == "ingress" and who != "worker"]


def test_no_object_has_the_bytes_of_a_key():
    for values in chart.VALUES:
        assert not chart.of_kind(values, "Secret")
        assert "PRIVATE KEY" not in chart.golden(values).read_text(encoding="utf-8")


def test_the_alerts_are_those_of_the_one_file_of_rules():
    link = chart.CHART / "files" / "fairway.rules.yaml"
    source = chart.ROOT / "deploy" / "prometheus" / "fairway.rules.yaml"
    assert link.is_symlink() and link.resolve() == source
    rules = chart.of_kind(chart.HERE / "values" / "islands.yaml", "PrometheusRule")["fw-fairway"]
    assert rules["spec"] == yaml.safe_load(source.read_text(encoding="utf-8"))
    assert len(rules["spec"]["groups"][0]["rules"]) >= 8


def test_the_runbooks_are_where_the_values_say():
    [rules] = chart.of_kind(chart.HERE / "values" / "everything.yaml", "PrometheusRule").values()
    for rule in rules["spec"]["groups"][0]["rules"]:
        assert rule["annotations"]["runbook_url"] == f"https://wiki.example/fairway/alerts.md#{rule['alert'].lower()}"


def test_the_dashboard_asks_for_metrics_that_there_are():
    shown = chart.of_kind(chart.HERE / "values" / "islands.yaml", "ConfigMap")["fw-fairway-dashboard"]
    panels = json.loads(shown["data"]["fairway.json"])["panels"]
    asked = {name for panel in panels for target in panel["targets"] for name in re.findall(r"\bfairway_\w+", target["expr"])}
    assert len(panels) > 10 and len(asked) > 10
    assert asked <= set(re.findall(r"^\| `(fairway_\w+)`", METRICS, re.M))


def test_monitors_are_off_unless_asked_for():
    kinds = {one["kind"] for one in chart.objects(chart.HERE / "values" / "minimal.yaml")}
    assert "StatefulSet" in kinds and not kinds & {"ServiceMonitor", "PrometheusRule", "Certificate", "Issuer"}
    assert "fw-fairway-dashboard" not in chart.of_kind(chart.HERE / "values" / "minimal.yaml", "ConfigMap")


def test_the_readme_has_the_comments_of_the_values():
    """`python deploy/helm/readme.py` writes them anew."""
    assert readme.written() == readme.README.read_text(encoding="utf-8")
    paths = [row[0] for row in readme.rows()]
    assert "controller.settings" in paths and "islandDefaults.gpus" in paths and len(paths) > 50
    assert all(meaning for _, _, meaning in readme.rows())


def test_the_versions_are_the_projects():
    version = re.search(r'^version = "(.+)"', (chart.ROOT / "client" / "python" / "pyproject.toml").read_text(), re.M)[1]
    about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert about["version"] == about["appVersion"] == version


def notes(values, folder):
    """What `helm install` would print. helm template does not print it."""
    copy = folder / "fairway"
    shutil.copytree(chart.CHART, copy)
    (copy / "templates" / "notes.yaml").write_text(
        'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: notes}\ndata:\n  text: |\n    {{- include "fairway.notes" . | nindent 4 }}\n')
    done = chart.helm("template", "fw", copy, "--namespace", "accelerators", "--kube-version", chart.NEWEST, "-f", values,
                      "--show-only", "templates/notes.yaml")
    return yaml.safe_load(done.stdout)["data"]["text"]


@each
def test_the_notes_name_objects_of_the_release_and_tell_that_sessions_end(values, tmp_path):
    text = notes(values, tmp_path)
    assert "ends all sessions" in text
    sets, services = chart.of_kind(values, "StatefulSet"), chart.of_kind(values, "Service")
    named = {kind: re.findall(rf" {kind}/([\w-]+)", text) for kind in ("pod", "service")}
    assert named["pod"] and named["service"]
    assert {name.rpartition("-")[0] for name in named["pod"]} <= sets.keys() and set(named["service"]) <= services.keys()
    mounted = {volume["secret"]["secretName"] for _, pod in chart.pods(values) for volume in pod.get("volumes", [])
               if "secret" in volume}
    secrets = re.findall(r"get secret ([\w-]+)", text)
    assert secrets and set(secrets) <= mounted


def test_the_chart_that_is_packed_renders_as_the_folder_and_has_the_same_bytes_again(tmp_path):
    archives = []
    for folder in ("one", "two"):
        subprocess.run([sys.executable, chart.ROOT / "package" / "chart.py", "--out", tmp_path / folder], check=True, timeout=120)
        archives += (tmp_path / folder).glob("fairway-*.tgz")
    assert archives[0].read_bytes() == archives[1].read_bytes()
    about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert archives[0].name == f"fairway-{about['version']}.tgz"
    assert chart.helm("lint", "--strict", archives[0], "--kube-version", chart.NEWEST, check=False).returncode == 0
    for values in chart.VALUES:
        done = chart.helm("template", "fw", archives[0], "--namespace", "accelerators", "--kube-version", chart.NEWEST, "-f", values)
        assert done.stdout == chart.golden(values).read_text(encoding="utf-8")
    # What helm itself would pack, and the licence.
    chart.helm("package", chart.CHART, "--destination", tmp_path)
    names = []
    for path in (archives[0], tmp_path / archives[0].name):
        with tarfile.open(path) as packed:
            assert {entry.mode & 0o7777 for entry in packed if entry.isfile()} == {0o644}
            names.append({entry.name for entry in packed.getmembers() if entry.isfile()})
    assert names[0] == names[1] | {"fairway/LICENSE"}


def test_a_packed_chart_has_the_rules_themselves(tmp_path):
    chart.helm("package", chart.CHART, "--destination", tmp_path)
    [archive] = tmp_path.glob("fairway-*.tgz")
    with tarfile.open(archive) as packed:
        rules = packed.extractfile("fairway/files/fairway.rules.yaml").read()
    assert rules == (chart.ROOT / "deploy" / "prometheus" / "fairway.rules.yaml").read_bytes()
