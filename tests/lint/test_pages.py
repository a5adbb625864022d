# SPDX-License-Identifier: Apache-2.0
"""All that the pages tell a reader to type or open exists: commands, their flags, files, headings.

Only the pages for readers are checked; design pages and the changelog describe their own time.
"""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "client" / "python" / "README.md",
                *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.M | re.S)
INLINE = re.compile(r"`([^`\n]+)`")


def read(*parts):
    return ROOT.joinpath(*parts).read_text(encoding="utf-8")


def sources(*patterns):
    return "\n".join(path.read_text(encoding="utf-8") for pattern in patterns
                     for path in sorted(ROOT.glob(pattern)))


def headings(text):
    """The anchors of a page, as GitHub and similar sites make them."""
    titles = re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def commands(text):
    """Each command of a page, as a list of words: lines of code blocks, and code in the text."""
    lines = [line for block in BLOCK.findall(text) for line in block.splitlines()]
    lines += INLINE.findall(BLOCK.sub("", text))
    found = []
    for line in lines:
        for part in re.split(r"&&|\||;", re.split(r"(?:^|\s)#\s", line)[0]):
            words = part.split()
            while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):  # variables set for the command
                words = words[1:]
            if words:
                found.append(words)
    return found


def is_name(word):
    return re.fullmatch(r"[a-z][a-z_]*", word) is not None


def wrong_with_dev(words):
    """The part of these arguments that `./dev` does not know; None: it knows all."""
    script, verb, rest = read("dev"), words[0], words[1:]
    if verb not in {*re.findall(r"^cmd_(\w+)\(\)", script, re.M), "help"}:
        return f"no command {verb}"
    first = rest[0] if rest and is_name(rest[0]) else None
    if verb == "test":
        phases = re.findall(r"^phase_(\w+)\(\)", script, re.M)
        wrong = [word for word in rest if is_name(word) and word not in phases]
        return f"no phase {wrong}" if wrong else None
    if verb == "bench" and first and not list((ROOT / "bench").glob(f"{first}_bench.*")):
        return f"no benchmark {first}"
    if verb == "fuzz" and first and not (ROOT / "tests" / "fuzz" / f"{first}_fuzz.cc").exists():
        return f"no fuzz target {first}"
    if verb == "package" and first and not re.search(rf"\b{first}\b", script):
        return f"no package {first}"
    if verb == "python":
        script = rest[0] if rest and rest[0].endswith(".py") else None
        return f"no file {script}" if script and not (ROOT / script).exists() else None
    return None


def wrong_with_fairway(words):
    """The same for the command `fairway`."""
    verb = words[0]
    if not re.fullmatch(r"[a-z]\w*", verb):  # a flag, or the text of an error: `fairway up: ...`
        return None
    if verb not in re.findall(r'command == "(\w+)"', read("client", "main.cc")):
        return f"no command {verb}"
    known = re.findall(r'Flag\(\s*"([\w-]+)"',
                       sources("client/cli/*.cc", "client/hosts/*.cc", "base/config.cc", "bench/scale/main.cc"))
    known += ["help", "print-config", "config"]
    wrong = [word for word in words[1:] if word.startswith("--")
             and word[2:].partition("=")[0] not in known]
    return f"no flag {wrong}" if wrong else None


def wrong_with_module(name):
    """Whether `python -m name` would find it, if it is ours; examples are packed from examples/."""
    path = name.replace(".", "/")
    places = [f"client/python/{path}.py", f"client/python/{path}/__init__.py"]
    if name.startswith("fairway.examples."):
        places.append(f"examples/{name.rpartition('.')[2]}.py")
    if name.rpartition(".")[2].isupper():  # a placeholder
        return None
    return None if any((ROOT / place).exists() for place in places) else f"no module {name}"


def wrong_with(words):
    if words[0] == "./dev" and len(words) > 1:
        return wrong_with_dev(words[1:])
    if words[0] == "fairway" and len(words) > 1:
        return wrong_with_fairway(words[1:])
    if words[0] in ("python", "python3") and words[1:2] == ["-m"] and words[2:3] and (
            words[2].split(".")[0] == "fairway"):
        return wrong_with_module(words[2])
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page):
    text, wrong = page.read_text(encoding="utf-8"), []
    for target in LINK.findall(INLINE.sub("", BLOCK.sub("", text))):
        name, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = page.parent / name if name else page
        if not path.exists() or (anchor and anchor not in headings(path.read_text(encoding="utf-8"))):
            wrong.append(target)
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_are_there(page):
    wrong = {" ".join(words): why for words in commands(page.read_text(encoding="utf-8"))
             if (why := wrong_with(words))}
    assert not wrong


def test_the_readme_tells_what_works_in_eight_lines_and_the_status_page_in_short_cells():
    section = read("README.md").partition("## What works, and what does not yet\n")[2]
    assert len(re.findall(r"^- ", section.partition("\n## ")[0], re.M)) == 8
    cells = [re.sub(r"\]\([^)]*\)", "]", cell).strip()
             for line in read("docs", "status.md").splitlines() if line.startswith("|")
             for cell in line.strip("|").split("|")]
    assert len(cells) > 100 and max(map(len, cells)) <= 140, max(cells, key=len)


