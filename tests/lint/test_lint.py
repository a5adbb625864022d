# SPDX-License-Identifier: Apache-2.0
"""Each rule of the lint finds its faults, and accepts correct code."""

import pytest

import shapes
from junit_counts import counts, failures
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


def function_of(lines):
    return "int F() {\n" + "  f();\n" * (lines - 2) + "}\n"


def test_a_header_has_at_most_300_lines():
    head = HEAD + "#ifndef FAIRWAY_CORE_X_H_\n"
    assert rules("core/x.h", head + "int x;\n" * 298) == []
    assert rules("core/x.h", head + "int x;\n" * 299) == ["length"]


def test_a_function_has_at_most_80_lines():
    head, tail = HEAD + "namespace fairway {\nnamespace {\n\n", "\n}  // namespace\n}  // namespace fairway\n"
    assert rules("core/x.cc", head + function_of(80) + tail) == []
    assert rules("core/x.cc", head + function_of(81) + tail) == ["function"]
    assert rules("tests/sim/x.cc", head + function_of(81) + tail) == ["function"]


def test_the_lines_of_each_function_are_counted_alone():
    text = HEAD + function_of(80) + '\nconst char* kText = R"(int G() {\n' + "x\n" * 90 + ')";\n' + function_of(80)
    assert rules("core/x.cc", text) == []


def test_functions_in_classes_and_behind_initializers_are_functions():
    text = HEAD + "class A {\n public:\n  A()\n      : a_{1} {\n" + "    f();\n" * 80 + "  }\n  int a_;\n};\n"
    assert rules("core/x.cc", text) == ["function"]
    assert [name for _, name, _ in shapes.functions(text)] == ["A"]


def test_a_long_scenario_of_the_tests_is_known_by_name():
    text = HEAD + "void Client::DoCopy() {\n" + "  f();\n" * 90 + "}\n"
    assert rules("tests/sim/operations.cc", text) == []
    assert rules("tests/sim/remap.cc", text) == ["function"]


def class_with(operations, access="public"):
    declared = "".join(f"  // What it does.\n  absl::StatusOr<int> F{i}(int a,\n             int b) const;\n" for i in range(operations))
    return (HEAD + "#ifndef FAIRWAY_CONTROLLER_X_X_H_\n#define FAIRWAY_CONTROLLER_X_X_H_\nclass X {\n" +
            f" {access}:\n  explicit X(int a);\n  ~X();\n  X(const X&) = delete;\n  struct Y {{\n    int f() const;\n  }};\n" +
            "  int data = 0;\n  using Done = std::function<void(int)>;\n" + declared + "\n private:\n  void P();\n};\n#endif\n")


def test_a_class_of_the_controller_has_at_most_30_public_operations():
    assert rules("controller/x/x.h", class_with(30)) == []
    assert rules("controller/x/x.h", class_with(31)) == ["operations"]
    assert rules("controller/x/x.h", class_with(31, access="protected")) == []
    # A header that only its own folder includes is not a door.
    assert check_file("controller/x/x.h", class_with(31), private=True) == []


def test_folders_that_include_each_other_are_found_at_any_depth():
    texts = {
        "a/b/x.h": '#include "a/y.h"\n',
        "a/y.h": '#include "a/c/d/z.h"\n',
        "a/c/d/z.h": '#include "core/s.h"\n',
        "core/s.h": "",
    }
    assert shapes.folder_cycles(texts) == []
    assert shapes.folder_cycles({**texts, "a/c/d/w.cc": '#include "a/b/x.h"\n'}) == ["a, a/b, a/c/d"]
    # A test may use another folder's support.
    assert shapes.folder_cycles({**texts, "a/c/d/w_test.cc": '#include "a/b/x.h"\n'}) == []


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


def test_failures_of_reports_name_the_tests_and_the_end_of_what_they_said():
    ctest = """<testsuite>
      <testcase name="a" status="run"><system-out>fine</system-out></testcase>
      <testcase name="b" classname="B" status="fail"><failure message=""/><system-out>one
two</system-out></testcase>
      <testcase name="c" status="notrun"><skipped message="Unable to find executable"/></testcase>
      <testcase name="d" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>
    </testsuite>"""
    assert failures("unit", ctest) == [
        "FAILED unit: B b", "    one", "    two", "FAILED unit:  c", "    Unable to find executable"]
    lines = "\n".join(f"{i} {'x' * 500}" for i in range(50))
    pytests = f"""<testsuite><testcase classname="t" name="e"><failure message="x">{lines}</failure></testcase>
      <testcase classname="t" name="f"/></testsuite>"""
    found = failures("e2e", pytests)
    assert len(found) == 13 and found[0] == "FAILED e2e: t e" and found[-1].startswith("    49 x")
    assert max(map(len, found)) == 204
    assert failures("e2e", "<testsuite>") == ["FAILED e2e: its results are no XML"]
