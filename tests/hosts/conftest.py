# SPDX-License-Identifier: Apache-2.0
"""What tests/integration leaves out of `fairway cluster`, with its hosts."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("integration", "e2e", "support")]
