# SPDX-License-Identifier: Apache-2.0
# choose.sh: takes the CA and the first tokens that the cluster has, whose Secrets are in /ca and /admin; where it has
# none, the new ones in /scratch/new. What it takes is in /scratch/cluster.
set -eu
umask 077
mkdir -p /scratch/cluster
if [ -s /ca/ca.key ]; then
  cat /ca/ca.pem >/scratch/cluster/ca.pem
  cat /ca/ca.key >/scratch/cluster/ca.key
  echo "choose: this cluster has a CA, which stays"
else
  cp /scratch/new/ca.pem /scratch/new/ca.key /scratch/cluster
  echo "choose: a new CA"
fi
if [ -s /admin/fairway.db ]; then
  cat /admin/fairway.db >/scratch/cluster/fairway.db
  cat /admin/admin.token >/scratch/cluster/admin.token
  cat /admin/viewer.token >/scratch/cluster/viewer.token
else
  cp /scratch/new/data/fairway.db /scratch/new/admin.token /scratch/new/viewer.token /scratch/cluster
  echo "choose: new tokens of an admin and a viewer"
fi
