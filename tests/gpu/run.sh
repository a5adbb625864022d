#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Shows what only a machine with a GPU can show.
#
#   run.sh [--plugin FILE] [--out FILE] [--quick] [STEP...]
#       runs the steps (facts probe target tuned smoke conformance faults trap digits busy bench; all by
#       default), each within its time, prints a table and writes all of it to FILE (gpu-results.json),
#       and beside it what programs are compiled for there (gpu-results.target.txtpb). A step that
#       fails stops no other. Ends with 0 when all went well or there is no GPU, with 1 when a step
#       failed.
#   run.sh --pack WHEEL ARCHIVE
#       makes ARCHIVE (.tar.xz) for such a machine, of the wheel that `./dev package wheel` makes on
#       Debian 12: the binaries, their libraries, the Python package and these steps. There:
#       tar xf ARCHIVE && fairway-gpu/tests/gpu/run.sh
#
# The machine brings Python 3.11 or newer with jax, jaxlib and a CUDA plugin (jax-cuda13-pjrt), and
# glibc 2.36. FAIRWAY_PYTHON names another python3.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
root=$(readlink -f "$here/../..")
python=${FAIRWAY_PYTHON:-}
if [ -z "$python" ] && [ -x "$root/.venv/bin/python" ]; then python=$root/.venv/bin/python; fi
python=${python:-python3}

die() { printf 'run.sh: %s\n' "$*" >&2; exit 2; }

pack() {
  local wheel=$1 archive=$2 work folder
  [ -f "$wheel" ] || die "no wheel $wheel; ./dev package wheel makes one in build/package"
  case $archive in *.tar.xz) ;; *) die "$archive: expected a name that ends with .tar.xz" ;; esac
  work=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" EXIT
  folder=$work/fairway-gpu
  mkdir -p "$folder"/{site,examples,tests/gpu,tests/e2e,tests/versions}
  "$python" -m zipfile -e "$wheel" "$folder/site"
  chmod 755 "$folder"/site/fairway/_native/bin/*
  cp "$here"/run.sh "$here"/hardware*.py "$folder/tests/gpu"
  cp "$root"/examples/digits_pipeline.py "$folder/examples"
  cp "$root"/tests/e2e/cluster.py "$folder/tests/e2e"
  cp "$root"/tests/versions/smoke.py "$folder/tests/versions"
  # The images of the digits, where this Python has scikit-learn.
  local images
  images=$("$python" -c 'import sys; sys.path.insert(0, sys.argv[1]); import hardware_digits
print(hardware_digits.images() or "")' "$here")
  [ -z "$images" ] || cp "$images" "$folder/tests/gpu"
  # Programs built for tests come along if they exist.
  local built
  for built in tests/runtime_conformance_test bench/null_front_door; do
    if [ -x "$root/build/release/$built" ]; then
      mkdir -p "$folder/$(dirname "build/release/$built")"
      strip -o "$folder/build/release/$built" "$root/build/release/$built"
    fi
  done
  git -C "$root" rev-parse HEAD >"$folder/COMMIT" 2>/dev/null || echo unknown >"$folder/COMMIT"
  tar -C "$work" -cJf "$archive" fairway-gpu
  printf '%s: %s bytes\n' "$archive" "$(stat -c %s "$archive")"
}

if [ "${1-}" = --pack ]; then
  [ $# = 3 ] || die "--pack takes WHEEL and ARCHIVE"
  pack "$2" "$3"
  exit
fi

if [ -d "$root/site" ]; then
  export PYTHONPATH=$root/site${PYTHONPATH:+:$PYTHONPATH} FAIRWAY_BIN=$root/site/fairway/_native/bin
fi
exec "$python" "$here/hardware.py" "$@"
