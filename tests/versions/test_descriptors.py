# SPDX-License-Identifier: Apache-2.0
"""What differs between our .proto files and the descriptors inside each supported jaxlib.

Ours are those of the newest. What an older one lacks or calls otherwise is listed, line by line, in
differences-VERSION.txt; a difference that is not listed there, or no longer there, is named.
"""

import difflib
import pathlib

import pytest

import descriptors
from conftest import VERSIONS, jaxlib_of

HERE = pathlib.Path(__file__).resolve().parent


@pytest.mark.parametrize("version", VERSIONS)
def test_differences_are_those_that_are_known(version):
    found = descriptors.differences(jaxlib_of(version))
    path = HERE / f"differences-{version}.txt"
    known = path.read_text().splitlines() if path.exists() else []
    known = [line for line in known if line and not line.startswith("#")]
    changed = list(difflib.unified_diff(known, found, str(path.name), f"jaxlib {version}", lineterm="", n=0))
    assert not changed, "\n".join(changed)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_number_means_something_else_in_an_older_version(version):
    """Missing fields are harmless; a number with another type would be read wrongly."""
    clashes = [
        line for line in descriptors.differences(jaxlib_of(version))
        if ": type is " in line or ": label is " in line or ": type_name is " in line
    ]
    assert not clashes, "\n".join(clashes)
