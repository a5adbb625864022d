# SPDX-License-Identifier: Apache-2.0
"""Prints the folder of the wheel's SDK: cmake -DCMAKE_PREFIX_PATH=$(python -m fairway.sdk) ..."""

import sys

from _fairway_command import Missing, prefix

__all__ = ["Missing", "prefix"]

if __name__ == "__main__":
    try:
        print(prefix())
    except Missing as error:
        sys.exit(f"fairway.sdk: {error}")
