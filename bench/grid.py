# SPDX-License-Identifier: Apache-2.0
"""Prints the results of `./dev bench dispatch --json FILE` as Markdown tables by device count.

  ./dev python bench/grid.py FILE...

Several files are parts of one measurement (--devices, --beside). A row that is in several of them
shows the median, as Fairway is measured in each part.
"""

import json
import pathlib
import re
import sys

from measure import median

CPU = "CPU of all processes: "
MEMORY = "peak memory of all processes: "


def short(value):
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def read(files):
    """{title of the line: {devices: [values]}} for rates, CPU and memory."""
    rates, cpu, memory = {}, {}, {}
    for file in files:
        for row in json.loads(pathlib.Path(file).read_text(encoding="utf-8"))["rows"]:
            name = row["name"]
            into = cpu if name.startswith(CPU) else memory if name.startswith(MEMORY) else rates
            parts = re.fullmatch(r"(?:(.*), )?(\d+) devices, (.*)",
                                 name.removeprefix(CPU).removeprefix(MEMORY))
            if parts is None or name.endswith("a device's share"):
                continue
            line = f"{parts[1]}, {parts[3]}" if parts[1] else parts[3]
            into.setdefault(line, {}).setdefault(int(parts[2]), []).append(row["value"])
    return rates, cpu, memory


def main(files):
    rates, cpu, memory = read(files)
    devices = sorted({n for line in rates.values() for n in line})
    head = f"| {{}} | {' | '.join(map(str, devices))} |\n|{'---|' * (len(devices) + 1)}"

    def cell(values, n, text):
        return text(median(values[n])) if n in values else "-"

    print(head.format("steps/s (us of CPU a step)"))
    for line in sorted(rates):
        cells = [cell(rates[line], n, short) + (f" ({short(median(cpu[line][n]))})"
                                                if n in cpu.get(line, {}) else "")
                 for n in devices]
        print(f"| {line} | {' | '.join(cells)} |")
    print("\n" + head.format("peak memory, MiB"))
    for line in sorted(memory):
        print(f"| {line} | {' | '.join(cell(memory[line], n, '{:.0f}'.format) for n in devices)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
