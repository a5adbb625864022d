# SPDX-License-Identifier: Apache-2.0
# manifests.sh: writes the Secrets of the cluster to /scratch/once and /scratch/manifests, for kubectl. FULLNAME, NAMESPACE, RELEASE, ADMIN_SECRET,
# CONTROLLER_SECRET, ISLAND_SECRET_PREFIX, WORKERS_RENEW and ISLANDS (a line each: island, number of workers) say which. What
# is made once is immutable: nothing can replace it unseen.
set -eu
umask 077
secret() {  # NAME IMMUTABLE, then a data line for each file
  printf 'apiVersion: v1\nkind: Secret\ntype: Opaque\nimmutable: %s\nmetadata:\n  name: %s\n  namespace: %s\n' "$2" "$1" "$NAMESPACE"
  printf '  labels:\n    app.kubernetes.io/name: fairway\n    app.kubernetes.io/instance: %s\ndata:\n' "$RELEASE"
}
data() {  # KEY FILE
  printf '  %s: %s\n' "$1" "$(base64 <"$2" | tr -d '\n')"
}
mkdir -p /scratch/once /scratch/manifests
{
  secret "$FULLNAME-ca" true
  data ca.pem /scratch/cluster/ca.pem
  data ca.key /scratch/cluster/ca.key
} >/scratch/once/ca.yaml
{
  secret "$ADMIN_SECRET" true
  data fairway.db /scratch/cluster/fairway.db
  data admin.token /scratch/cluster/admin.token
  data viewer.token /scratch/cluster/viewer.token
} >/scratch/once/admin.yaml
{
  secret "$FULLNAME-viewer" true
  data token /scratch/cluster/viewer.token
} >/scratch/once/viewer.yaml
{
  secret "$CONTROLLER_SECRET" false
  data ca.pem /scratch/out/controller/ca.pem
  data controller.pem /scratch/out/controller/controller.pem
  data controller.key /scratch/out/controller/controller.key
  if [ "$WORKERS_RENEW" = true ]; then data ca.key /scratch/cluster/ca.key; fi
} >/scratch/manifests/controller.yaml
printf '%s\n' "$ISLANDS" | while read -r island workers; do
  {
    secret "$ISLAND_SECRET_PREFIX$island" false
    data ca.pem /scratch/cluster/ca.pem
    number=0
    while [ "$number" -lt "$workers" ]; do
      worker=$FULLNAME-$island-$number
      data "$worker.pem" "/scratch/out/$worker/worker.pem"
      data "$worker.key" "/scratch/out/$worker/worker.key"
      number=$((number + 1))
    done
  } >"/scratch/manifests/island-$island.yaml"
done
ls /scratch/once /scratch/manifests
