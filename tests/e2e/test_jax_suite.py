# SPDX-License-Identifier: Apache-2.0
"""The comparison with JAX's own tests: its counts are right, and its list of known differences is
true. JAX's tests themselves are run by hand (CONTRIBUTING.md)."""

import json
import pathlib
import sys

import pytest

from cluster import cpu_environment, run_python

SUITE = pathlib.Path(__file__).resolve().parent / "jax_suite"
sys.path.insert(0, str(SUITE))
import known as known_differences  # noqa: E402
import reproducers  # noqa: E402
import run as comparison  # noqa: E402
import runner  # noqa: E402

# A file of tests whose results differ where SIDE is "cluster".
FILE = '''
import os, signal, sys, time, unittest
there = os.environ["SIDE"] == "cluster"
class Tests(unittest.TestCase):
  def test_passes(self): pass
  def test_skipped_there(self):
    if there: self.skipTest("not there")
  def test_skipped_on_both(self): self.skipTest("nowhere")
  def test_fails_there(self): assert not there, "refused by the client"
  def test_fails_on_both(self): assert False
  def test_in_a_subtest(self):
    for i in range(3):
      with self.subTest(i=i): assert not (there and i == 1), "the second"
  def test_wrong_value_there(self): assert not there, "Not equal to tolerance rtol=1e-05"
  def test_crashes_there(self):
    if there:
      print("F0101 cause.cc:1] check failed", file=sys.stderr, flush=True)
      os.kill(os.getpid(), signal.SIGSEGV)
  def test_hangs_there(self):
    while there: time.sleep(1)
  def test_loses_the_backend_there(self): assert not there, "UNAVAILABLE: gone"
  def test_that_comes_last(self): pass
  if not there:
    def test_only_on_the_cpu(self): pass
'''


@pytest.fixture
def results(tmp_path):
    file = tmp_path / "some_test.py"
    file.write_text(FILE)
    sides = {}
    for side in ("cpu", "cluster"):
        with open(tmp_path / f"{side}.log", "ab", buffering=0) as log:
            environment = {**cpu_environment(), "SIDE": side}
            limits = runner.Limits(test=20, shard=7)
            if side == "cpu":
                names = runner.collect(file, environment, log, limits)
            sides[side] = runner.run(file, names, environment, log, limits)
    return sides


def test_every_outcome_is_told_and_nothing_is_lost(results):
    assert {r.outcome for r in results["cpu"].values()} == {"passed", "failed", "skipped"}
    ours = {name.removeprefix("Tests::test_"): r for name, r in results["cluster"].items()}
    assert {name: r.outcome for name, r in ours.items()} == {
        "passes": "passed", "skipped_there": "skipped", "skipped_on_both": "skipped",
        "fails_there": "failed", "fails_on_both": "failed", "in_a_subtest": "failed",
        "wrong_value_there": "failed", "crashes_there": "crashed", "hangs_there": "hung",
        "loses_the_backend_there": "failed", "that_comes_last": "passed",
        "only_on_the_cpu": "missing",
    }
    assert "check failed" in ours["crashes_there"].why
    assert "the second" in ours["in_a_subtest"].why

    known = known_differences.load_text('''
        [[difference]]
        entry = "Refused"
        tests = ["some_test.py::*"]
        text = "refused by the client|Not equal to tolerance|check failed"
    ''')
    compared = comparison.compare("tests/some_test.py", results["cpu"], results["cluster"], known,
                                  [1.0, 2.0])
    kinds = {d.test.removeprefix("Tests::test_"): (d.kind, d.entry) for d in compared.different}
    assert kinds == {
        "skipped_there": ("skipped", None), "fails_there": ("error", "Refused"),
        "in_a_subtest": ("error", None), "wrong_value_there": ("wrong value", None),
        "crashes_there": ("crashed", None), "hangs_there": ("hung", None),
        "loses_the_backend_there": ("error", None), "only_on_the_cpu": ("missing", None),
    }
    assert "10 pass on the CPU backend, 2 of them through the cluster" in compared.line()
    assert "8 differ (80.00 %), 7 of them new" in compared.line()
    assert compared.row() == "| some_test.py | 12 | 10 | 8 | 1 |"


def test_a_sample_is_the_same_for_the_same_seed_and_keeps_the_order():
    class Arguments:
        part, sample, seed = "2/3", 5, 1

    names = [f"test{i:02}" for i in range(30)]
    chosen = comparison.choose(names, Arguments)
    assert chosen == comparison.choose(names, Arguments) == sorted(chosen)
    assert len(chosen) == 5 and set(chosen) <= set(names[1::3])


def test_a_file_that_cannot_be_imported_is_said_to_be_unusable(tmp_path):
    file = tmp_path / "broken_test.py"
    file.write_text("import no_such_module\n")
    with open(tmp_path / "log", "ab", buffering=0) as log:
        with pytest.raises(runner.Unusable, match="no_such_module"):
            runner.collect(file, cpu_environment(), log, runner.Limits())


def test_every_known_difference_has_an_entry_and_every_entry_is_true(cluster):
    page = reproducers.PAGE.read_text(encoding="utf-8")
    entries = {entry for entry, _, _ in reproducers.entries(page)}
    assert {row.entry for row in known_differences.load()} <= entries

    there = cluster.python(SUITE / "reproducers.py", timeout=600)
    here = run_python(SUITE / "reproducers.py", env=cpu_environment())
    there, here = (json.loads(done.stdout.splitlines()[-1]) for done in (there, here))
    assert set(there) == entries
    for entry, found in there.items():
        assert found["lines"] <= 10, entry
        assert found["expected"] in found["seen"], (entry, found)
        assert here[entry]["seen"] == "", (entry, here[entry])
