#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh: the programs of a Kubernetes cluster and kubectl in .deps/kubernetes, built from Go modules (tests/kubernetes/controlplane),
# unless they are there. What Go downloads and compiles for them is removed.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
source tests/chart/go.sh
out=$PWD/.deps/kubernetes sources=tests/kubernetes/controlplane
stamp=$(cat tests/chart/go.sh tests/kubernetes/build.sh "$sources"/* | sha256sum)
if [ "$(cat "$out/stamp" 2>/dev/null)" = "$stamp" ] && "$out/kubectl" version --client >/dev/null; then exit; fi
need_go "$out/work"
release=$(sed -n 's,^\tk8s.io/kubernetes v,,p' "$sources/go.mod")
echo "building Kubernetes $release in .deps/kubernetes: minutes"
rm -rf "$out"
mkdir -p "$out/work"
IFS=. read -r major minor _ <<<"$release"
version=k8s.io/component-base/version
build=(go build -C "$sources" -mod=readonly -modcacherw -trimpath -ldflags
  "-s -w -X $version.gitVersion=v$release -X $version.gitMajor=$major -X $version.gitMinor=$minor")
"${build[@]}" -o "$out/fairway-kubernetes" .
"${build[@]}" -o "$out/kubectl" k8s.io/kubernetes/cmd/kubectl
rm -rf "$out/work"
echo "$stamp" >"$out/stamp"
