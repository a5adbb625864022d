# SPDX-License-Identifier: Apache-2.0
# roll.sh: one island after the other, those of whose pods some are not of this revision of the release: drains it, deletes the pods, waits
# for new ones to be ready, and lets sessions in again. ISLANDS has a line for each: island, revision, start of the pods' names, their number.
# RELEASE; DRAIN_SECONDS (0: no drain); AT_LIMIT (stop or delete). It needs `kubectl` and `fairway`, and no other program.
set -eu
cordoned= child=

# As a command of its own, so that a signal is heard at once.
run() {
  "$@" &
  child=$!
  wait "$child" || { code=$?; child=; return "$code"; }
  child=
}
fail() {  # CODE TEXT
  echo "roll: $2" >&2
  exit "$1"
}
# However this ends, an island that it cordoned takes sessions again.
leave() {
  if [ -n "$child" ]; then kill "$child" 2>/dev/null || true; fi
  if [ -n "$cordoned" ]; then fairway uncordon "$cordoned" || echo "roll: $cordoned stays cordoned: \`fairway uncordon $cordoned\` lets sessions in" >&2; fi
  cordoned=
}
trap leave EXIT
trap 'exit 143' TERM INT

# What `fairway get islands` has behind an island's name; nothing: the controller does not know it.
state_of() {  # ISLAND
  echo "$listing" | while read -r name rest; do
    if [ "$name" = "$1" ]; then echo "$rest"; fi
  done
}

drain() {  # ISLAND
  listing=$(fairway get islands) || fail 1 "cannot ask the controller what to drain. Upgrade with rollDrain.limitSeconds=0 to delete pods without a drain"
  case $(state_of "$1") in
    '') echo "roll: the controller knows no worker of $1: there is nothing to drain" && return ;;
    *cordoned* | *drained*) echo "roll: $1 was cordoned before, and stays so" ;;
    *) cordoned=$1 ;;
  esac
  if run fairway drain "$1" --timeout "${DRAIN_SECONDS}s"; then return; fi
  if [ "$AT_LIMIT" != delete ]; then
    fail 3 "$1 is not drained (rollDrain.limitSeconds=$DRAIN_SECONDS): no pod of it was deleted, nor of the islands behind it. End those sessions, then upgrade again; rollDrain.atLimit=delete would not wait longer"
  fi
  echo "roll: $1 is not drained (rollDrain.limitSeconds=$DRAIN_SECONDS), and its pods are deleted all the same: rollDrain.atLimit=delete"
}

while read -r island revision start workers <&3; do
  pods= number=0
  while [ "$number" -lt "$workers" ]; do
    pods="$pods pod/$start-$number" number=$((number + 1))
  done
  old=$(kubectl get pods --output=name \
    --selector="app.kubernetes.io/instance=$RELEASE,app.kubernetes.io/component=worker,fairway/island=$island,fairway/revision!=$revision")
  if [ -n "$old" ]; then
    echo "roll: $island has pods of another revision:" $old
    if [ "$DRAIN_SECONDS" -gt 0 ]; then drain "$island"; fi
    run kubectl delete $old
  fi
  run kubectl wait --for=create --timeout=300s $pods
  run kubectl wait --for=condition=Ready --timeout=600s $pods
  if [ -n "$cordoned" ]; then run fairway uncordon "$cordoned"; fi
  cordoned=
done 3<<END
$ISLANDS
END
