# SPDX-License-Identifier: Apache-2.0
"""The protocol between dispatch_bench.py and every measured client, over standard streams.

The client prints "ready STYLE,STYLE...", or "error TEXT". Then for each line, a style, it prints "STEPS
SECONDS" of some steps in that style, or "error TEXT". It ends when its input ends.
"""

import os
import sys
import time

_SECONDS = 0.4  # about the time of one measurement


def lines():
    """Returns the requested styles, and the stream for answers; all other output goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return (line.strip() for line in sys.stdin), answers


def calls_for(run, longest=_SECONDS):
    """Returns how many calls take about _SECONDS."""
    run(1)  # the cost of the first call does not count
    calls = 1
    while True:
        began = time.perf_counter()
        run(calls)
        took = time.perf_counter() - began
        if took > longest / 8:
            return max(1, int(calls * longest / took))
        calls *= 2


def serve(styles, scale=1, streams=None):
    """Serves `styles`: {name: (steps of one call, run(calls))}; `run` returns once all are done.

    `streams` comes from lines(), if the client had to call it before something could be printed.
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
        except Exception as error:  # reported to the bench
            print("error", " ".join(f"{type(error).__name__}: {error}".split()), file=answers)
            continue
        print(counts[style] * steps, f"{took:.9f}", file=answers)
