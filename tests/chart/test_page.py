# SPDX-License-Identifier: Apache-2.0
"""What the pages have an operator type in Kubernetes, beside what the chart makes: helm renders what is typed, and what kubectl is told names
objects of it. tests/kubernetes does the same things with a cluster."""

import re
import shlex
import shutil

import pytest
import yaml

import chart

DOCS = chart.ROOT / "docs"
VALUES = "islands: [{name: island0}, {name: island1}]\n"


def lines_below(page, heading):
    section = re.split(r"\n##+ ", (DOCS / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2])[0]
    return section.partition("```sh\n")[2].partition("```")[0].splitlines()


@pytest.fixture
def typed(tmp_path):
    """A function that does what helm would, in a checkout, and returns the objects."""
    (tmp_path / "deploy").symlink_to(chart.ROOT / "deploy")
    (tmp_path / "values.yaml").write_text(VALUES, encoding="utf-8")

    def render(line):
        program, verb, *words = shlex.split(line)
        assert program == "helm" and verb in ("install", "upgrade")
        done = chart.helm("template", *words, f"--kube-version={chart.NEWEST}", cwd=tmp_path)
        return [one for one in yaml.safe_load_all(done.stdout) if one]

    return render


def told(line, verb):
    """What kubectl is told to delete: its kinds or its name, and the labels of a selector."""
    words = shlex.split(line)
    assert words[:4] == ["kubectl", "-n", "accelerators", verb]
    names = [word for word in words[4:] if not word.startswith("--")]
    [selector] = [word.removeprefix("--selector=") for word in words if word.startswith("--selector=")] or [""]
    return names, dict(part.split("=") for part in selector.split(",") if part)


def selected(sets, labels):
    return {one["metadata"]["name"] for one in sets if labels.items() <= one["spec"]["template"]["metadata"]["labels"].items()}


def test_an_upgrade_by_hand_deletes_the_controllers_pod_and_those_of_one_island(typed):
    upgrade, controller, island = lines_below("upgrade.md", "Kubernetes")
    sets = [one for one in typed(upgrade) if one["kind"] == "StatefulSet"]
    assert len(sets) == 3 and "--namespace accelerators" in upgrade
    (kind, name), labels = told(controller, "delete")
    assert kind == "pod" and not labels and name == next(
        one["metadata"]["name"] for one in sets if one["metadata"]["name"].endswith("-controller")) + "-0"
    kinds, labels = told(island, "delete")
    assert kinds == ["pod"] and selected(sets, labels) == {"fw-fairway-island1"}


def test_what_an_uninstall_leaves_is_what_the_page_removes(typed):
    """The volume's claim has the labels by which its StatefulSet selects; the Secrets those that the Job gives them."""
    (install,) = lines_below("kubernetes.md", "Installing")
    (removal,) = lines_below("kubernetes.md", "Upgrades, drains, other sizes")
    objects = typed(install)
    (kinds,), labels = told(removal, "delete")
    assert kinds.split(",") == ["secrets", "persistentvolumeclaims"] and labels == {"app.kubernetes.io/instance": "fw"}
    claims = [one for one in objects if one["kind"] == "StatefulSet" and one["spec"].get("volumeClaimTemplates")]
    assert [one["metadata"]["name"] for one in claims] == ["fw-fairway-controller"]
    assert labels.items() <= claims[0]["spec"]["selector"]["matchLabels"].items()
    script = (chart.CHART / "files" / "manifests.sh").read_text(encoding="utf-8")
    assert "app.kubernetes.io/instance: %s\\ndata:\\n' \"$RELEASE\"" in script


def test_an_api_server_that_is_away_is_one_line_and_the_page_has_it(tmp_path):
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    for verb in ("install", "upgrade"):
        done = chart.helm(verb, "fw", chart.CHART, "--kube-apiserver=http://127.0.0.1:1", check=False)
        assert done.returncode != 0 and done.stdout == ""
        assert re.search(r"[Kk]ubernetes cluster unreachable: .*127\.0\.0\.1:1.*connection refused\n$", done.stderr), done.stderr
    assert "`Kubernetes cluster unreachable` (helm)" in page


# ---- the values of version 0.1 ----

PREVIOUS = chart.ROOT / "tests" / "upgrade" / "recorded" / "0.1" / "values.yaml"


def with_defaults(folder, values):
    """The chart with other defaults: so helm sees it with --reuse-values, which keeps those of the release before."""
    copy = folder / "fairway"
    shutil.copytree(chart.CHART, copy)
    (copy / "values.yaml").write_text(values, encoding="utf-8")
    return copy


def test_reused_values_of_the_chart_before_are_refused_with_what_to_do(tmp_path):
    copy = with_defaults(tmp_path, PREVIOUS.read_text(encoding="utf-8"))
    done = chart.helm("template", "fw", copy, f"--kube-version={chart.NEWEST}", check=False)
    assert done.returncode != 0 and done.stdout == ""
    assert ("rollDrain.limitSeconds: it is missing; these are the values of an older chart, as --reuse-values keeps them: say "
            "--reset-then-reuse-values instead, or give your own values by -f") in done.stderr


def test_values_that_were_given_to_the_chart_before_are_taken(tmp_path):
    """As a file, all of them."""
    assert "kind: StatefulSet" in chart.render(PREVIOUS).stdout


def paths(values, above=()):
    for key, value in values.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from paths(value, (*above, key))


def test_each_value_that_came_since_is_looked_for():
    before, now = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in (PREVIOUS, chart.CHART / "values.yaml"))
    came = set(paths(now)) - set(paths(before))
    leaves = {path for path in came if not any(other[:len(path)] == path != other for other in came)}
    listed = re.search(r"range list (.*?) -\}\}", (chart.CHART / "templates" / "_check.tpl").read_text(encoding="utf-8"))[1]
    assert {".".join(path) for path in leaves} == set(re.findall(r'"([\w.]+)"', listed))
