# SPDX-License-Identifier: Apache-2.0
"""Every benchmark runs, in quick sizes, and writes JSON of the common form. Nothing here is timed. The
benchmark of hostile clients needs other packages: tests/stress/test_hostile.py."""

import json
import pathlib
import subprocess
import sys

import pytest

from cluster import ROOT, clean_environment

sys.path.insert(0, str(ROOT / "bench"))
from eager_calls import CALLS, GROUPS  # noqa: E402
from measure import bar, paired  # noqa: E402


def bench(*arguments):
    return subprocess.run(
        [sys.executable, str(ROOT / "bench" / "run.py"), *arguments], text=True,
        capture_output=True, env=clean_environment(), timeout=1200,
    )


def result_of(name, path):
    done = bench(name, "--quick", "--json", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def check_form(name, result):
    assert list(result) == ["bench", "commit", "machine", "build_type", "rows", "bars", "left_out"]
    assert result["bench"] == name
    assert all(isinstance(result[k], str) and result[k] for k in ("commit", "machine", "build_type"))
    names = [row["name"] for row in result["rows"]]
    assert names and len(set(names)) == len(names)
    for row in result["rows"]:
        assert set(row) == {"name", "value", "unit", "spread", "against"}
        assert row["value"] > 0 or (
            row["value"] == 0 and row["unit"] in ("fetches", "bytes", "messages", "requests", "executors"))
        assert row["spread"] >= 0 and row["unit"]
        assert row["against"] is None or row["against"] in names
    for entry in result["bars"]:
        assert set(entry) == {"name", "value", "bar", "holds"}
        assert entry["holds"] in (True, False) or entry["holds"] == "unknown"
        assert isinstance(entry["value"], float) or (
            entry["value"] is None and entry["holds"] == "unknown")
    for entry in result["left_out"]:
        assert set(entry) == {"name", "why"} and entry["name"] and entry["why"]
    return names


@pytest.mark.parametrize("name", [
    pytest.param(n, marks=[pytest.mark.on_demand] if n in ("faults", "flood") else []) for n in bench().stdout.split()
    if n not in ("jax", "dispatch", "eager", "hostile")])
def test_a_benchmark_writes_the_one_form(name, tmp_path):
    check_form(name, result_of(name, tmp_path / "result.json"))


@pytest.mark.on_demand
def test_jax_is_measured_on_three_backends_and_judged_by_every_bar(tmp_path):
    result = result_of("jax", tmp_path / "result.json")
    names = check_form("jax", result)
    for case in ("dispatch", "async step, 1 device", "async step, gang of 8",
                 "async step, gang of 8 with all-reduce", "fetch each step", "feed each step",
                 "training step, 1 device", "training step, gang of 8", "put 64 MiB", "get 64 MiB",
                 "compile, first", "compile, cached"):
        for backend in ("fairway", "null", "JAX"):
            assert f"{case}, {backend}" in names
    judged = " ".join(entry["name"] for entry in result["bars"])
    for what in ("async step, 1 device", "async step, gang of 8", "dispatch", "training step",
                 "fetching"):
        assert what in judged
    against = {row["name"]: row["against"] for row in result["rows"]}
    for case in ("training step, 1 device", "training step, island of 1 device",
                 "training step, gang of 8"):  # XLA's age decides these
        assert against[f"{case}, fairway"] == f"{case}, plugin"
        bars = [bar for bar in result["bars"] if f"speed of the {case}," in bar["name"]]
        assert [(bar["name"], bar["bar"]) for bar in bars] == [
            (f"speed of the {case}, of the plugin's alone", ">= 0.98")]
        assert f"speed of the {case}, fairway, of JAX's own backend" in names


@pytest.mark.on_demand
def test_calls_without_jit_are_timed_and_counted_on_both_islands(tmp_path):
    result = result_of("eager", tmp_path / "result.json")
    names = check_form("eager", result)
    assert [(bar["name"], bar["bar"]) for bar in result["bars"]] == [
        (f"time of a call, island {island}{how}, of the null front door's", "<= 1.5")
        for how in ("", ", sharded") for island in (0, 1)]
    assert all(bar["value"] > 0 for bar in result["bars"])
    values = {row["name"]: row["value"] for row in result["rows"]}
    for how in ("", ", sharded"):
        for who in ("island 0", "island 1", "null", "JAX"):
            assert f"jit_add(x), {who}{how}" in names
        for who in ("island 0", "island 1"):
            assert values[f"jit_add(x), {who}{how}: loaded_executable_execute requests"] == 1
            assert values[f"jit_add(x), {who}{how}: messages to"] >= 1
            assert values[f"jit_add(x), {who}{how}: bytes from"] > 0
            assert f"jit_add(x), {who}{how}: of JAX{how}'s" in names
    # JAX puts the two indices on the default device. They are copied to both devices of the island, but
    # sent only once to their executor.
    crossed = "x[0, 0], island 1, sharded{}: bytes between islands"
    assert values[crossed.format("")] == 8
    assert values[crossed.format(", by default")] == 0
    assert values["jit_add(x), island 1, sharded: bytes between islands"] == 0
    # Its values are zeros, so JAX asks for another result.
    assert [entry["name"] for entry in result["left_out"]] == [
        "v[mask], beside null", "v[mask], beside null, sharded"]


def test_the_calls_without_jit_are_a_hundred():
    assert len(CALLS) == sum(len(text.split("\n")) - 2 if "\n" in text else 1
                             for text in GROUPS.values()) == 100


@pytest.mark.on_demand
def test_gangs_are_dispatched_beside_jax_and_the_floor_and_other_systems_are_named(tmp_path):
    result = result_of("dispatch", tmp_path / "result.json")
    names = check_form("dispatch", result)
    for devices in (1, 8):
        for style, who in (("OpByOp", "Fairway"), ("Chained", "Fairway"), ("Fused", "Fairway"),
                           ("OpByOp", "Fairway, JAX front door"),
                           ("Chained", "Fairway, JAX front door"), ("OpByOp", "JAX"),
                           ("OpByOp", "TCP hub"), ("Chained", "TCP hub")):
            assert f"{style}, {devices} devices, {who}" in names
    for who in ("Fairway, one each", "Shared memory"):
        assert f"Chained, 8 devices, {who}" in names
    # A test installs nothing.
    assert [entry["name"] for entry in result["left_out"]] == [
        "Ray actors", "Ray graph", "Ray graph of 128", "Monarch"]


def test_an_unknown_benchmark_is_refused_with_the_names_there_are():
    done = bench("nonsense")
    assert done.returncode == 2
    assert "nonsense" in done.stderr and "jax" in done.stderr


def test_a_bar_holds_fails_or_is_unknown_by_the_measured_interval():
    ratios = paired([9, 10, 20], [10, 10, 10], lambda a, b: a / b)
    assert ratios == (1.0, pytest.approx(0.1))
    assert bar("b", ratios, at_least=0.8)["holds"] is True
    assert bar("b", ratios, at_least=1.2)["holds"] is False
    assert bar("b", ratios, at_least=0.95)["holds"] == "unknown"
    assert bar("b", ratios, at_most=0.8)["holds"] is False
    assert bar("b", ratios, at_most=1.05)["holds"] == "unknown"
    assert bar("b", None, at_most=1.05) == {
        "name": "b", "value": None, "bar": "<= 1.05", "holds": "unknown"}
