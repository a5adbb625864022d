#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fetch_crds.sh: the CRDs of LeaderWorkerSet and JobSet as .deps/crds/KIND.yaml, out of their Go modules of the pinned versions, unless
# they are there. Go compares the modules with its public sums; what it downloads besides, 25 MB, is removed.
set -euo pipefail
LWS=v0.7.0
JOBSET=v0.10.1
cd "$(dirname "$(readlink -f "$0")")/../.."
crds=$PWD/.deps/crds
if [ "$(cat "$crds/versions" 2>/dev/null)" = "$LWS $JOBSET" ]; then exit; fi
source tests/chart/go.sh
need_go "$crds/go"
echo "fetching the CRDs of LWS $LWS and JobSet $JOBSET to .deps/crds"
rm -rf "$crds"
mkdir -p "$crds/go"
# The folder has no go.mod, so nothing but these two is downloaded.
(cd "$crds/go" && go mod download -modcacherw "sigs.k8s.io/lws@$LWS" "sigs.k8s.io/jobset@$JOBSET")
modules=$crds/go/path/pkg/mod/sigs.k8s.io
cp "$modules/lws@$LWS/config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml" "$crds/LeaderWorkerSet.yaml"
cp "$modules/jobset@$JOBSET/config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml" "$crds/JobSet.yaml"
chmod 644 "$crds"/*.yaml
rm -rf "$crds/go"
echo "$LWS $JOBSET" >"$crds/versions"
