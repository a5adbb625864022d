# SPDX-License-Identifier: Apache-2.0
"""Wrong values are refused before anything is made: the message has the value's path and what is wrong with it."""

import json

import pytest
import yaml

import chart

# Values, and what the message must have: the path, and what is wrong.
WRONG = [
    ("controler: {}", "additional properties 'controler' not allowed"),
    ("controller: {replicas: 2}", "at '/controller': additional properties 'replicas' not allowed"),
    ("controller: {settings: {log-levl: debug}}", "at '/controller/settings': additional properties 'log-levl' not allowed"),
    ("controller: {settings: {bind: 127.0.0.1}}", "at '/controller/settings': additional properties 'bind' not allowed"),
    ("controller: {settings: {log-level: loud}}", "at '/controller/settings/log-level': value must be one of 'trace', 'debug'"),
    ("controller: {settings: {executor-deadline: 60}}", "at '/controller/settings/executor-deadline': got number, want string"),
    ("controller: {settings: {executor-deadline: 2 days}}", "at '/controller/settings/executor-deadline': '2 days' does not match"),
    ("controller: {settings: {launches-ahead: 2000}}", "at '/controller/settings/launches-ahead': maximum: got 2,000, want 1,024"),
    ("controller: {settings: {record-memory: 1GB}}", "at '/controller/settings/record-memory': '1GB' does not match"),
    ("controller: {updateStrategy: Recreate}", "at '/controller/updateStrategy': value must be one of 'OnDelete', 'RollingUpdate'"),
    ("controller: {storage: much}", "at '/controller/storage': 'much' does not match"),
    ("controller: {clientService: Ingress}", "at '/controller/clientService': value must be one of"),
    ("controller: {hosts: fairway.example}", "at '/controller/hosts': got string, want array"),
    ("bindAddress: localhost", "at '/bindAddress': 'localhost' does not match"),
    ("images: {pullPolicy: Sometimes}", "at '/images/pullPolicy': value must be one of"),
    ("images: {tag: 1.0}", "at '/images/tag': got number, want string"),
    ("islands: []", "at '/islands': minItems: got 0, want 1"),
    ("islands: {a: {}}", "at '/islands': got object, want array"),
    ("islands: [{workers: 1}]", "at '/islands/0': missing property 'name'"),
    ("islands: [{name: A}]", "at '/islands/0/name': 'A' does not match"),
    ("islands: [{name: a}, {name: b, worker: 2}]", "at '/islands/1': additional properties 'worker' not allowed"),
    ("islands: [{name: a, workers: 0}]", "at '/islands/0/workers': minimum: got 0, want 1"),
    ("islands: [{name: a, runtime: cuda}]", "at '/islands/0/runtime': value must be one of 'host', 'pjrt', 'sim'"),
    ("islands: [{name: a, maxUnavailable: 0}]", "at '/islands/0/maxUnavailable': minimum: got 0, want 1"),
    ("islands: [{name: a, settings: {gpu-fraction: 1}}]", "at '/islands/0/settings/gpu-fraction': maximum: got 1, want 0.9"),
    ("islands: [{name: a, settings: {plugin-option: [preallocate]}}]", "at '/islands/0/settings/plugin-option/0': 'preallocate' does not match"),
    ("islands: [{name: a}, {name: b}, {name: a}]", 'islands[2].name: "a" is taken by another island'),
    ("islands: [{name: controller}]", 'islands[0].name: "controller" is taken by another island or by the chart'),
    ("islands: [{name: a, gpus: 2}]", "islands[0].plugin: GPUs need the path of a PJRT plugin of kind cuda"),
    ("islands: [{name: a, workers: 2}]", "islands[0].workers: it is 2, and an island of the pjrt runtime on CPUs is one worker"),
    ("islands: [{name: a, settings: {tune-on-gpu: true}}]", "islands[0].settings.tune-on-gpu: it is for islands with GPUs"),
    ("islands: [{name: a, runtime: host, plugin: /opt/plugin.so}]", "islands[0].runtime: it is host, which takes no plugin"),
    ("islands: [{name: a, runtime: sim, gpus: 2}]", "islands[0].gpus: 2 GPUs are of no use to runtime sim"),
    ("islands: [{name: a, workload: deployment}]", "at '/islands/0/workload': value must be one of 'statefulSet', 'leaderWorkerSet', 'jobSet'"),
    ("islands: [{name: a, queue: Research}]", "at '/islands/0/queue': 'Research' does not match"),
    ("islands: [{name: a, workloadAnnotations: {a: 1}}]", "at '/islands/0/workloadAnnotations/a': got number, want string"),
    ("islands: [{name: b}, {name: a, workload: jobSet, maxUnavailable: 1}]", "islands[1].maxUnavailable: a JobSet's pods have no PodDisruptionBudget"),
    ("islands: [{name: b}, {name: a, workload: jobSet, queue: research}]", "islands[1].queue: workers of a JobSet that Kueue preempts end with 0"),
    ("{islandDefaults: {queue: research}, islands: [{name: a, workload: jobSet}]}", "islands[0].queue: workers of a JobSet that Kueue preempts"),
    ("islands: [{name: a-0}, {name: a, workload: leaderWorkerSet}]",
     "islands[1].name: LWS makes a StatefulSet fw-fairway-a-0 for the workers of this island, and there is an island a-0"),
    (f"islands: [{{name: {'a' * 30}, workload: jobSet}}]", "islands[0].name: the name of its JobSet would begin with"),
    ("{rollIslands: true, islands: [{name: a, workload: jobSet}]}", "rollIslands: no island is a StatefulSet, and a LeaderWorkerSet or a JobSet starts anew"),
    (f"islands: [{{name: {'a' * 45}}}]", "has 56 characters, and 50 are allowed; shorten it"),
    (f"fullnameOverride: {'a' * 31}", "fullnameOverride: the names of this release would begin with"),
    ("rollDrain: {limitSeconds: 1h}", "at '/rollDrain/limitSeconds': got string, want integer"),
    ("rollDrain: {atLimit: wait}", "at '/rollDrain/atLimit': value must be one of 'stop', 'delete'"),
    ("rollIslands: {drain: true}", "at '/rollIslands': got object, want boolean"),
    ("tls: {mode: none}", "at '/tls/mode': value must be one of 'init', 'existing', 'certManager'"),
    ("tls: {days: 0}", "at '/tls/days': minimum: got 0, want 1"),
    ("tls: {certManager: {issuerRef: {kind: ClusterIssuer, nam: x}}}", "at '/tls/certManager/issuerRef': additional properties 'nam' not allowed"),
    ("networkPolicy: {clients: [{}]}", "at '/networkPolicy/clients/0': minProperties: got 0, want 1"),
    ("networkPolicy: {clients: [{cidr: 10.0.0.0/8}]}", "at '/networkPolicy/clients/0': additional properties 'cidr' not allowed"),
    ("monitoring: {serviceMonitor: 'yes'}", "at '/monitoring/serviceMonitor': got string, want boolean"),
    ("monitoring: {runbooks: https://wiki.example}", "at '/monitoring/runbooks': 'https://wiki.example' does not match"),
    ("{tls: {mode: existing}, monitoring: {serviceMonitor: true}}", "monitoring.tokenSecret: a ServiceMonitor needs a viewer's token to read metrics"),
]


