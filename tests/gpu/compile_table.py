# SPDX-License-Identifier: Apache-2.0
"""The table of docs/design/0053: the compile process's results for programs for a GPU, by plugin.

Run ./dev python tests/gpu/compile_table.py [FOLDER...]: folders that fetch_plugin.sh filled; by
default all of .deps/cuda-*. Each program has its own process. The columns are seconds from request
to answer, those of processor time (the assembler's too), and the peak memory of the process before
the request and after.
"""

import os
import pathlib
import re
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

from conftest import PLUGIN, ROOT, TARGET  # noqa: E402
from compile_process import CompileProcess  # noqa: E402
from test_compile import COMPILED, untuned_products  # noqa: E402


def peak(pid):
    """MiB."""
    status = pathlib.Path("/proc", str(pid), "status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.M)[1]) / 1024


def processor(pid):
    """Seconds of the process and of the children that it waited for."""
    fields = pathlib.Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def products(text):
    kinds = sorted(set(re.findall(r'custom_call_target="(__cu(?:blas|dnn)\$[\w$]+)"', text)))
    if untuned_products(text):
        kinds.append("UNTUNED TRITON")
    return ", ".join(kinds) or "none"


def main():
    folders = [pathlib.Path(folder) for folder in sys.argv[1:]] or sorted(
        (ROOT / ".deps").glob("cuda-*"), key=lambda p: [int(n) for n in p.name.split("-")[1].split(".")])
    print("| plugin | program | s | s of processor | MiB before, most | bytes of code | temporaries | products |")
    print("|---|---|---|---|---|---|---|---|")
    for folder in folders:
        for name, (make, _) in COMPILED.items():
            program = make()
            with CompileProcess(folder / PLUGIN, TARGET) as process:
                pid = process.process.pid
                before, used, began = peak(pid), processor(pid), time.monotonic()
                compiled = process.compile(program, devices=8 if "8 devices" in name else 1)
                seconds = time.monotonic() - began
                print(f"| {folder.name.removeprefix('cuda-')} | {name} | {seconds:.2f} | {processor(pid) - used:.2f} | "
                      f"{before:.0f}, {peak(pid):.0f} | {len(compiled.code.native)} | "
                      f"{compiled.metadata.memory.temp} | {products(compiled.text)} |", flush=True)


if __name__ == "__main__":
    main()
