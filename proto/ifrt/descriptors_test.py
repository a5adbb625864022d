# SPDX-License-Identifier: Apache-2.0
"""Compares our .proto files with the descriptors inside the installed jaxlib, number by number.

A field that both sides have must agree in name, number, type, label and oneof. Fields and values that only jaxlib has must be
listed in descriptors.LEFT_OUT; those that only we have, since they are newer, in tests/versions/differences-VERSION.txt. Other
versions of jaxlib: tests/versions.
"""

import importlib.metadata
import importlib.util
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import descriptors  # noqa: E402

pytest.importorskip("jaxlib")
JAXLIB = pathlib.Path(importlib.util.find_spec("jaxlib").origin).parent
KNOWN = descriptors.known_differences(importlib.metadata.version("jaxlib"))


@pytest.mark.parametrize("name", sorted(descriptors.ours()[0]))
def test_message(name):
    differences = {f"{name}: {text}" for text in descriptors.message_differences(name, JAXLIB)}
    assert not differences - KNOWN, "; ".join(differences - KNOWN)


@pytest.mark.parametrize("name", sorted(descriptors.ours()[1]))
def test_enum(name):
    differences = {f"{name}: {text}" for text in descriptors.enum_differences(name, JAXLIB)}
    assert not differences - KNOWN, "; ".join(differences - KNOWN)


def test_what_is_left_out_exists():
    for name, fields in descriptors.LEFT_OUT.items():
        assert fields <= {f.name for f in descriptors.theirs(JAXLIB)[0][name].field}, name
