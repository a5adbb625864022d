# SPDX-License-Identifier: Apache-2.0
"""The script `dev`, in a folder where what it calls is not the real thing."""

import os
import pathlib
import re
import shutil
import subprocess

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
                          capture_output=True, timeout=60)
    assert done.returncode != 0
    assert (tmp_path / ".venv" / "bin" / "python").exists(), done.stderr
    assert not (tmp_path / ".venv" / "fairway-stamp").exists()
    assert not (tmp_path / "fetched").exists()


def test_a_ctest_that_fails_is_told(tmp_path):
    script(tmp_path / "bin" / "ctest", "exit 8")
    function = re.search(r"^run_ctest\(\) \{\n.*?^\}$", DEV.read_text(), re.M | re.S).group()
    done = subprocess.run(
        ["bash", "-c", f"set -uo pipefail\nLOGS={tmp_path}\n{function}\nrun_ctest unit release"],
        env={**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}, timeout=60)
    assert done.returncode == 8
