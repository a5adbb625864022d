# SPDX-License-Identifier: Apache-2.0
"""The differences between our .proto files and the descriptors inside each supported jaxlib.

Ours contain all that we read from any of them. If one lacks something, names it differently or has
something more, differences-VERSION.txt lists that, line by line. The test names a difference that is
not listed, and a listed one that has gone.
"""

import difflib

import pytest

import descriptors
from conftest import VERSIONS, jaxlib_of


@pytest.mark.parametrize("version", VERSIONS)
def test_differences_are_those_that_are_known(version):
    found = descriptors.differences(jaxlib_of(version))
    known = sorted(descriptors.known_differences(version))
    changed = list(difflib.unified_diff(
        known, found, f"differences-{version}.txt", f"jaxlib {version}", lineterm="", n=0))
    assert not changed, "\n".join(changed)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_number_means_something_else_in_another_version(version):
    """Missing fields are harmless; a number with another type would be read wrongly."""
    clashes = [
        line for line in descriptors.differences(jaxlib_of(version))
        if ": type is " in line or ": label is " in line or ": type_name is " in line
    ]
    assert not clashes, "\n".join(clashes)