@pytest.mark.parametrize(("values", "told"), WRONG, ids=[values[:60] for values, _ in WRONG])
def test_a_wrong_value_is_refused_with_its_path_and_what_is_wrong(tmp_path, values, told):
    path = tmp_path / "values.yaml"
    path.write_text(values, encoding="utf-8")
    done = chart.render(path, check=False)
    assert done.returncode != 0
    assert told in done.stderr


def keys(values, path=()):
    """The paths of all keys."""
    for key, value in values.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from keys(value, (*path, key))


def test_each_value_of_the_chart_has_a_schema():
    """A schema that refuses unknown keys has all that values.yaml has; this is the other direction."""
    schema = json.loads((chart.CHART / "values.schema.json").read_text(encoding="utf-8"))

    def named(part, path=()):
        while "$ref" in part:
            place = part["$ref"].removeprefix("#/").split("/")
            part = schema
            for step in place:
                part = part[step]
        for key, child in part.get("properties", {}).items():
            yield (*path, key)
            yield from named(child, (*path, key))

    have = set(keys(yaml.safe_load((chart.CHART / "values.yaml").read_text(encoding="utf-8"))))
    by_users = {("global",), *(path for path in named(schema) if "settings" in path[:-1] or "resources" in path[:-1]
                               or "issuerRef" in path[:-1])}
    assert set(named(schema)) - by_users == have - {path for path in have if "resources" in path[:-1] or "clients" in path[1:-1]}


def test_each_value_is_another_one_in_the_render_of_everything():
    ours = yaml.safe_load((chart.CHART / "values.yaml").read_text(encoding="utf-8"))
    other = yaml.safe_load((chart.HERE / "values" / "everything.yaml").read_text(encoding="utf-8"))

    def same(left, right, path=()):
        for key, value in left.items():
            if isinstance(value, dict) and value and key != "resources":
                yield from same(value, right.get(key, {}), (*path, key))
            elif right.get(key, value) == value:
                yield ".".join((*path, key))

    # Without it there would be no policy to look at. And cert-manager needs no image of kubectl.
    assert set(same(ours, other)) == {"networkPolicy.enabled"}
