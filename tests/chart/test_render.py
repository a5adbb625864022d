# SPDX-License-Identifier: Apache-2.0
"""The chart deploy/helm/fairway, by helm and the schemas of Kubernetes. Nothing is installed anywhere."""

import json
import re

import kubernetes_validate
import pytest
import yaml

import chart
import crds

OLDEST = "1.29"  # kubeVersion of Chart.yaml
# Of operators, whose schemas Kubernetes has not got.
CUSTOM_KINDS = {"Certificate", "Issuer", "PrometheusRule", "ServiceMonitor", *crds.KINDS}
each = pytest.mark.parametrize("values", chart.VALUES, ids=lambda path: path.stem)


@each
def test_lint_finds_nothing(values):
    done = chart.helm("lint", "--strict", chart.CHART, "--kube-version", chart.NEWEST, "-f", values, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@each
def test_a_render_is_as_it_was_looked_at_and_the_next_one_equals_it(values):
    """`python tests/chart/chart.py` writes the files anew."""
    first, second = chart.render(values).stdout, chart.render(values).stdout
    assert first == second
    assert first == chart.golden(values).read_text(encoding="utf-8")


@each
@pytest.mark.parametrize("release", [OLDEST, chart.NEWEST])
def test_each_object_fits_the_schema_of_kubernetes(values, release):
    count = 0
    for one in chart.objects(values):
        if one["kind"] in CUSTOM_KINDS:
            continue
        kubernetes_validate.validate(one, release, strict=True)
        count += 1
    assert count >= 8


def test_the_schemas_refuse_an_unknown_field_and_a_wrong_type():
    whole = chart.of_kind(chart.VALUES[0], "StatefulSet")
    for change in ({"replica": 1}, {"replicas": "1"}):
        one = json.loads(json.dumps(next(iter(whole.values()))))
        one["spec"].update(change)
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(one, chart.NEWEST, strict=True)


def test_each_leader_worker_set_and_job_set_fits_the_schema_of_its_crd():
    kinds = []
    for values in chart.VALUES:
        for one in chart.objects(values):
            if one["kind"] in crds.KINDS:
                assert crds.errors(one) == []
                kinds.append(one["kind"])
    assert set(kinds) == crds.KINDS


@pytest.mark.parametrize("kind", sorted(crds.KINDS))
def test_the_schemas_of_crds_refuse_an_unknown_field_and_a_wrong_type_in_a_pod(kind):
    whole = json.dumps(next(iter(chart.of_kind(chart.HERE / "values" / "operators.yaml", kind).values())))
    for change in ({"restartPolici": "Always"}, {"terminationGracePeriodSeconds": "1"}):
        one = json.loads(whole)
        chart.template(one)["spec"].update(change)
        assert any(next(iter(change)) in error for error in crds.errors(one))


def test_the_chart_asks_for_the_oldest_kubernetes_that_is_looked_at():
    text = (chart.CHART / "Chart.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text)["kubeVersion"] == f">={OLDEST}.0-0"
    done = chart.helm("template", "fw", chart.CHART, "--kube-version", "1.28", check=False)
    assert done.returncode != 0 and "requires kubeVersion" in done.stderr


def test_no_two_objects_of_a_render_have_the_same_name():
    for values in chart.VALUES:
        names = [(one["kind"], one["metadata"]["name"]) for one in chart.objects(values)]
        assert len(names) == len(set(names))


def test_the_values_that_the_page_shows_are_taken(tmp_path):
    page = (chart.ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    assert len(blocks) == 3
    for number, block in enumerate(blocks):
        path = tmp_path / f"{number}.yaml"
        path.write_text(block, encoding="utf-8")
        chart.render(path)
    # Those that the commands behind them are tried with.
    existing = chart.HERE / "values" / "existing_secrets.yaml"
    assert yaml.safe_load(blocks[2]) == yaml.safe_load(existing.read_text(encoding="utf-8"))
