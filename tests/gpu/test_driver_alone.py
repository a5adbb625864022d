# SPDX-License-Identifier: Apache-2.0
"""The stand-in driver (driver/driver.h) by itself, called from Python."""

import pathlib
import signal
import subprocess
import sys

from cluster import BIN, clean_environment, wait_for

DRIVER = BIN.parent / "tests/driver"

DIRECT = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer, module, kernel = (ctypes.c_void_p() for _ in range(4))

def check(result):
    assert result == 0, result

check(cuda.cuInit(0))
print("started", flush=True)
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(cuda.cuCtxSetCurrent(context))
check(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(4096)))
check(cuda.cuModuleLoadData(ctypes.byref(module), None))
check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"a_kernel"))

def launch():
    return cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)

def copy_back(address, count):
    back = ctypes.create_string_buffer(count)
    return cuda.cuMemcpyDtoH_v2(back, ctypes.c_void_p(address), ctypes.c_size_t(count)), back.raw

check(cuda.cuMemcpyHtoD_v2(pointer, b"device", ctypes.c_size_t(6)))
assert copy_back(pointer.value, 6) == (0, b"device")
"""
ILLEGAL_ADDRESS = 700


def direct(program, **environment):
    return subprocess.Popen([sys.executable, "-c", DIRECT + program], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE,
                            env=clean_environment(LD_LIBRARY_PATH=str(DRIVER), **environment))


def outcome(process):
    """The output after "started", one number per line."""
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return [int(line) for line in out.split()[1:]]


def test_the_host_cannot_read_device_memory():
    process = direct("print(ctypes.string_at(pointer.value, 6))")
    out, err = process.communicate(timeout=240)
    assert (process.returncode, out) == (-signal.SIGSEGV, "started\n"), err


def test_a_copy_from_outside_of_what_is_allocated_is_a_fault_that_stays():
    assert outcome(direct("""
print(copy_back(pointer.value, 4096)[0])
print(copy_back(pointer.value, 4097)[0])
print(copy_back(pointer.value, 6)[0])
print(launch())
""")) == [0] + [ILLEGAL_ADDRESS] * 3


def test_a_launch_is_a_fault_when_it_is_told_so(tmp_path):
    """Reported when the stream reaches it; from then on nothing works and nothing is called."""
    program = """
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def call(_):
    print(1)
for _ in range(3):
    print(launch())
    cuda.cuLaunchHostFunc(None, call, None)
    print(cuda.cuStreamSynchronize(None))
print(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(4096)))
"""
    fails = [ILLEGAL_ADDRESS]
    assert outcome(direct(program, FAIRWAY_DRIVER_FAIL_AFTER="3")) == \
        [0, 1, 0] * 2 + [0] + fails * 2
    fault = tmp_path / "fault"
    assert outcome(direct(program, FAIRWAY_DRIVER_FAULT=str(fault))) == [0, 1, 0] * 3 + [0]
    program = f"open({str(fault)!r}, 'w').close()" + program
    assert outcome(direct(program, FAIRWAY_DRIVER_FAULT=str(fault))) == [0] + fails * 6


def test_a_context_is_not_made_while_it_is_told_to_hang(tmp_path):
    hang = tmp_path / "hang"
    hang.touch()
    process = direct("print(launch())", FAIRWAY_DRIVER_HANG=str(hang))
    assert process.stdout.readline() == "started\n"
    waits = pathlib.Path("/proc", str(process.pid), "syscall")
    wait_for(lambda: waits.read_text().split()[0] == "7", "the process to wait in poll")
    assert process.poll() is None
    hang.unlink()
    assert process.communicate(timeout=240)[0] == "0\n"


def test_a_function_that_is_not_there_is_told_and_noted(tmp_path):
    log = tmp_path / "log"
    assert outcome(direct("""
for name in (b"cuMemAlloc", b"cuNoSuchFunction"):
    print(cuda.cuGetProcAddress_v2(name, ctypes.byref(pointer), 13000, ctypes.c_uint64(0), None))
    print(int(pointer.value is None))
""", FAIRWAY_DRIVER_LOG=str(log))) == [0, 0, 500, 1]
    assert log.read_text().endswith(": missing cuNoSuchFunction\n")


def test_memory_has_an_end():
    assert outcome(direct("""
for bytes in (1 << 20, 900 << 20, 200 << 20):
    print(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(bytes)))
print(cuda.cuMemFree_v2(pointer))
""", FAIRWAY_DRIVER_MEMORY=str(1 << 30))) == [0, 0, 2, 0]
