# SPDX-License-Identifier: Apache-2.0
"""What the package says when `fairway gateway` is missing or ends, and that nothing of it stays."""

import os
import pathlib
import subprocess
import sys
import time

import _fairway_command
import pytest

from fairway import gateway


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a shell script in the place of the command."""
    def missing():
        raise _fairway_command.Missing("there is no command")

    def put(text):
        path = tmp_path / "fairway"
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)

    monkeypatch.setattr(_fairway_command, "prefix", missing)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return put


def wait_until(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("text, said", [
    ("echo 'fairway gateway: connecting to h:1: no' >&2; exit 1", "connecting to h:1: no"),
    ("exit 3", "ended with code 3"),
])
def test_a_gateway_that_ends_is_one_line(program, text, said):
    program(text)
    before = descriptors()
    with pytest.raises(gateway.GatewayError) as caught:
        gateway.start("h:1", "/ca.pem")
    assert said in str(caught.value) and "\n" not in str(caught.value)
    wait_until(lambda: descriptors() <= before)  # threads of other tests may have some for a while


_ENDS_SLOWLY = """
import os, signal, socket, sys, time
with socket.socket(socket.AF_UNIX) as listening:
    listening.bind(sys.argv[1])
    listening.listen(1)
    print("listening", flush=True)
    sys.stdin.readline()
print("closed", flush=True)
time.sleep(0.3)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_gateway_that_has_closed_its_socket_is_waited_for(tmp_path):
    path = str(tmp_path / "gateway")
    ends = subprocess.Popen([sys.executable, "-c", _ENDS_SLOWLY, path], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    assert ends.stdout.readline() == "listening\n"
    started = gateway.Gateway(path, -1, ends.pid)
    for _ in range(3):  # more than it takes at a time
        assert started.end() is None
    ends.stdin.write("\n")
    ends.stdin.flush()
    assert ends.stdout.readline() == "closed\n"
    assert started.end() == "was ended by signal 9"
    assert started.end() is None
    ends.returncode = -9  # it was waited for
    ends.stdin.close()
    ends.stdout.close()


def test_without_the_command_it_says_so(program):
    with pytest.raises(gateway.GatewayError, match="there is no command"):
        gateway.start("h:1", "/ca.pem")


def test_the_gateway_gets_the_pipe_whose_end_ends_it(program, tmp_path):
    words = tmp_path / "words"
    program(f"""echo "$@" > {words}
for word in "$@"; do case $word in --life-fd=*) life=${{word#*=}};; esac; done
echo listening on it
cat /proc/self/fd/$life
echo ended >> {words}
""")
    started = gateway.start("h:1", "/ca.pem")
    said = words.read_text()
    assert "gateway --controller=h:1 --tls-ca=/ca.pem" in said and f"--listen=unix:{started.path}" in said
    assert pathlib.Path(started.path).parent.stat().st_mode & 0o777 == 0o700
    started.close()
    wait_until(lambda: "ended" in words.read_text())
    started.close()  # once more changes nothing


@pytest.mark.parametrize("token_file, wanted", [(None, ""), ("/home/me/token", "--token-file=/home/me/token")])
def test_the_gateway_gets_the_tokens_file_and_not_the_token(program, tmp_path, token_file, wanted):
    words = tmp_path / "words"
    program(f'echo "$@" > {words}\necho listening on it\ncat >/dev/null\n')
    started = gateway.start("h:1", "/ca.pem", token_file)
    assert (wanted in words.read_text()) and ("--token-file" in words.read_text()) == bool(wanted)
    started.close()


def test_the_gateway_gets_the_tokens_descriptor(program, tmp_path):
    read, write = os.pipe()
    os.write(write, b"secret")
    os.close(write)
    said = tmp_path / "said"
    program(f'for word in "$@"; do case $word in --token-file=*) cat "${{word#*=}}" > {said};; esac; done\n'
            "echo listening on it\n")
    gateway.start("h:1", "/ca.pem", f"/dev/fd/{read}").close()
    os.close(read)
    assert said.read_text() == "secret"
