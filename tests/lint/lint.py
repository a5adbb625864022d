# SPDX-License-Identifier: Apache-2.0
"""Checks rules that no compiler checks: the direction of includes, licences, guards, sizes, names.

Prints one line per finding, "file:line: rule: text", and exits 1 if there
is any. The rules are those of CONTRIBUTING.md and docs/architecture.md ("Layout").
"""

import pathlib
import re
import subprocess
import sys

import shapes

# Folder -> layer. An include goes strictly down, or stays in its folder.
LAYERS = {
    "base": 1, "proto": 1,
    "core": 2, "async": 2, "identity": 2,
    "graph": 3, "transport": 3,
    "scheduler": 4, "log": 4, "wire": 4,
    "controller": 5, "worker": 5, "client": 5,
    "tests": 6, "bench": 6,
}
# Generated headers are included by the path of their .proto, below proto/.
GENERATED = re.compile(r"\.pb\.h$")
BANNED_FOLDERS = {"common", "util", "utils", "internal", "misc", "helpers"}
# They cost seconds in every file that includes them: forward declare, or hide behind a pimpl.
HEAVY = re.compile(r"^(grpcpp/|grpc/|boost/asio|boost/beast|openssl/|CLI/|nlohmann/json\.hpp)")
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')
SLEEPS = re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep|absl::SleepFor|time\.sleep)\s*\(")
MAX_LINES = 600
MAX_HEADER_LINES = 300
LICENCE = "SPDX-License-Identifier: Apache-2.0"
LICENSED = {".h", ".cc", ".py", ".sh", ".cmake", ".proto", ".toml"}
CPP = {".h", ".cc"}


def folder_of(path):
    """The top folder of a path relative to the root; "" for files of the root itself."""
    head, slash, _ = path.partition("/")
    return head if slash else ""


def include_folder(target):
    """The folder of ours that `#include "target"` reaches; None: the target is not ours."""
    if GENERATED.search(target):
        return "proto"
    folder = folder_of(target)
    return folder if folder in LAYERS else None


def check_include(path, target):
    """Returns the fault of `#include "target"` in file `path`, or None."""
    here, there = folder_of(path), include_folder(target)
    if there is None or here not in LAYERS or here == there or LAYERS[there] < LAYERS[here]:
        return None
    return f"{here} (layer {LAYERS[here]}) may not include {target} ({there}, layer {LAYERS[there]})"


def guard_of(path):
    return "FAIRWAY_" + re.sub(r"[^A-Za-z0-9]", "_", path).upper() + "_"


def check_cpp(path, lines, private):
    """Yields (line, rule, text) for one C++ file; `private`: as for check_file."""
    is_test = path.endswith("_test.cc") or folder_of(path) == "tests"
    for number, line in enumerate(lines, 1):
        include = INCLUDE.match(line)
        if include:
            quote, target = include.groups()
            problem = check_include(path, target) if quote == '"' else None
            if problem:
                yield number, "layers", problem
            if path.endswith(".h") and HEAVY.match(target) and not private:
                yield number, "heavy-header", f"{target} in a header that other folders include"
        if is_test and SLEEPS.search(line):
            yield number, "sleep", "a test waits for a condition, it does not sleep"
    if path.endswith(".h") and f"#ifndef {guard_of(path)}\n" not in (line + "\n" for line in lines):
        yield 1, "guard", f"expected header guard {guard_of(path)}"


def check_file(path, text, private=False):
    """Returns findings (line, rule, text) for the file at `path`, relative to the root.

    `private`: a header that only files of its own directory include, which may be heavy.
    """
    lines = text.splitlines()
    suffix = pathlib.PurePosixPath(path).suffix
    name = pathlib.PurePosixPath(path).name
    found = []
    if (suffix in LICENSED or name in ("CMakeLists.txt", "dev")) and lines:
        if LICENCE not in "\n".join(lines[:2]):
            found.append((1, "licence", f"the first line must say {LICENCE}"))
    if suffix in CPP | {".py"} or name == "dev":
        most = MAX_HEADER_LINES if suffix == ".h" else MAX_LINES
        if len(lines) > most:
            found.append((most, "length", f"{len(lines)} lines, at most {most}"))
    for part in pathlib.PurePosixPath(path).parts[:-1]:
        if part in BANNED_FOLDERS:
            found.append((1, "folder", f"no folder is called {part}"))
    if suffix in CPP:
        found.extend(check_cpp(path, lines, private))
        found.extend(shapes.check_shapes(path, text, private))
    return found


def public_headers(texts):
    """The headers in `texts` (path -> text) that some file of another directory includes."""
    public = set()
    for path, text in texts.items():
        for line in text.splitlines():
            include = INCLUDE.match(line)
            if include and path.rpartition("/")[0] != include.group(2).rpartition("/")[0]:
                public.add(include.group(2))
    return public


def source_files(root):
    script = pathlib.Path(__file__).with_name("source_files.sh")
    suffixes = [suffix[1:] for suffix in sorted(LICENSED)]
    listed = subprocess.run(
        [str(script), *suffixes], cwd=root, text=True, capture_output=True, check=True
    ).stdout.split("\n")
    files = [name for name in listed if name]
    files += [str(p.relative_to(root)) for p in root.glob("*/**/CMakeLists.txt")
              if p.relative_to(root).parts[0] in LAYERS]
    return sorted({*files, "CMakeLists.txt", "dev"})


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    texts = {
        path: (root / path).read_text(encoding="utf-8")
        for path in source_files(root) if (root / path).is_file()
    }
    public = public_headers({path: text for path, text in texts.items() if path.endswith((".h", ".cc"))})
    count = 0
    for path, text in texts.items():
        for line, rule, finding in check_file(path, text, private=path not in public):
            print(f"{path}:{line}: {rule}: {finding}")
            count += 1
    for cycle in shapes.folder_cycles(texts):
        print(f"{cycle}: cycle: these folders include each other")
        count += 1
    print(f"lint: {len(texts)} files, {count} findings")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
