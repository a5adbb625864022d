# SPDX-License-Identifier: Apache-2.0
"""Each rule of the lint finds what it is for, and lets pass what it must."""

import pytest

from junit_counts import counts
from lint import check_file, public_headers

HEAD = "// SPDX-License-Identifier: Apache-2.0\n"


def rules(path, text):
    return [rule for _, rule, _ in check_file(path, text)]


@pytest.mark.parametrize(
    "path, target, allowed",
    [
        ("graph/x.cc", "core/shape.h", True),
        ("graph/x.cc", "graph/plan.h", True),
        ("graph/x.cc", "transport/link.h", False),  # the same layer, another folder
        ("graph/x.cc", "controller/cluster.h", False),
        ("base/x.cc", "fairway/v1/admin.pb.h", False),  # proto is base's own layer
        ("core/x.cc", "fairway/v1/admin.pb.h", True),
        ("controller/x.cc", "worker/worker.h", False),
        ("tests/sim/x.cc", "controller/cluster.h", True),
        ("worker/x.cc", "pjrt_c_api.h", True),
    ],
)
def test_an_include_goes_strictly_down(path, target, allowed):
    found = rules(path, HEAD + f'#include "{target}"\n')
    assert found == ([] if allowed else ["layers"])


def test_a_header_has_the_guard_of_its_path():
    good = HEAD + "#ifndef FAIRWAY_CORE_SHAPE_H_\n#define FAIRWAY_CORE_SHAPE_H_\n#endif\n"
    assert rules("core/shape.h", good) == []
    assert rules("core/layout.h", good) == ["guard"]


def test_heavy_headers_stay_out_of_headers_that_other_folders_include():
    include = "#include <grpcpp/grpcpp.h>\n"
    header = HEAD + "#ifndef FAIRWAY_WIRE_X_H_\n" + include
    assert rules("wire/x.h", header) == ["heavy-header"]
    assert check_file("wire/x.h", header, private=True) == []
    assert rules("wire/x.cc", HEAD + include) == []


def test_a_header_is_public_when_another_directory_includes_it():
    texts = {"wire/a.cc": '#include "wire/a.h"\n', "controller/b.cc": '#include "wire/b.h"\n'}
    assert public_headers(texts) == {"wire/b.h"}


def test_tests_do_not_sleep():
    sleep = "std::this_thread::sleep_for(ms);\n"
    assert rules("async/x_test.cc", HEAD + sleep) == ["sleep"]
    assert rules("async/x.cc", HEAD + sleep) == []


def test_licence_length_and_folder():
    assert rules("core/x.cc", "int x;\n") == ["licence"]
    assert rules("core/x.cc", HEAD + "int x;\n" * 599) == []
    assert rules("core/x.cc", HEAD + "int x;\n" * 600) == ["length"]
    assert rules("core/util/x.cc", HEAD) == ["folder"]
    assert rules("dev", "#!/bin/bash\n# SPDX-License-Identifier: Apache-2.0\n") == []


def test_counts_of_a_ctest_report():
    text = """<testsuite>
      <testcase name="a" status="run"/>
      <testcase name="b" status="fail"><failure message=""/></testcase>
      <testcase name="c" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>
      <testcase name="d" status="disabled"/>
      <testcase name="e" status="notrun"><skipped message="Unable to find executable"/></testcase>
    </testsuite>"""
    assert counts(text) == (5, 2, 2)


def test_counts_of_a_pytest_report():
    text = """<testsuites><testsuite>
      <testcase name="a"/><testcase name="b"><error message="x"/></testcase>
      <testcase name="c"><skipped type="pytest.skip" message="y"/></testcase>
    </testsuite></testsuites>"""
    assert counts(text) == (3, 1, 1)


def test_a_broken_report_is_a_failure_and_control_characters_are_not():
    assert counts("<testsuite>") == (1, 1, 0)
    assert counts('<testsuite><testcase name="a"><system-out>\x1b[1m</system-out></testcase></testsuite>') == (1, 0, 0)
