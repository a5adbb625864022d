# SPDX-License-Identifier: Apache-2.0
"""The shapes that the lint checks: functions, classes, and the includes between folders.

It reads C++ in clang-format's layout (the format is checked as well): the contents of a namespace
begin in column 0, the members of a class two columns in.
"""

import re

MAX_FUNCTION_LINES = 80
MAX_PUBLIC_OPERATIONS = 30
# Test functions that play a long scenario in one piece: the steps share a dozen locals, and each
# function reads from top to bottom like its story. No function of the product is here.
LONG_SCENARIOS = {
    ("controller/cluster/losses_test.cc", "TEST(LossTest, AnswersDoNotDependOnTheLengthOfTurns)"),
    ("tests/sim/execute.cc", "Client::DoExecute"),
    ("tests/sim/operations.cc", "Client::DoCopy"),
    ("tests/sim/programs.cc", "Client::RunProgram"),
    ("tests/sim/remap.cc", "Client::DoRemap"),
}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
TEST_FILE = re.compile(r"(_test\.cc|_for_test\.(h|cc)|(^|/)test_\w+\.(h|cc))$|^(tests|bench)/")
LITERAL = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|(?<![0-9a-fA-F])\'(?:[^\'\\\n]|\\.)*\'|//[^\n]*|/\*.*?\*/', re.S)
NAME = re.compile(r"([\w:~]+(?:<[^()]*>)?(?:::\w+)?|operator\S+)\s*\(")
CLASS = re.compile(r"^( *)(?:class|struct)\s+(?:\[\[\w+\]\]\s+)?([\w:]+)[^;{}()]*\{", re.M)
ACCESS = re.compile(r"^\s*(public|protected|private):\s*$")
NOT_OPERATIONS = ("using ", "friend ", "typedef ", "static_assert", "template <", "explicit ", "~", "virtual ~")


def blank(text):
    """`text` without comments and literals, with the same lines."""
    return LITERAL.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def statements(lines):
    """Yields (first line, last line, text) of each statement or definition in `lines`.

    A statement ends with a semicolon, or the brace that closes it, outside all brackets.
    """
    depth, first, text = 0, None, ""
    for number, line in enumerate(lines, 1):
        if depth == 0 and (not line.strip() or line.startswith("#") or ACCESS.match(line)):
            continue
        first = first or number
        text += line + "\n"
        depth += sum(map(line.count, "({[")) - sum(map(line.count, ")}]"))
        if depth <= 0 and line.rstrip().endswith((";", "}")):
            yield first, number, text
            depth, first, text = 0, None, ""


def functions(text):
    """Yields (line, name, number of lines) of each function with a body in C++ `text`."""
    lines = blank(text).split("\n")
    # The braces of a namespace are not a body.
    lines = ["" if re.match(r"^(inline )?namespace\b.*\{$|^}$", line) and not _closes(lines, i) else line
             for i, line in enumerate(lines)]
    yield from _functions(lines, 0)


def _closes(lines, at):
    """Whether the lone brace in column 0 of line `at` closes a definition, and not a namespace."""
    if lines[at] != "}":
        return False
    depth = 0
    for line in reversed(lines[: at + 1]):
        depth += line.count("}") - line.count("{")
        if depth <= 0:
            return not re.match(r"^(inline )?namespace\b", line)
    return False


def _functions(lines, offset):
    for first, last, text in statements(lines):
        head, brace, _ = text.partition("{")
        if not brace or "enum " in head:
            continue
        is_class = re.match(r"\s*(template\s*<.*>\s*)?(class|struct|union)\b", head, re.S)
        if is_class and "(" not in head:
            begin = first + head.count("\n")
            yield from _functions(lines[begin : last - 1], offset + begin)
            continue
        name = NAME.search(head)
        if name and "=" not in head[: name.start()]:
            yield offset + first, name.group(1), last - first + 1


def public_operations(text):
    """Yields (line, class, number) of the public operations that each class in `text` declares."""
    lines = blank(text).split("\n")
    for match in CLASS.finditer("\n".join(lines)):
        begin = "\n".join(lines)[: match.end()].count("\n")
        indent, depth, count = match.group(1), 1, 0
        access = "private" if match.group().lstrip().startswith("class") else "public"
        body = []
        for line in lines[begin + 1 :]:
            depth += line.count("{") - line.count("}")
            if depth <= 0:
                break
            said = ACCESS.match(line)
            if said and line.startswith(indent + " " + said.group(1)):
                access = said.group(1)
                body.append("")
            else:
                body.append(line if access == "public" else "")
        for _, _, statement in statements(body):
            declared = " ".join(statement.split())
            is_data = "(" not in declared.split("=")[0].split("{")[0]
            nested = re.match(r"(class|struct|enum|union)\b", declared)
            own = declared.startswith(match.group(2).split("::")[-1] + "(")
            if not (is_data or nested or own or declared.startswith(NOT_OPERATIONS)):
                count += 1
        yield begin + 1, match.group(2), count


def check_shapes(path, text, private=False):
    """Yields (line, rule, text) for one C++ file; `private`: only files of its folder include it.

    A class that is private to a folder is not a door: parts of a state may have any number.
    """
    long_ones = {name for where, name in LONG_SCENARIOS if where == path}
    for line, name, size in functions(text):
        if size <= MAX_FUNCTION_LINES or name in long_ones:
            continue
        test = text.split("\n")[line - 1].rstrip(" {")
        if test not in long_ones:
            yield line, "function", f"{name} has {size} lines, at most {MAX_FUNCTION_LINES}"
    if path.startswith("controller/") and path.endswith(".h") and not private:
        for line, name, count in public_operations(text):
            if count > MAX_PUBLIC_OPERATIONS:
                yield (line, "operations",
                       f"{name} has {count} public operations, at most {MAX_PUBLIC_OPERATIONS}: split it by owner")


def folder_cycles(texts):
    """The folders, at any depth, that include each other in a circle: one line of names per circle.

    `texts`: path -> text. Tests are ignored: they may use each other's folders.
    """
    edges = {}
    for path, text in texts.items():
        if not path.endswith((".h", ".cc")) or TEST_FILE.search(path):
            continue
        here = path.rpartition("/")[0]
        for target in INCLUDE.findall(text):
            for prefix in ("", "client/cpp/include/"):
                there = (prefix + target).rpartition("/")[0]
                if prefix + target in texts and there != here:
                    edges.setdefault(here, set()).add(there)
    reach = {}
    for start in edges:
        seen, todo = set(), [start]
        while todo:
            new = edges.get(todo.pop(), set()) - seen
            seen |= new
            todo.extend(new)
        reach[start] = seen
    circles = {frozenset(b for b in reach[a] if a in reach.get(b, ())) for a in reach if a in reach[a]}
    return sorted(", ".join(sorted(circle)) for circle in circles)
