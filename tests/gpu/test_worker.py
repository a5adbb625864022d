# SPDX-License-Identifier: Apache-2.0
"""The errors of a worker of kind cuda that cannot start; there is no GPU here."""

import os
import subprocess

import pytest
from cluster import BIN
from compile_process import WORKER


DRIVER = BIN.parent / "tests/driver"


def worker(plugin, *flags, **environment):
    """Runs a worker that finds no controller; it must end by itself."""
    return subprocess.run(
        [WORKER, "--plugin-kind=cuda", f"--plugin={plugin}", "--controller=127.0.0.1:1", *flags],
        capture_output=True, text=True, timeout=300, env={**os.environ, **environment})


def test_no_gpu(plugin):
    done = worker(plugin)
    assert done.returncode == 3
    assert f"cannot load the plugin {plugin}" in done.stderr
    assert "No visible GPU devices" in done.stderr


def test_no_plugin_and_a_file_that_is_none(tmp_path):
    done = worker(tmp_path / "missing.so")
    assert done.returncode == 3 and str(tmp_path / "missing.so") in done.stderr
    (tmp_path / "text.so").write_text("no library")
    done = worker(tmp_path / "text.so")
    assert done.returncode == 3 and "cannot load" in done.stderr and "text.so" in done.stderr


def test_a_library_for_another_processor(tmp_path):
    """Of whose kind the dynamic linker only says that there is no such file."""
    own = WORKER.read_bytes()[:4096]
    (tmp_path / "arm64.so").write_bytes(own[:18] + (183).to_bytes(2, "little") + own[20:])
    done = worker(tmp_path / "arm64.so")
    told = f"cannot load {tmp_path}/arm64.so: it is for another processor (ELF machine 183; this worker needs 62)"
    assert done.returncode == 3 and told in done.stderr


def test_a_library_to_open_before_that_is_missing(plugin):
    done = worker(plugin, "--preload=/no/such/libnccl.so.2")
    assert done.returncode == 3
    assert "/no/such/libnccl.so.2" in done.stderr


def test_an_option_that_the_plugin_is_too_old_for(plugin):
    done = worker(plugin, "--plugin-option=memory_fraction_policy=total")
    if done.returncode == 3:
        pytest.skip("this version of the plugin has every option that there is")
    assert done.returncode == 2
    assert "too old for option memory_fraction_policy" in done.stderr
    assert "(the plugin has: abort_collectives_on_failure, allocator, " in done.stderr


def test_a_target_configuration_that_cannot_be_read(plugin, tmp_path):
    done = worker(plugin, f"--target-config={tmp_path / 'none'}")
    assert done.returncode == 2 and "--target-config: cannot read" in done.stderr
    done = worker("libc.so.6", "--plugin-kind=cpu", f"--target-config={tmp_path / 'none'}")
    assert done.returncode == 2 and "cuda only" in done.stderr


def test_what_is_tuned_on_the_gpu_is_compiled_for_no_other(plugin, tmp_path):
    done = worker(plugin, "--tune-on-gpu", f"--target-config={tmp_path / 'none'}")
    assert done.returncode == 2 and "--tune-on-gpu is for" in done.stderr
    done = worker("libc.so.6", "--plugin-kind=cpu", "--tune-on-gpu")
    assert done.returncode == 2 and "cuda only" in done.stderr


def test_a_target_configuration_that_cannot_be_written(plugin, tmp_path):
    file = f"--write-target-config={tmp_path / 'no' / 'file'}"
    done = worker(plugin, file)
    assert done.returncode == 3 and "No visible GPU devices" in done.stderr
    done = worker("libc.so.6", "--plugin-kind=cpu", file)
    assert done.returncode == 2 and "cuda only" in done.stderr
    done = worker(plugin, file, LD_LIBRARY_PATH=str(DRIVER), TMPDIR=str(tmp_path))
    assert done.returncode == 2 and f"cannot write {tmp_path / 'no' / 'file'}" in done.stderr, done.stderr


UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"


def test_a_gpu_that_is_not_there(plugin, tmp_path):
    """No driver here knows UUIDs, and the error says so; one that does lists those that exist."""
    done = worker(plugin, f"--gpus={UUID}")
    assert done.returncode == 3 and f"looking for {UUID}" in done.stderr and "libcuda.so.1" in done.stderr
    driver = BIN.parent / "tests/fairway_gpus_driver.so"
    named = tmp_path / "libcuda.so.1"
    named.symlink_to(driver)
    done = worker(plugin, f"--gpus={UUID}", f"--preload={named}")
    assert done.returncode == 3
    assert f"this host has no GPU {UUID}; it has: 0 (GPU-00000000-0000" in done.stderr


@pytest.mark.parametrize("flags, expected", [
    (["--gpus=0,x"], '--gpus: "x" is no GPU; expected indexes or UUIDs'),
    (["--gpus=0,1,0"], "--gpus: GPU 0 is listed twice"),
    (["--gpus=0,1", "--devices=3"], "--gpus names 2 GPUs, and --devices is 3"),
    (["--gpu-fraction=0.95"], "--gpu-fraction is 0.95, not above 0 and at most 0.9"),
    (["--gpu-fraction=-1"], "--gpu-fraction is -1, not above 0"),
    (["--plugin-option=preallocate=1"],
     'preallocate is a bool, got "1" (a cuda plugin has: abort_collectives_on_failure, '),
    (["--plugin-option=visible_devices=0"], "visible_devices is set by --gpus"),
    (["--plugin-option=memory_fraction=0.5"], "memory_fraction is set by --gpu-fraction"),
    (["--plugin-kind=cpu", "--gpus=0"], "for --runtime pjrt with --plugin-kind cuda only"),
])
def test_gpus_that_cannot_be(plugin, flags, expected):
    done = worker(plugin, *flags)
    assert done.returncode == 2 and expected in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1
