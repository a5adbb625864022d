# SPDX-License-Identifier: Apache-2.0
"""What every measured client speaks with dispatch_bench.py over its standard streams.

It says "ready STYLE,STYLE...", or "error TEXT". Then for each line, a style, it says "STEPS SECONDS" of
some steps in that style, or "error TEXT". The end of the input ends it.
"""

import os
import sys
import time

_SECONDS = 0.4  # that a measurement takes, about


def lines():
    """The styles asked for, and the stream for the answers; whatever else is printed goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return (line.strip() for line in sys.stdin), answers


def calls_for(run, longest=_SECONDS):
    """How many calls take about that long."""
    run(1)  # what comes with the first call does not count
    calls = 1
    while True:
        began = time.perf_counter()
        run(calls)
        took = time.perf_counter() - began
        if took > longest / 8:
            return max(1, int(calls * longest / took))
        calls *= 2


def serve(styles, scale=1, streams=None):
    """`styles`: {name: (steps of one call, run(calls))}; `run` returns when all are done.

    `streams`: of lines(), from a client that had to call it before something could be printed.
    """
    asked, answers = streams or lines()
    print("ready", ",".join(styles), file=answers)
    counts = {}
    for style in asked:
        steps, run = styles[style]
        try:
            if style not in counts:
                counts[style] = calls_for(run, _SECONDS / scale)
            began = time.perf_counter()
            run(counts[style])
            took = time.perf_counter() - began
        except Exception as error:  # told to the bench
            print("error", " ".join(f"{type(error).__name__}: {error}".split()), file=answers)
            continue
        print(counts[style] * steps, f"{took:.9f}", file=answers)
