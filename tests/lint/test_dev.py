# SPDX-License-Identifier: Apache-2.0
"""The script `dev`, in a folder where stand-ins replace the programs that it calls."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

DEV = pathlib.Path(__file__).resolve().parents[2] / "dev"


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return path


def test_what_cannot_be_installed_is_not_taken_for_there(tmp_path):
    shutil.copy(DEV, tmp_path)
    for name in ("requirements-dev.txt", "pyproject.toml"):
        script(tmp_path / "client" / "python" / name, "")
    script(tmp_path / "cmake" / "fetch_ffi_headers.sh", "touch fetched")
    script(tmp_path / "bin" / "dpkg-query", "for name; do echo \"ii  $name\"; done")
    # Its environments have a Python whose pip fails.
    python = script(tmp_path / "bin" / "python3", """
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; fi
[ "$1 $2" != "-m pip" ]""")
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
                   "FAIRWAY_PYTHON": str(python)}
    done = subprocess.run([tmp_path / "dev", "test", "lint"], env=environment, text=True,
                          capture_output=True, timeout=240)
    assert done.returncode != 0
    assert (tmp_path / ".venv" / "bin" / "python").exists(), done.stderr
    assert not (tmp_path / ".venv" / "fairway-stamp").exists()
    assert not (tmp_path / "fetched").exists()


def test_a_ctest_that_fails_is_told(tmp_path):
    script(tmp_path / "bin" / "ctest", "exit 8")
    function = re.search(r"^run_ctest\(\) \{\n.*?^\}$", DEV.read_text(), re.M | re.S).group()
    done = subprocess.run(
        ["bash", "-c", f"set -uo pipefail\nLOGS={tmp_path}\n{function}\nrun_ctest unit release"],
        env={**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}, timeout=240)
    assert done.returncode == 8


def test_each_phase_of_ci_has_a_budget_and_together_they_are_45_minutes():
    script, page = DEV.read_text(), (DEV.parent / "docs" / "testing.md").read_text()
    page = page.partition("## The simulation")[0]
    named = re.search(r"^PHASES=\((.*)\)", script, re.M)[1].split()
    bodies = [re.search(rf"^phase_{name}\(\) \{{\n(.*?)^\}}", script, re.M | re.S)[1] for name in named]
    phases = {"set-up"}.union(*(re.findall(r"\bphase ([\w-]+)", body) for body in bodies))
    budgets = {name: int(seconds) for name, seconds in re.findall(r"^\| ([\w-]+) \| (\d+) \|", page, re.M)}
    assert budgets.keys() == phases
    assert sum(budgets.values()) <= 45 * 60


def test_the_summary_tells_a_phases_times_and_budget(tmp_path):
    script = DEV.read_text()
    functions = [re.search(rf"^{name}\(\) \{{.*?^\}}$", script, re.M | re.S)[0]
                 for name in ("read_cpu", "budget_of", "phase")]
    code = "\n".join(["say() { :; }", *functions, "PASSED=0 FAILED=0 SUMMARY=()",
                      "burn='import time; all(time.process_time() < 2 for _ in iter(int, 1))'",
                      "phase lint python3 -c \"$burn\"; printf '%s\\n' \"${SUMMARY[@]}\""])
    done = subprocess.run(["bash", "-c", code], env={**os.environ, "LOGS": str(tmp_path)},
                          cwd=DEV.parent, text=True, capture_output=True, timeout=240)
    told = re.fullmatch(r"lint +1 passed +0 failed +0 skipped +\d+ s +(\d+) s of processor, "
                        r"budget 5 s\n", done.stdout)
    assert told, done.stdout + done.stderr
    assert int(told[1]) >= 1


def test_a_fuzzer_that_finds_something_fails_its_phase(tmp_path):
    script(tmp_path / "build" / "fuzz" / "bin" / "values_fuzz", "exit 77")
    script(tmp_path / "tests" / "fuzz" / "values_fuzz.cc", "")
    function = re.search(r"^cmd_fuzz\(\) \{\n.*?^\}$", DEV.read_text(), re.M | re.S).group()
    stubs = "setup() { :; }; need_packages() { :; }; compile() { :; }"
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\nAPT_CLANG=(clang)\n{stubs}\n{function}\n"
         "cmd_fuzz values --minutes 1 || exit 3"], cwd=tmp_path, timeout=240)
    assert done.returncode == 3


def test_tests_of_a_group_run_in_one_process(tmp_path):
    """As tests/gpu and tests/versions need it. A pytest that is newer than xdist knows passes groups over."""
    marks = (DEV.parent / "tests" / "gpu" / "conftest.py").read_text()
    hook = re.search(r"^@pytest.hookimpl.*?(?=^\n\n)", marks, re.M | re.S).group()
    (tmp_path / "conftest.py").write_text(f"import pytest\n\n{hook}")
    for name in ("a", "b"):
        (tmp_path / f"test_{name}.py").write_text(
            'import os\nimport pytest\n@pytest.mark.parametrize("x", range(4))\n'
            'def test(x): open(os.environ["PYTEST_XDIST_WORKER"] + "-" + __name__, "w")\n')
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"],
                   cwd=tmp_path, check=True, timeout=240)
    assert sorted(path.name.split("-")[1] for path in tmp_path.glob("gw?-*")) == ["test_a", "test_b"]


def can_yield_processors():
    code = "e=/proc/sys/kernel/sched_autogroup_enabled; [ ! -e $e ] || [ $(cat $e) = 0 ] || echo 19 >/proc/self/autogroup"
    return subprocess.run(["bash", "-c", code], start_new_session=True, stderr=subprocess.DEVNULL).returncode == 0


beside = pytest.mark.skipif(not can_yield_processors(), reason="the phases of the sanitizers run alone here")


def start_with_stand_ins(folder, phases, build_asan=":", ctest_asan=":", tests=":"):
    """./dev test, with shell code in the place of what its phases asan and python run."""
    shutil.copy(DEV, folder)
    shutil.copytree(DEV.parent / "tests", folder / "tests", ignore=lambda _, names: set(names) - {"beside.sh", "lint", "junit_counts.py"})
    for name in ("requirements-dev.txt", "pyproject.toml"):
        script(folder / "client" / "python" / name, "")
    script(folder / "cmake" / "fetch_ffi_headers.sh", "")
    script(folder / "docs" / "testing.md", "")
    script(folder / "bin" / "dpkg-query", "for name; do echo \"ii  $name\"; done")
    script(folder / "bin" / "cmake", f'if [[ $* = "--build build/asan"* ]]; then\n{build_asan}\nfi')
    script(folder / "bin" / "ctest", f'if [[ $* = "--test-dir build/asan"* ]]; then\n{ctest_asan}\nfi')
    python = script(folder / "bin" / "python3", f"""
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; fi
if [[ $* = *junit_counts.py* ]]; then exec {sys.executable} "$@"; fi
if [[ $* = *" tests/e2e "* ]]; then
{tests}
fi""")
    environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "FAIRWAY_PYTHON": str(python)}
    return subprocess.Popen([folder / "dev", "test", *phases], env=environment, text=True, start_new_session=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def until(name):
    return f"until [ -e {name} ]; do sleep 0.05; done\n"


@beside
@pytest.mark.parametrize("code", [0, 8])
def test_the_sanitizers_run_beside_others_and_their_failure_fails_the_run(tmp_path, code):
    build = f"touch asan-builds\n{until('e2e-runs')}cat /proc/self/autogroup; nice"
    process = start_with_stand_ins(tmp_path, ["python", "asan"], build, f"echo what ctest said; exit {code}",
                                   f"touch e2e-runs\n{until('asan-builds')}")
    said, _ = process.communicate(timeout=240)
    assert process.returncode == (code != 0), said
    assert re.search(rf"^ctest-asan +{int(code == 0)} passed +{int(code != 0)} failed.*, beside others$", said, re.M), said
    assert said.endswith(f"{6 - (code != 0)} passed, {int(code != 0)} failed\n"), said
    assert "\nwhat ctest said\n" in said
    assert (f"\nFAILED ctest-asan: it ended with code {code}" in said) == (code != 0), said
    assert re.search("^19$", said, re.M), said
    if os.path.exists("/proc/self/autogroup"):
        assert re.search(r"^/autogroup-\d+ nice 19$", said, re.M), said


@beside
@pytest.mark.parametrize("said, alone, fails", [
    ("no TLS handshake within 5000 ms", 0, False), ("no TLS handshake within 5000 ms", 8, True),
    ("==7==ERROR: AddressSanitizer: heap-use-after-free", 0, True)])
def test_what_fails_beside_others_counts_if_it_fails_alone_or_a_sanitizer_reports_it(tmp_path, said, alone, fails):
    results = f"""
