# SPDX-License-Identifier: Apache-2.0
"""Medians, spreads and bars for the benchmarks."""

import statistics


def median(values):
    return float(statistics.median(values))


def mad(values):
    """Median absolute deviation from the median, in the unit of the values."""
    middle = median(values)
    return median([abs(value - middle) for value in values])


def row(name, values, unit, against=None):
    """One row of a result; `values` are repetitions of one measurement."""
    return {"name": name, "value": median(values), "unit": unit, "spread": mad(values),
            "against": against}


def paired(these, those, compare):
    """(median, spread) of compare(this, that) over the rounds in which both were measured."""
    compared = [compare(this, that) for this, that in zip(these, those, strict=True)]
    return median(compared), mad(compared)


def bar(name, measured, at_least=None, at_most=None):
    """One bar; `measured` is (value, spread), or None when nothing was measured."""
    limit = at_least if at_least is not None else at_most
    text = f">= {limit}" if at_least is not None else f"<= {limit}"
    if measured is None:
        return {"name": name, "value": None, "bar": text, "holds": "unknown"}
    value, spread = measured
    margin = value - limit if at_least is not None else limit - value
    holds = "unknown" if abs(margin) < spread else margin >= 0
    return {"name": name, "value": value, "bar": text, "holds": holds}
