# SPDX-License-Identifier: Apache-2.0
# Part of ./dev, the phase upgrade: builds the programs of the commit in tests/upgrade/previous, in build/previous, and runs
# them with the present ones.
build_previous() {
  local commit tree=$ROOT/build/previous
  commit=$(cat tests/upgrade/previous) || return 1
  if [ "$(cat "$tree/fairway-commit" 2>/dev/null)" != "$commit" ]; then
    git cat-file -e "$commit^{commit}" || { echo "the history has not got $commit (tests/upgrade/previous): git fetch --unshallow"; return 1; }
    say "laying out $commit in build/previous"
    rm -rf "$tree" && mkdir -p "$tree" && git archive "$commit" | tar -x -C "$tree" && ln -s "$ROOT/.deps" "$tree/.deps" &&
      echo "$commit" >"$tree/fairway-commit" || return 1
  fi
  (cd "$tree" && ROOT=$tree compile release "${DAEMONS[@]}")
}

phase build-daemons compile release "${DAEMONS[@]}" || true
phase build-previous build_previous && phase set-up-sshd need_sshd &&
  FAIRWAY_PREVIOUS_BIN=$ROOT/build/previous/build/release/bin phase upgrade run_pytest upgrade tests/upgrade || true
