# SPDX-License-Identifier: Apache-2.0
"""What version 0.1 said, played to the processes of this tree (docs/design/0087-upgrades.md, tests/upgrade)."""

import base64
import json
import pathlib
import re
import signal
import socket
import sys
import threading

import grpc
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "upgrade"))

from admin_calls import Answerer, call, read_calls  # noqa: E402
from cluster import wait_for  # noqa: E402
from dialogue import CLOSED, RECORDED, Framed, Links, Player, Protocol, meaning, read_dialogue, said  # noqa: E402
from small_cluster import Controller, Worker, run_program, type_command  # noqa: E402

MADE = "doubled  f32[8]  [3, 3, 3, 3, 3, 3, 3, 3]\nsum  f32[4]  [6, 6, 6, 6]\n"


@pytest.fixture(scope="module")
def protocol():
    """As version 0.1 has it."""
    return Protocol((RECORDED / "protocol.binpb").read_bytes())


def same(pairs):
    for link, before, now in pairs:
        assert now == before, f"{link}: lacks {sorted(set(before) - set(now))}, has besides {sorted(set(now) - set(before))}"
    assert len(pairs) >= 5


class Listener:
    """A link port for one worker, whose links are told apart by what they say first."""

    def __init__(self, protocol):
        self.links, self.protocol, self.found = Links(protocol), protocol, {}
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.server.accept()
            except OSError:
                return
            # The first frame is looked at, and stays in the socket.
            data = b""
            while len(data) < 32 or len(data) < 32 + int.from_bytes(data[24:28], "little"):
                data = sock.recv(1 << 16, socket.MSG_PEEK)
            self.found[self.links.name(data[32:32 + int.from_bytes(data[24:28], "little")])] = sock

    def link(self, name):
        return wait_for(lambda: self.found.get(name), f"the link {name}")


def test_a_worker_of_the_version_before_has_the_same_dialogue_with_this_controller(protocol, tmp_path):
    """Registration, compilations, an upload, launches, results, a loss, the return; then the administration's calls."""
    made = []
    program = threading.Thread(target=lambda: made.append(run_program(controller.port)))

    def begin(frame):
        if frame.link == "supervisor" and b"double" in frame.payload and not program.ident:
            program.start()

    with Controller(tmp_path) as controller:
        player = Player(protocol, read_dialogue("worker.txt"), "worker",
                        lambda link: socket.create_connection(("127.0.0.1", controller.link_port)), begin)
        try:
            same(player.play())
            program.join(120)
            assert made == [MADE]
            wait_for(controller.up, "the worker")
            described = type_command(controller.port, ["describe", "worker", "w0"]).stdout
            assert re.search(r"^link protocol: +13$", described, re.M), described
            logs = type_command(controller.port, ["logs", "w0"])
            assert logs.returncode == 1 and re.search(r"worker w0 \(.*\) speaks link protocol 13, .*: upgrade it", logs.stderr), logs
            make_calls_again(protocol, controller.port)
        finally:
            player.close()


def without_numbers(protocol, name, message):
    """The meaning of an answer; numbers in its texts are of times, ports and processes."""
    def texts(value):
        if isinstance(value, dict):
            return {k: texts(v) for k, v in value.items()}
        if isinstance(value, list):
            return [texts(v) for v in value]
        return re.sub(r"\d+", "N", value) if isinstance(value, str) and " " in value else value
    return texts(meaning(protocol.parse(name, message)))


def make_calls_again(protocol, port):
    methods = protocol.methods()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for entry in read_calls(RECORDED / "admin.jsonl"):
            _, answer, stream = methods[entry["path"]]
            messages, code, text = call(channel, entry["path"], base64.b64decode(entry["request"]), stream)
            assert (code, text) == (entry["code"], entry["text"]), entry["path"]
            before = [base64.b64decode(message) for message in entry["answer"]]
            assert [without_numbers(protocol, answer, m) for m in messages] == [
                without_numbers(protocol, answer, m) for m in before], entry["path"]
            if entry["path"].endswith("/RestartExecutor"):
                break  # behind it, the command waits for the worker


def test_a_controller_of_the_version_before_has_the_same_dialogue_with_this_worker(protocol, tmp_path):
    listener = Listener(protocol)
    frames = read_dialogue("worker.txt")
    with Worker(tmp_path, listener.port) as worker:

        def kill(frame):
            if frame.type == CLOSED:
                worker.kill_executor(signal.SIGKILL)

        player = Player(protocol, frames, "controller", listener.link, kill)
        try:
            same(player.play())
            assert worker.said("by link protocol 13")
        finally:
            player.close()
            listener.server.close()


def lines_of(text):
    """Without ages and times, which depend on when it is asked."""
    return [re.sub(r"\d+(\.\d+)? (ms|s|min|h)\b( ago)?", "TIME", line).split() for line in text.splitlines()
            if not line.startswith("link protocol:")]  # it is not in version 0.1's answers


def covers(more, less):
    """Whether JSON has all that another one has."""
    if isinstance(less, dict):
        return isinstance(more, dict) and all(k in more and covers(more[k], v) for k, v in less.items())
    if isinstance(less, list):
        return isinstance(more, list) and len(more) == len(less) and all(map(covers, more, less))
    return more == less


def test_the_command_line_takes_the_answers_of_the_version_before_and_asks_the_same(protocol):
    calls = read_calls(RECORDED / "admin.jsonl")
    with Answerer(protocol, calls) as server:
        for entry in read_calls(RECORDED / "commands.jsonl"):
            done = type_command(server.port, entry["command"])
            assert (done.returncode, done.stderr) == (entry["code"], entry["err"]), entry["command"]
            if "json" in entry["command"]:
                assert covers(json.loads(done.stdout), json.loads(entry["out"])), done.stdout
            else:
                assert lines_of(done.stdout) == lines_of(entry["out"]), entry["command"]
        methods = protocol.methods()
        asked = [(path, meaning(protocol.parse(methods[path][0], request))) for path, request in server.asked]
    assert asked == [(entry["path"], meaning(protocol.parse(methods[entry["path"]][0], base64.b64decode(entry["request"]))))
                     for entry in calls]


def test_a_worker_two_versions_older_is_refused_with_both_versions_and_the_cure(protocol, tmp_path):
    (hello,) = [f for f in read_dialogue("worker.txt") if f.link == "supervisor" and f.sender == "worker"][:1]
    message = protocol.parse("ToController", hello.payload)
    message.register_worker.protocol = 12
    hello.payload = message.SerializeToString()
    with Controller(tmp_path) as controller:
        end = Framed(socket.create_connection(("127.0.0.1", controller.link_port)))
        end.sock.sendall(hello.bytes())
        (word,) = said(protocol, end.take("supervisor", "controller"))
        end.close()
        events = type_command(controller.port, ["get", "events"]).stdout
    text = ("this controller speaks link protocols 13 to 14, worker 'w0' speaks 12: upgrade the worker to the "
            "controller's version (docs/upgrade.md)")
    assert word["fence"]["reason"] == text and "WorkerRefused" in events and text in events
