#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel of this commit in two folders without a compiler cache, and compares the bytes.
# `./dev test double_build` calls it.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
commit=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH FAIRWAY_NO_CCACHE=1
made=()
for folder in build/double/one build/double/a-second-folder; do
  rm -rf "$folder"
  mkdir -p "$folder"
  git archive "$commit" | tar -x -C "$folder"
  mkdir "$folder/.deps" && cp -r .deps/jaxlib-0.8.2 "$folder/.deps"
  "$folder/dev" package wheel
  made+=("$folder"/build/package/*.whl)
done
cmp "${made[@]}"
