# SPDX-License-Identifier: Apache-2.0
"""Traced programs (docs/design/0043-traced-programs.md) on three islands."""

import pytest

from cluster import PROGRAMS, Cluster


@pytest.fixture(scope="module")
def three_islands(binaries):
    # The accounting allows more memory than the plugin has, so that a node can fail when it runs.
    with Cluster(islands=3, devices=4, flags=("--device-memory=1024TiB",)) as cluster:
        yield cluster


def test_programs_over_islands_are_right_and_their_errors_reach_what_depends_on_them(three_islands):
    done = three_islands.python(PROGRAMS / "traced.py")
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("OK")] == [
        "example_of_the_paper", "a_first_call_that_fails_spoils_nothing", "gradients_and_microbatches", "results_keep_their_weak_type",
        "donated_and_deleted_arguments", "modes_of_jax_that_look_for_errors",
        "a_node_that_fails_poisons_what_depends_on_it",
    ]
