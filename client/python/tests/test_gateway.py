# SPDX-License-Identifier: Apache-2.0
"""What the package says when `fairway gateway` is missing or ends, and that nothing of it stays."""

import os
import pathlib
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
