#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# source_files.sh SUFFIX...: the project's files with these suffixes; new ones too, ignored ones not.
cd "$(dirname "$0")/../.." || exit 1
for suffix in "$@"; do
  if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -co --exclude-standard -- "*.$suffix" | while read -r file; do
      if [ -f "$file" ]; then echo "$file"; fi
    done
  else
    find . \( -name .git -o -name build -o -name '.venv' -o -name .deps \) -prune -o \
      -name "*.$suffix" -type f -print | sed 's|^\./||'
  fi
done | sort -u
