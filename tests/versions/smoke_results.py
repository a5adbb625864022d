# SPDX-License-Identifier: Apache-2.0
"""Runs the smoke matrix (smoke.py) and checks the outcomes of its cases."""

import pathlib
import re
import subprocess

import pytest

SMOKE = pathlib.Path(__file__).resolve().parent / "smoke.py"
CASES = re.findall(r"^@case\ndef (\w+)", SMOKE.read_text(), re.MULTILINE)
# Cases whose programs call functions of the client.
CALLING = {"callbacks", "traced_program_with_callbacks",
           "ordered_callbacks_of_several_devices_and_of_one", "callbacks_with_types_of_4_bits"}
REFUSED = "functions of this process (jax.debug.print, pure_callback, io_callback) are not called from GPU islands"


def run_smoke(python, cluster):
    """({case: line of its result}, all that was printed). `python`: the command that runs Python."""
    done = subprocess.run([*python, str(SMOKE)], env=cluster.jax_environment(), text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=1200)
    results = {m[1]: m[0] for m in re.finditer(r"^(?:ok|failed) (\w+).*$", done.stdout, re.M)}
    return results, done.stdout + done.stderr


def check(name, smoke, on_gpus=False):
    """Fails unless case `name` ended well; skips one that GPU islands refuse, with that refusal."""
    results, text = smoke
    assert name in results, f"{name} did not end:\n{text[-6000:]}"
    if on_gpus and name in CALLING:
        assert results[name].startswith(f"failed {name}: ") and REFUSED in results[name], results[name]
        pytest.skip("functions of the client are not called from GPU islands")
    assert results[name] == f"ok {name}", f"{results[name]}\n{text[-6000:]}"
