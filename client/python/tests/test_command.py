# SPDX-License-Identifier: Apache-2.0
"""The command `fairway` as pip installs it, with and without the programs of the wheel."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture
def installed(tmp_path):
    """A folder with the package, as in an environment; returns a function that runs Python."""
    shutil.copy(SOURCE / "_fairway_command.py", tmp_path)
    shutil.copytree(SOURCE / "fairway", tmp_path / "fairway",
                    ignore=shutil.ignore_patterns("__pycache__"))

    def run(*arguments, **environment):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "FAIRWAY_"))}
        return subprocess.run([sys.executable, *arguments], text=True, capture_output=True, timeout=300,
                              env={**env, "PYTHONPATH": str(tmp_path), **environment}, cwd=tmp_path)

    run.path = tmp_path
    return run


def with_programs(path):
    """Stands in for the program of the wheel: prints the arguments that it was started with."""
    program = path / "fairway" / "_native" / "bin" / "fairway"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$@" "plugin=$FAIRWAY_PJRT_PLUGIN"\nexit 7\n')
    program.chmod(0o755)
    plugin = path / "xla_plugins" / "xla_cpu_pjrt" / "xla_cpu_pjrt.so"
    plugin.parent.mkdir(parents=True)
    plugin.write_text("")
    (plugin.parent / "__init__.py").write_text("")
    return plugin


COMMAND = ("-c", "import sys; sys.argv[0] = 'fairway'; from _fairway_command import main; main()")


@pytest.mark.parametrize("how", [COMMAND, ("-m", "fairway"), ("-m", "fairway.sdk")])
def test_without_the_programs_one_line_says_so(installed, how):
    done = installed(*how, "up")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "this is the Python package alone" in line and "./dev package wheel" in line


@pytest.mark.parametrize("how", [COMMAND, ("-m", "fairway")])
def test_the_program_gets_the_arguments_and_the_plugin_of_the_environment(installed, how):
    plugin = with_programs(installed.path)
    done = installed(*how, "up", "--islands", "2")
    assert (done.stdout, done.returncode) == (f"up --islands 2 plugin={plugin}\n", 7)
    done = installed(*how, "up", FAIRWAY_PJRT_PLUGIN="/my/own.so")
    assert done.stdout == "up plugin=/my/own.so\n"
    assert installed(*how, "status").stdout == "status plugin=\n"


def test_the_prefix_of_the_sdk_is_told(installed):
    with_programs(installed.path)
    assert installed("-m", "fairway.sdk").stdout == f"{installed.path}/fairway/_native\n"


def test_the_command_reads_neither_numpy_nor_jax(installed):
    done = installed("-c", "import sys, _fairway_command; _fairway_command.cpu_plugin(); "
                     "print({'numpy', 'jax', 'fairway'} & set(sys.modules))")
    assert done.stdout == "set()\n", done.stderr
