# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin, loaded into the process that runs JAX's tests: selects tests, reports each.

SUITE_SELECT names a file with the wanted tests, one per line ("Class::test"); unset: all tests are
reported, but not run. SUITE_REPORT is a file descriptor that gets one JSON object per line:
{"collected": [...]}, {"start": test}, {"end": test, "result": ..., "why": ...}.
"""

import json
import os
import pathlib

import pytest

# After one of these nothing else in the process can pass: the next process runs the rest.
LOST = ("DATA_LOSS", "UNAVAILABLE")
MOST_TEXT = 2000


def name_of(nodeid):
    return nodeid.partition("::")[2]


def tell(**event):
    data = (json.dumps(event) + "\n").encode()
    while data:
        data = data[os.write(int(os.environ["SUITE_REPORT"]), data):]


class Reporter:
    """`results`: test -> (outcome, why) of its parts so far; the worst outcome counts."""

    def __init__(self):
        self.results = {}
        self.lost = None

    def pytest_collection_modifyitems(self, items):
        select = os.environ.get("SUITE_SELECT")
        if select:
            wanted = set(pathlib.Path(select).read_text(encoding="utf-8").split("\n"))
            items[:] = [item for item in items if name_of(item.nodeid) in wanted]

    # Runs last, after -k has chosen.
    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session):
        tell(collected=[name_of(item.nodeid) for item in session.items])

    def pytest_runtest_logstart(self, nodeid):
        tell(start=name_of(nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if call.excinfo is not None:
            report.why = f"{call.excinfo.typename}: {call.excinfo.value}"[:MOST_TEXT]
        return report

    def pytest_runtest_logreport(self, report):
        """Called for setup, call, teardown and every subtest; the worst of them is the result."""
        before = self.results.get(report.nodeid, ("", ""))
        why = getattr(report, "why", None) or str(report.longrepr or "")[-MOST_TEXT:]
        if report.failed and before[0] != "failed":
            self.results[report.nodeid] = ("failed", why)
        elif report.skipped and not before[0]:
            self.results[report.nodeid] = ("skipped", why)
        if report.failed and any(word in why for word in LOST):
            self.lost = why

    def pytest_runtest_logfinish(self, nodeid):
        outcome, why = self.results.pop(nodeid, ("passed", ""))
        tell(end=name_of(nodeid), result=outcome, why=why)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item):
        if self.lost:
            item.session.shouldstop = "the backend is lost"


def pytest_configure(config):
    config.pluginmanager.register(Reporter())
