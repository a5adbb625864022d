# SPDX-License-Identifier: Apache-2.0
"""What differs between our .proto files and the descriptors inside each supported jaxlib.

Ours have what any of them says that we read. What one lacks, calls otherwise or has beside that is
listed, line by line, in differences-VERSION.txt; a difference that is not listed there, or no longer
there, is named.
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
