#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build_helm.sh: helm of the pinned version as .deps/helm/helm, built from its Go module, unless it is there. What Go downloads and
# compiles for it, 1.1 GB, is removed.
set -euo pipefail
HELM=v3.22.0
cd "$(dirname "$(readlink -f "$0")")/../.."
helm=$PWD/.deps/helm
if [ "$(cat "$helm/version" 2>/dev/null)" = "$HELM" ] && "$helm/helm" version >/dev/null; then exit; fi
source tests/chart/go.sh
need_go "$helm/work"
echo "building helm $HELM in .deps/helm"
rm -rf "$helm"
mkdir -p "$helm/work"
go install -modcacherw -trimpath -ldflags "-s -w" "helm.sh/helm/v3/cmd/helm@$HELM"
mv "$helm/work/helm" "$helm/helm"
rm -rf "$helm/work"
echo "$HELM" >"$helm/version"
