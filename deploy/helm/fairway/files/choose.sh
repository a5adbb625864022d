# SPDX-License-Identifier: Apache-2.0
# choose.sh: takes the CA and the first tokens that the cluster has, whose Secrets are in /ca and /admin; where it has
# none, the new ones in /work/new. What it takes is in /work/cluster.
set -eu
umask 077
mkdir -p /work/cluster
if [ -s /ca/ca.key ]; then
  cat /ca/ca.pem >/work/cluster/ca.pem
  cat /ca/ca.key >/work/cluster/ca.key
  echo "choose: this cluster has a CA, which stays"
else
  cp /work/new/ca.pem /work/new/ca.key /work/cluster
  echo "choose: a new CA"
fi
if [ -s /admin/fairway.db ]; then
  cat /admin/fairway.db >/work/cluster/fairway.db
  cat /admin/admin.token >/work/cluster/admin.token
  cat /admin/viewer.token >/work/cluster/viewer.token
else
  cp /work/new/data/fairway.db /work/new/admin.token /work/new/viewer.token /work/cluster
  echo "choose: new tokens of an admin and a viewer"
fi
