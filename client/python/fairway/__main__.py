# SPDX-License-Identifier: Apache-2.0
"""`python -m fairway` is the command `fairway`."""

from _fairway_command import main

if __name__ == "__main__":
    main()
