#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fetch_ffi_headers.sh FOLDER: puts the headers of XLA's FFI, version 0.2, into FOLDER. They are in
# no package of their own: jaxlib 0.8.2's wheel (80 MB) has them; later wheels have 0.3, which the
# plugin refuses. Does nothing when they are there.
set -eu
folder=$1
root=$(dirname "$(dirname "$(readlink -f "$0")")")
[ -f "$folder/xla/ffi/api/c_api.h" ] && exit 0
python=$root/.venv/bin/python
[ -x "$python" ] || python=python3
echo "-- fetching the XLA FFI headers out of jaxlib 0.8.2's wheel into $folder"
mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$(dirname "$folder")/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
cat >"$work/requirements.txt" <<'END'
jaxlib==0.8.2 --hash=sha256:ccf77da917a20935247c990691decfcbdd06c25ef0ac94d914a04aadb22f714c
END
# Always the same wheel, whatever this machine and its Python are: only headers are taken.
"$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: \
  --implementation cp --python-version 3.11 --abi cp311 --platform manylinux_2_27_x86_64 \
  --require-hashes -r "$work/requirements.txt" -d "$work/wheel"
"$python" - "$work" <<'END'
import glob, pathlib, sys, zipfile
work = pathlib.Path(sys.argv[1])
prefix = "jaxlib/include/"
with zipfile.ZipFile(glob.glob(str(work / "wheel" / "*.whl"))[0]) as wheel:
    for name in wheel.namelist():
        if name.startswith(prefix + "xla/ffi/") and name.endswith(".h"):
            target = work / "include" / name[len(prefix):]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(wheel.read(name))
END
rm -rf "$folder"
mv "$work/include" "$folder"
