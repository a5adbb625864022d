# SPDX-License-Identifier: Apache-2.0
"""Releases of JAX: which ones are tested, and the notice for a process with a newer one."""

import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

from fairway import jax_versions

ROOT = pathlib.Path(__file__).resolve().parents[3]


def prepare(version, **environment):
    """Returns the standard error of a process with that jax when it opens sessions."""
    code = f"import jax; jax.__version__ = {version!r}\n"
    code += "from fairway import jax_versions\nfor _ in range(2): jax_versions.prepare()"
    done = subprocess.run([sys.executable, "-c", code], env={"JAX_PLATFORMS": "cpu", **environment},
                          text=True, capture_output=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return done.stderr


def test_oldest_and_newest_are_those_that_are_tested():
    files = [p.stem.partition("-")[2] for p in (ROOT / "tests/versions").glob("requirements-*.txt")]
    tested = sorted(files, key=jax_versions._numbers)
    assert (tested[0], tested[-1]) == (jax_versions.OLDEST, jax_versions.NEWEST)


def test_the_package_installs_beside_any_newer_jax():
    project = tomllib.loads((ROOT / "client/python/pyproject.toml").read_text())["project"]
    bounds = {re.split(r"[^\w-]", d)[0]: d for d in project["dependencies"]}
    assert bounds["jax"] == f"jax>={jax_versions.OLDEST}"
    assert "jaxlib" not in bounds


@pytest.mark.parametrize("version", ["0.12.0.2", "0.12.1", "0.13.0", "1.0", "0.13.0.dev20261123+abc"])
def test_a_newer_release_is_told_in_one_line_once(version):
    assert prepare(version) == (
        f"fairway: jax {version} is newer than the newest that this package was tested with "
        f"({jax_versions.NEWEST}); if something fails that should not, try that one\n")
    assert prepare(version, FAIRWAY_QUIET="1") == ""


@pytest.mark.parametrize("version", [jax_versions.OLDEST, "0.10.2", "0.12.0", jax_versions.NEWEST])
def test_a_tested_or_older_release_is_not(version):
    assert prepare(version) == ""
