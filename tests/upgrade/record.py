# SPDX-License-Identifier: Apache-2.0
"""Records the dialogues of a version: FAIRWAY_BIN=TREE/build/release/bin ./dev python tests/upgrade/record.py TREE/proto

Writes into recorded/0.1; look at what git shows to be different. TREE must be of the version that the folder names.
"""

import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

from admin_calls import Passer  # noqa: E402
from cluster import wait_for  # noqa: E402
from dialogue import LOG_REPORT, RECORDED, Protocol, Recorder, descriptors, last_number  # noqa: E402
from small_cluster import COMMANDS, Controller, Worker, run_program, type_command  # noqa: E402


def main():
    proto = descriptors(sys.argv[1])
    protocol = Protocol(proto)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        folder = pathlib.Path(folder)
        controller = stack.enter_context(Controller(folder))
        recorder = Recorder(protocol, controller.link_port)
        worker = stack.enter_context(Worker(folder, recorder.port))
        wait_for(lambda: controller.up() and recorder.links.count.get("pulse"), "the worker")
        print(run_program(controller.port))
        wait_for(lambda: any(f.type == LOG_REPORT and last_number(f.payload) > 6 for f in recorder.frames), "a report of the log")
        worker.kill_executor(signal.SIGKILL)
        wait_for(lambda: recorder.links.count["executor"] == 2 and controller.up(), "the worker's return")
        frames = list(recorder.frames)
        passer = stack.enter_context(Passer(protocol, controller.port))
        shown = []
        for command in COMMANDS:
            done = type_command(passer.port, command)
            shown.append({"command": command, "code": done.returncode, "out": done.stdout, "err": done.stderr})
    RECORDED.mkdir(parents=True, exist_ok=True)
    (RECORDED / "protocol.binpb").write_bytes(proto)
    (RECORDED / "worker.txt").write_text("".join(frame.line() for frame in frames))
    lines = [json.dumps(entry) for entry in passer.calls]
    (RECORDED / "admin.jsonl").write_text("\n".join(lines) + "\n")
    (RECORDED / "commands.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in shown))
    subprocess.run(["du", "-sb", RECORDED], check=True)


main()
