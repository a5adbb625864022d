# SPDX-License-Identifier: Apache-2.0
"""Runs tests of one file in child processes, so that no test can end the whole run."""

import dataclasses
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# The last words of a dying process: the fatal line of XLA's log or, without one, Python's.
FATAL = (re.compile(r"(?:^|\s)(F\d{4} .*)"), re.compile(r"(Fatal Python error.*)"))


@dataclasses.dataclass
class Result:
    """outcome: passed, skipped, failed, crashed (the process ended during it), hung, or missing
    (the file has no such test on this backend)."""

    outcome: str
    why: str = ""
    seconds: float = 0.0


class Unusable(Exception):
    """The file cannot be imported or has no tests; the text is the end of pytest's output."""


@dataclasses.dataclass
class Limits:
    """Seconds. startup: for importing the file; test: for one test. shard: tests per process."""

    startup: float = 180.0
    test: float = 120.0
    shard: int = 300


class Child:
    """One pytest process over `file`. Reads the reports of reporter.py in it."""

    def __init__(self, file, environment, log, limits, chosen=None, expression=None):
        self.limits, self.log = limits, log
        self.folder = tempfile.TemporaryDirectory()
        read, write = os.pipe()
        empty = pathlib.Path(self.folder.name, "empty.ini")
        empty.touch()
        extra = {"SUITE_REPORT": str(write), "PYTHONPATH": os.pathsep.join(
            [str(HERE), *filter(None, [environment.get("PYTHONPATH")])])}
        arguments = ["--collect-only", "-q"]
        if chosen is not None:
            wanted = pathlib.Path(self.folder.name, "select")
            wanted.write_text("\n".join(chosen), encoding="utf-8")
            extra["SUITE_SELECT"] = str(wanted)
            arguments = ["-v", "-s", "--tb=short"]  # -s: a dying process's log stays
        if expression:
            arguments += ["-k", expression]
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "pytest", "-p", "reporter", "-p", "no:cacheprovider",
             "-c", empty, "--rootdir", file.parent, "-W", "ignore", *arguments, file],
            env={**environment, **extra, "NO_COLOR": "1"}, cwd=self.folder.name, pass_fds=[write],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )
        os.close(write)
        self.pipe = read

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.pipe)
        self.folder.cleanup()

    def events(self):
        """Yields the reports; if a limit has passed, the last is {"silent": True}."""
        pending, limit = b"", self.limits.startup
        deadline = time.monotonic() + limit
        while True:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.pipe], [], [], max(left, 0))
            if not ready:
                self.end_with_stacks()
                yield {"silent": True}
                return
            data = os.read(self.pipe, 1 << 16)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                event = json.loads(line)
                deadline = time.monotonic() + self.limits.test
                yield event

    def end_with_stacks(self):
        """SIGABRT makes Python print every thread's stack into the log."""
        self.process.send_signal(signal.SIGABRT)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def exit_code(self):
        try:
            return self.process.wait(self.limits.test)
        except subprocess.TimeoutExpired:
            print(f"note: a process had run its tests and did not end ({self.log.name})")
            self.end_with_stacks()
            return self.process.wait()


def output_since(log, position):
    log.flush()
    return pathlib.Path(log.name).read_bytes()[position:].decode(errors="replace")


def collect(file, environment, log, limits, expression=None):
    """The names of the file's tests, in its order. Raises Unusable."""
    begin = log.seek(0, os.SEEK_END)
    names = []
    with Child(file, environment, log, limits, expression=expression) as child:
        for event in child.events():
            names = event.get("collected", names)
        code = child.exit_code()
    if not names or code not in (0, 5):
        raise Unusable(f"{file.name}: pytest ended with {code}\n" + output_since(log, begin)[-3000:])
    return names


def one_process(file, chosen, environment, log, limits):
    """Runs `chosen` until all have run or the process ends. Returns {name: Result}, not empty."""
    begin = log.seek(0, os.SEEK_END)
    results, current, started, collected = {}, None, 0.0, None
    with Child(file, environment, log, limits, chosen) as child:
        silent = False
        for event in child.events():
            if "collected" in event:
                collected = set(event["collected"])
                results.update({n: Result("missing") for n in chosen if n not in collected})
            elif "start" in event:
                current, started = event["start"], time.monotonic()
            elif "end" in event:
                seconds = time.monotonic() - started
                results[event["end"]] = Result(event["result"], event["why"], seconds)
                current = None
            silent = "silent" in event
        code = child.exit_code()
    text = output_since(log, begin)
    if current is not None:
        seconds = time.monotonic() - started
        last = [line for pattern in FATAL for line in pattern.findall(text)[-1:]]
        last = [*last, f"the process ended with {code}"][0]
        results[current] = (Result("hung", f"no end after {seconds:.0f} s", seconds) if silent
                            else Result("crashed", last, seconds))
    elif code not in (0, 1) and not silent:
        print(f"note: a process ended with {code} behind its tests ({log.name})")
    if not results or collected is None:
        raise Unusable(f"{file.name}: pytest ended with {code}\n{text[-3000:]}")
    return results


def run(file, names, environment, log, limits, after_each=lambda results: None):
    """Runs every test of `names`. Returns {name: Result}.

    after_each: called with the results of every process; it may change them.
    """
    results = {}
    left = list(names)
    while left:
        fresh = one_process(file, left[:limits.shard], environment, log, limits)
        after_each(fresh)
        results.update(fresh)
        left = [name for name in left if name not in results]
    return results
