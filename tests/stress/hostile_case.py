# SPDX-License-Identifier: Apache-2.0
"""What a case of hostile_cases.py and hostile_holdings.py is, and what cases do often."""

from collections import namedtuple

MANY = 1 << 18
CODE = 1 << 30  # the handle of what a case calls; arrays have the lower ones
KIB, MIB = 1 << 10, 1 << 20

# name; what it does; a pattern of all that it says; the function; the cluster's flags; whether the neighbour's steps
# may wait long, because the controller, which all share, is stopped; whether an executor is meant to be lost; whether
# the neighbour's device is on the same island, or on the other one; whether it runs gangs, on the island's last two.
Case = namedtuple("Case", "name what expects run flags stops_all loses_executor same_island gang")
CASES = {}


def case(what, expects, flags=(), stops_all=False, loses_executor=False, same_island=False,
         gang=False):
    def add(function):
        CASES[function.__name__] = Case(
            function.__name__, what, expects, function, tuple(flags), stops_all, loses_executor, same_island, gang)
        return function

    return add


def outcome(answer):
    """The gist of an answer, in a few words."""
    if answer is None:
        return "no answer"
    return f"error {answer.error.code}: {answer.error.text[:160]}" if answer.error.code else "done"


def going(session, array, seconds):
    """Whether what makes the array is still under way after `seconds`."""
    answer = session.call("watch", seconds, arrays=[array])
    return "under way" if answer is None else outcome(answer)


def numbers(count, first=1000):
    return range(first, first + count)