def test_the_page_on_metrics_has_each_alert_and_each_metric_that_alerts_read():
    rules, page = read("deploy", "prometheus", "fairway.rules.yaml"), read("docs", "metrics.md")
    assert re.findall(r"alert: (\w+)", rules) == re.findall(r"^\| `(Fairway\w+)`", page, re.M)
    metrics = set(re.findall(r"\bfairway_\w+", rules))
    assert metrics and metrics <= set(re.findall(r"^\| `(fairway_\w+)`", page, re.M))


def test_each_alert_has_a_runbook_which_it_names():
    rules, page = read("deploy", "prometheus", "fairway.rules.yaml"), read("docs", "alerts.md")
    alerts = re.findall(r"alert: (\w+)", rules)
    assert alerts == re.findall(r"^## (\w+)$", page, re.M)
    assert re.findall(r"runbook_url: (.+)", rules) == [f"docs/alerts.md#{alert.lower()}" for alert in alerts]
    for section in re.split(r"^## \w+$", page, flags=re.M)[1:]:
        assert section.strip().startswith("**Means**: ") and "\n1. " in section
    commands = {word for line in INLINE.findall(page) for word in re.findall(r"^fairway ([a-z]+)", line)}
    assert commands and commands <= set(re.findall(r'^    "  ([a-z]+) ', read("client", "main.cc"), re.M))


# Who types the commands of a section's block, or holds them against what they are for (tests/chart/test_page.py).
TYPED = {
    "hosts.md": {"From nothing to JAX": "integration/cluster_page.py", "Later": "integration/cluster_page.py"},
    "operate.md": {"Taking an island out of service": "integration/test_operate_page.py", "Logs": "integration/test_operate_page.py",
                   "Another CA": "integration/test_certificates.py", "doctor": "integration/test_diagnose.py", "diagnose": "integration/test_diagnose.py"},
    "upgrade.md": {"One island": "upgrade/test_previous.py", "Hosts with the Debian package": "systemd/test_services.py",
                   "Hosts of `fairway cluster`": "upgrade/test_hosts.py", "Kubernetes": "chart/test_page.py"},
    "kubernetes.md": {"Installing": "chart/test_page.py", "Secrets of your own": "chart/test_daemons.py",
                      "Upgrades, drains, other sizes": "chart/test_page.py"},
    "errors.md": {},
}


@pytest.mark.parametrize("page", TYPED)
def test_the_commands_of_each_block_for_operators_are_typed_by_a_test(page):
    _, *parts = re.split(r"^##+ (.+)$", read("docs", page), flags=re.M)
    assert [heading for heading, body in zip(parts[::2], parts[1::2]) if "\n```sh\n" in body] == list(TYPED[page])
    for path in TYPED[page].values():
        assert page in read("tests", *path.split("/")), f"tests/{path} does not read {page}"


def test_the_wheel_of_the_readme_is_of_this_version():
    """pip accepts no pattern for a file name with extras, so pages must spell the name out."""
    version = re.search(r'^version = "(.+)"', read("client", "python", "pyproject.toml"), re.M).group(1)
    assert set(re.findall(r"fairway-([^-\s]+)-\S*\.whl", read("README.md"))) == {version}


def test_the_tests_that_the_page_on_compile_processes_names_are_there():
    tables = re.findall(r"^\|[^\n]*\| test \|\n\|[-|]+\|\n((?:\|.*\n)+)", read("docs", "design", "0021-compile-processes.md"), re.M)
    last = [line.rstrip("|").rpartition("|")[2] for table in tables for line in table.splitlines()]
    named = set(INLINE.findall("\n".join(last)))
    there = {*re.findall(r"^def (test_\w+)\(", sources("tests/gpu/test_*.py"), re.M),
             *re.findall(r"^TEST\(\w+, (\w+)\)", read("worker", "compiler", "compile_pool_test.cc"), re.M)}
    assert len(named) > 10 and all("`" in cell or "same" in cell for cell in last)
    assert named <= there, named - there


def test_every_benchmark_is_on_the_page_of_benchmarks():
    text = read("docs", "benchmarks.md")
    names = {path.name.partition("_bench.")[0] for path in (ROOT / "bench").glob("*_bench.*")}
    assert not [name for name in sorted(names) if f"./dev bench {name}" not in text]


def test_what_is_not_there_is_found():
    text = "`./dev bench`, `./dev bench nonsense --quick`\n```sh\nA=1 fairway up --island 2 # x\n./dev tset\n```\n"
    assert [wrong_with(words) for words in commands(text)] == [
        "no flag ['--island']", "no command tset", None, "no benchmark nonsense"]
    assert wrong_with("python -m fairway.examples.nonsense".split())
    assert not wrong_with("python -m fairway.examples.NAME".split())
    assert not wrong_with("fairway up: a port is taken".split())
    assert wrong_with("fairway pu".split()) and wrong_with("./dev test nonsense".split())
    assert headings("# One: two\n```\n# no\n```\n") == {"one-two"}
