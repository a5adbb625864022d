# SPDX-License-Identifier: Apache-2.0
"""Bash and zsh complete the fairway command, each in a terminal, as a user meets it."""

import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

from cluster import BIN, clean_environment

READY = "ready$"  # the prompt
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], f"PS1={READY}; source <(fairway completion bash)\n"),
    "zsh": (["zsh", "-f", "-i"],
            f"PS1='{READY}'; autoload -U compinit; compinit -u -D; source <(fairway completion zsh)\n"),
}


class Terminal:
    """A shell that has fairway's completion."""

    def __init__(self, shell, folder):
        command, setup = SHELLS[shell]
        environment = clean_environment(PATH=f"{BIN}:{os.environ['PATH']}", HOME=str(folder), TERM="dumb", INPUTRC="/dev/null")
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, environment)
        os.write(self.fd, setup.encode())
        self.read_until(lambda text: text.count(READY) > 1 and text.endswith(READY))

    def read_until(self, seen):
        """Reads until seen(what the terminal was told, without control characters)."""
        said, last = b"", time.monotonic() + 120
        while not seen(re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]|[\r\a]|.\x08", b"", said).decode().rstrip()):
            assert time.monotonic() < last, said
            if select.select([self.fd], [], [], 1)[0]:
                said += os.read(self.fd, 4096)

    def complete(self, typed, expected):
        """Types `typed` and TAB; waits until the line has `expected`. Then the line is dropped."""
        os.write(self.fd, typed.encode() + b"\t")
        self.read_until(lambda text: expected in f"{text} ")
        os.write(self.fd, b"\x15\n")
        self.read_until(lambda text: text.endswith(READY))

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


@pytest.fixture(scope="module", params=sorted(SHELLS))
def terminal(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    assert shutil.which(request.param), f"{request.param} is missing; `./dev test release` installs it"
    (folder / "settings.toml").write_text("")
    shell = Terminal(request.param, folder)
    yield shell
    shell.close()


@pytest.mark.parametrize("typed, completed", [
    ("fairway stat", "fairway status "),
    ("fairway get isl", "fairway get islands "),
    ("fairway desc", "fairway describe "),
    ("fairway doc", "fairway doctor "),
    ("fairway diag", "fairway diagnose "),
    ("fairway doctor --pyt", "fairway doctor --python "),
    ("fairway diagnose --data", "fairway diagnose --data-directory "),
    ("fairway describe wor", "fairway describe worker "),
    ("fairway get trans", "fairway get transfers "),
    ("fairway get arrays --ses", "fairway get arrays --session "),
    ("fairway get islands --outp", "fairway get islands --output "),
    ("fairway token rev", "fairway token revoke "),
    ("fairway completion z", "fairway completion zsh "),
    ("fairway status --tok", "fairway status --token-file "),
    ("fairway token create --ten", "fairway token create --tenant "),
    ("fairway config check sett", "fairway config check settings.toml "),
])
def test_commands_verbs_flags_and_files_are_completed(terminal, typed, completed):
    terminal.complete(typed, completed)


def test_another_shell_is_an_error_that_names_those_that_can():
    done = subprocess.run([BIN / "fairway", "completion", "fish"], text=True, capture_output=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "fairway completion: expected `fairway completion bash` or `... zsh`, and not 'fish'\n"
