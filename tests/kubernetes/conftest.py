# SPDX-License-Identifier: Apache-2.0
"""One cluster for all tests, and one release of the chart that most of them use and leave as it was."""

import pathlib
import re
import shutil
import sys
import tempfile

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

import release as chart  # noqa: E402
from cluster import ROOT, Cluster  # noqa: E402


def our_images():
    """As `./dev package image` made them: name -> archive."""
    found = {f"localhost/fairway-{kind}": path for kind in ("controller", "worker")
             for path in (ROOT / "build" / "package").glob(f"fairway-{kind}-*.oci.tar")}
    assert len(found) == 2, "`./dev package image` makes the images"
    return {f"{name}:{re.search(r'-([0-9.]+)[.]oci[.]tar$', path.name)[1]}": path for name, path in found.items()}


@pytest.fixture(scope="session")
def cluster():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kube-", dir="/tmp"))
    try:
        with Cluster(folder, more_images=our_images()) as made:
            made.apply(chart.namespaces())
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def release(cluster):
    """Installed, and ready."""
    cluster.add_volume("first")
    made = chart.Release(cluster)
    made.notes = made.install()
    made.wait_until_ready()
    return made


@pytest.fixture(scope="session")
def user(release):
    """The folder with the CA and a user's token, by the commands that the chart's notes tell."""
    import notes
    return notes.follow(release)


@pytest.fixture(scope="session")
def client(cluster, user):
    return chart.Client(cluster, "client", user)
