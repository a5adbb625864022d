#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fetch_plugin.sh REQUIREMENTS FOLDER: fetches the CUDA plugin of that file, and the parts of the
# compiler that it opens, as pip installs them. They are for tests only: none of it is shipped. Does
# nothing if they are there.
set -eu
requirements=$1
folder=$2
python=$(dirname "$(readlink -f "$0")")/../../.venv/bin/python
stamp=$(sha256sum <"$requirements")
[ "$(cat "$folder/fairway-stamp" 2>/dev/null)" = "$stamp" ] && exit 0
echo "-- fetching the CUDA plugin into $folder"
rm -rf "$folder"
# Always the same wheels, whatever this machine's Python is: none of their Python code is run.
"$python" -m pip install -q --disable-pip-version-check --no-compile --no-deps \
  --only-binary=:all: --python-version 3.12 --platform manylinux_2_27_x86_64 \
  --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 \
  --platform manylinux2010_x86_64 --platform manylinux_2_12_x86_64 \
  --require-hashes -r "$requirements" --target "$folder"
echo "$stamp" >"$folder/fairway-stamp"
