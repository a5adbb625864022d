# SPDX-License-Identifier: Apache-2.0
"""All that the commands print that look at a cluster and change it, in all their forms, by golden files: in each of golden/outputs is what
is typed and what is printed. They ask a stand-in for the controller, which gives the answers in outputs.json.

FAIRWAY_WRITE_GOLDEN=1 writes the files anew: look at what git shows to be different. Outputs of doctor and diagnose: clinic.py.
"""

import json
import pathlib
import re
import subprocess
import sys

import pytest
from google.protobuf import json_format

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "upgrade"))

from admin_calls import Server  # noqa: E402
from clinic import VERSION, compare  # noqa: E402
from cluster import BIN, clean_environment  # noqa: E402
from dialogue import Protocol, descriptors  # noqa: E402

KINDS = ("islands", "workers", "devices", "sessions", "arrays", "programs", "transfers", "nodes", "events")
FORMS = ("text", "wide", "json", "yaml")
DESCRIBED = {"island": "island0", "worker": "w1", "session": "7", "device": "w0/1", "array": "7/2", "program": "7/4", "transfer": "3", "node": "1", "event": "3"}
TYPED = {
    **{f"get_{kind}": [["get", kind, "-o", form] for form in FORMS] for kind in KINDS},
    **{f"describe_{kind}": [["describe", kind, name, "-o", form] for form in FORMS if form != "wide"] for kind, name in DESCRIBED.items()},
    "describe_none": [["describe", kind, name] for kind, name in (("device", "w0/7"), ("array", "7/3"), ("array", "2"), ("program", "x/4"), ("node", "5"))],
    "status": [["status", "-o", form] for form in FORMS if form != "yaml"],
    "drain": [["cordon", "island0", "nowhere"], ["cordon", "podé"], ["drain", "island0", "--timeout=1ms"], ["drain", "podé"], ["uncordon", "island0", "podé"]],
    "logs": [["logs"], ["logs", "w0"], ["logs", "-o", "json"], ["logs", "w9"]],
    "restart": [["restart", "w1"], ["down"]],
    "token": [["token", "list"], ["token", "list", "-o", "json"], ["token", "create", "--role=viewer"], ["token", "revoke", "3"]],
    "certificate": [["certificate", "list"], ["certificate", "list", "-o", "json"], ["certificate", "revoke", "w0"]],
}


class Controller(Server):
    """Answers each call in the same way each time."""

    def __init__(self):
        self.protocol = Protocol(descriptors(HERE.parents[1] / "proto"))
        self.answers = json.loads((HERE / "outputs.json").read_text(encoding="utf-8"))
        super().__init__(self.protocol.methods())

    def message(self, name, value):
        return json_format.ParseDict(value, self.protocol.parse(name, b"")).SerializeToString()

    def answer(self, path, request, stream):
        call = path.rpartition("/")[2]
        asked, answered, _ = self.methods[path]
        asked, value = self.protocol.parse(asked, request), self.answers[call]
        if call.endswith("cordonIsland") or call == "CordonIsland":
            if asked.island == "nowhere":
                return [], "NOT_FOUND", "there is no island 'nowhere' (there are island0, podé, \x1b[2J)"
            value = {"changed": asked.island == "island0"}
        if call == "DrainIsland" and asked.island == "podé":
            value = {"drained": True}
        if call == "ListNodes" and asked.transfers:
            value = {"nodes": [node for node in value["nodes"] if node["kind"] != "launch"]}
        if call == "GetStatus":
            value = {**value, "version": VERSION}
        if call == "GetLogs":
            value = [line for line in value if asked.process in ("", line["process"])]
            if not value:
                return [], "NOT_FOUND", f"no process {asked.process}; there are: controller, w0, \x1b[2J"
        return [self.message(answered, one) for one in (value if stream else [value])], "", ""


@pytest.fixture(scope="module")
def controller():
    with Controller() as server:
        yield server


def run(*words):
    return subprocess.run([BIN / "fairway", *words], text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=240, env=clean_environment(), check=False)


def shown(port, words):
    """As a terminal would have it: what is typed, its output, and behind that its errors and its code, if that is none."""
    done = run(*words, f"--controller=127.0.0.1:{port}")
    text = f"$ fairway {' '.join(words)}\n{done.stdout}{done.stderr}" + (f"exit code {done.returncode}\n" if done.returncode else "")
    return re.sub(rf"\b{re.escape(VERSION)}\b", "VERSION", text.replace(str(port), "PORT"))


@pytest.mark.parametrize("name", TYPED)
def test_a_command_prints_what_was_looked_at(controller, name):
    compare(f"outputs/{name}.txt", lambda: "\n".join(shown(controller.port, words) for words in TYPED[name]))


def listed(pattern, *words):
    done = run(*words)
    assert done.returncode == 2
    return tuple(re.search(pattern, done.stderr)[1].split(", "))


def test_there_is_a_file_for_each_kind_and_form():
    assert listed(r"which kind\? \((.*)\)", "get") == KINDS
    assert listed(r"\(there are (.*)\)", "get", "islands", "-o", "none") == FORMS
    assert listed(r"which kind\? \((.*)\)", "describe") == tuple(DESCRIBED)
    assert {path.stem for path in (HERE / "golden" / "outputs").glob("*.txt")} == set(TYPED)


def test_no_output_has_what_would_control_a_terminal():
    """Names in outputs.json have, and so do texts of errors."""
    for path in (HERE / "golden" / "outputs").glob("*.txt"):
        assert not [line for line in path.read_text(encoding="utf-8").split("\n") if not line.isprintable()], path.name
