# SPDX-License-Identifier: Apache-2.0
"""Runs one benchmark, prints its table, and writes the results as one JSON object.

  ./dev bench                       lists the benchmarks
  ./dev bench NAME [--json FILE] [--quick] [options of its own: ./dev bench NAME --help]

NAME_bench.cc is a program of Google Benchmark, NAME_bench.py a module with run(quick, **options) ->
(rows, bars, left_out); left_out, pairs of a thing that was not measured and why, may be missing;
options(parser), if present, adds its options; tables(rows), if present, returns the text that is
printed in place of the rows. Quick: a few steps, as a smoke test; its figures mean nothing.
The file: {bench, commit, machine, build_type, rows: [{name, value, unit, spread, against}],
bars: [{name, value, bar, holds}], left_out: [{name, why}]}. `value` is a median, `spread` the median absolute deviation of
the repetitions; `against` names the row that this one is to be compared with, or is null. `holds` is
true, false or "unknown" (the measured interval straddles the bar, or nothing was measured).
"""

import argparse
import importlib.util
import json
import pathlib
import platform
import re
import subprocess
import sys

from measure import mad, median

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
BUILD = ROOT / "build" / "release"
REPETITIONS = 7


def names():
    found = {path.name for pattern in ("*_bench.cc", "*_bench.py") for path in HERE.glob(pattern)}
    return sorted(re.sub(r"_bench\.(cc|py)$", "", name) for name in found)


def commit():
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True, capture_output=True
    )
    return done.stdout.strip() or "unknown"


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = re.findall(r"model name\s*: (.*)", file.read())
    name = model[0] if model else platform.machine()
    return f"{len(model) or '?'} x {name}, Linux {platform.release()}"


def build_type():
    cache = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
    return re.search(r"^CMAKE_BUILD_TYPE:\w+=(.*)$", cache, re.MULTILINE).group(1)


def run_google_benchmark(program, quick):
    """Rows of a program: for each benchmark the median of its repetitions."""
    sizes = [f"--benchmark_repetitions={REPETITIONS}"]
    if quick:
        sizes = ["--benchmark_repetitions=2", "--benchmark_min_time=0.001"]
    done = subprocess.run(
        [str(program), "--benchmark_format=json", *sizes],
        text=True, stdout=subprocess.PIPE, check=True,
    )
    samples = {}
    for entry in json.loads(done.stdout)["benchmarks"]:
        if entry["run_type"] == "iteration":
            samples.setdefault((entry["run_name"], entry["time_unit"]), []).append(entry["real_time"])
    return [
        {"name": name, "value": median(values), "unit": unit, "spread": mad(values), "against": None}
        for (name, unit), values in samples.items()
    ]


def module_of(name):
    """The module of the benchmark `name`; None: it is a C++ program."""
    script = HERE / f"{name}_bench.py"
    if not script.exists():
        return None
    spec = importlib.util.spec_from_file_location(f"{name}_bench", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name, quick, **options):
    """Returns (rows, bars, left_out) of the benchmark `name`."""
    module = module_of(name)
    if module is None:
        return run_google_benchmark(BUILD / "bench" / f"{name}_bench", quick), [], []
    rows, bars, *left_out = module.run(quick, **options)
    return rows, bars, left_out[0] if left_out else []


def show(rows, bars, left_out, tables=None):
    shown = [] if tables else rows
    width = max(len(entry["name"]) for entry in [*shown, *bars, {"name": "name"}])
    values = {row["name"]: row["value"] for row in rows}
    if tables:
        print(tables(rows))
    for row in shown:
        against = ""
        if row["against"]:
            ratio = row["value"] / values[row["against"]]
            against = f"  {ratio:.3g} times {row['against']}"
        print(f"{row['name']:<{width}} {row['value']:>12.4g} +- {row['spread']:<9.2g} {row['unit']}{against}")
    for bar in bars:
        value = "not measured" if bar["value"] is None else f"{bar['value']:.4g}"
        print(f"{bar['name']:<{width}} {value:>12}    bar {bar['bar']}: holds {bar['holds']}")
    for name, why in left_out:
        print(f"not measured: {name}: {why}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", help="without it: list the benchmarks")
    parser.add_argument("--json", metavar="FILE", help="write the result there")
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it works")
    named = next((a for a in sys.argv[1:] if not a.startswith("-")), None)
    module = module_of(named) if named else None
    if hasattr(module, "options"):
        module.options(parser.add_argument_group(f"options of {named}"))
    args = parser.parse_args()
    if args.name is None:
        print("\n".join(names()))
        return 0
    if args.name not in names():
        print(f"no benchmark {args.name}; there are: {', '.join(names())}", file=sys.stderr)
        return 2
    kind = build_type()
    if kind == "Debug":
        print("build/release is a debug build; its times mean nothing", file=sys.stderr)
        return 2
    options = {k: v for k, v in vars(args).items() if k not in ("name", "json", "quick")}
    rows, bars, left_out = run(args.name, args.quick, **options)
    show(rows, bars, left_out, getattr(module_of(args.name), "tables", None))
    if args.json:
        result = {
            "bench": args.name, "commit": commit(), "machine": machine(), "build_type": kind,
            "rows": rows, "bars": bars,
            "left_out": [{"name": name, "why": why} for name, why in left_out],
        }
        pathlib.Path(args.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
