# SPDX-License-Identifier: Apache-2.0
# manifests.sh: writes the Secrets of the cluster to /work/once and /work/manifests, for kubectl. FULLNAME, NAMESPACE, RELEASE, ADMIN_SECRET,
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
mkdir -p /work/once /work/manifests
{
  secret "$FULLNAME-ca" true
  data ca.pem /work/cluster/ca.pem
  data ca.key /work/cluster/ca.key
} >/work/once/ca.yaml
{
  secret "$ADMIN_SECRET" true
  data fairway.db /work/cluster/fairway.db
  data admin.token /work/cluster/admin.token
  data viewer.token /work/cluster/viewer.token
} >/work/once/admin.yaml
{
  secret "$FULLNAME-viewer" true
  data token /work/cluster/viewer.token
} >/work/once/viewer.yaml
{
  secret "$CONTROLLER_SECRET" false
  data ca.pem /work/out/controller/ca.pem
  data controller.pem /work/out/controller/controller.pem
  data controller.key /work/out/controller/controller.key
  if [ "$WORKERS_RENEW" = true ]; then data ca.key /work/cluster/ca.key; fi
} >/work/manifests/controller.yaml
printf '%s\n' "$ISLANDS" | while read -r island workers; do
  {
    secret "$ISLAND_SECRET_PREFIX$island" false
    data ca.pem /work/cluster/ca.pem
    number=0
    while [ "$number" -lt "$workers" ]; do
      worker=$FULLNAME-$island-$number
      data "$worker.pem" "/work/out/$worker/worker.pem"
      data "$worker.key" "/work/out/$worker/worker.key"
      number=$((number + 1))
    done
  } >"/work/manifests/island-$island.yaml"
done
ls /work/once /work/manifests
