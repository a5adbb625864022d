# SPDX-License-Identifier: Apache-2.0
"""Binaries of the version before, which `./dev test upgrade` builds: FAIRWAY_PREVIOUS_BIN names their folder."""

import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / name) for name in ("integration", "e2e", "support"))]


@pytest.fixture(scope="session")
def previous():
    folder = os.environ.get("FAIRWAY_PREVIOUS_BIN")
    if not folder:
        pytest.skip("FAIRWAY_PREVIOUS_BIN names no binaries of the version before: ./dev test upgrade")
    return pathlib.Path(folder)