[[ $* != *--rerun-failed* ]] || exit {alone}
while [ "$1" != --output-junit ]; do shift; done
echo '<a><testcase name="Slow.Test"><failure>{said}</failure></testcase>' \\
  '<testcase name="Slower.Test"><failure>{said}</failure></testcase><testcase name="Other.Test"/></a>' >"$2"
echo '{said}'
exit 8"""
    process = start_with_stand_ins(tmp_path, ["python", "asan"], "touch asan-builds", results, until("asan-builds"))
    told, _ = process.communicate(timeout=240)
    assert process.returncode == fails, told
    assert told.endswith(f"{8 - 2 * fails} passed, {2 * fails} failed\n"), told
    assert ("\nFAILED ctest-asan:  Slow.Test\n    " in told) == fails, told
    assert told.count("FAILED") == 2 * fails, told
    assert ("ctest-asan: 2 failed beside others, and passed alone" in told) == (not fails), told


def test_the_sanitizers_alone_run_in_the_foreground(tmp_path):
    process = start_with_stand_ins(tmp_path, ["asan", "python"], "echo it builds; nice", "exit 8")
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 1
    assert said.index(f"it builds\n{os.nice(0)}\n") < said.index("== build-daemons") and said.count("it builds") == 1, said


@beside
def test_phases_beside_that_vanish_fail_the_run(tmp_path):
    process = start_with_stand_ins(tmp_path, ["python", "asan"], "kill -KILL $(cut -d' ' -f6 /proc/$$/stat)")
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 1 and "ended before they had told" in said, said


def has_ended(process):
    try:
        return "Z" in (process / "stat").read_text().rpartition(")")[2][:3]
    except OSError:
        return True


def wait_until(condition):
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@beside
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_ends_what_runs_beside(tmp_path, number):
    """What is compiled has a process group of its own, as ninja gives it.

    The tests in the foreground run by then: an interrupt that comes while bash forks them may be lost with the fork.
    """
    forever = "set -m\n(sleep 600; sleep 600) & echo $! >compiler\nmv compiler compiles\nwait"
    process = start_with_stand_ins(tmp_path, ["python", "asan"], forever, tests="touch e2e-runs\nexec sleep 600")
    try:
        wait_until((tmp_path / "e2e-runs").exists)
        wait_until((tmp_path / "compiles").exists)
        compiler = pathlib.Path("/proc", (tmp_path / "compiles").read_text().strip())
        assert compiler.exists()
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        assert process.wait(timeout=240) in (-number, 128 + number)
        wait_until(lambda: has_ended(compiler))
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
