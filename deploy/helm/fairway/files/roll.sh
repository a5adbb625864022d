# SPDX-License-Identifier: Apache-2.0
# roll.sh: one island after the other, those of whose pods some are not of this revision of the release: drains it, deletes the pods, waits
# for new ones to be ready, and lets sessions in again. ISLANDS has a line for each: island, revision, start of the pods' names, their number.
# RELEASE; DRAIN_SECONDS (0: no drain); AT_LIMIT (stop or delete). It needs `kubectl`, `fairway` and `busybox`, and no other program.
set -eu
cordoned= child=
# The exit code of `fairway drain` at its timeout. Other failures do not say whether sessions hold the island.
NOT_DRAINED=4

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
# Whole seconds of a clock that nobody sets.
now() {
  read -r seconds rest </proc/uptime
  echo "${seconds%.*}"
}

# The controller may be away for a moment. Shorter than the grace period of this pod.
uncordon() {
  last=$(($(now) + 20))
  until fairway uncordon "$cordoned"; do
    if [ "$(now)" -ge "$last" ]; then
      echo "roll: $cordoned stays cordoned: \`fairway uncordon $cordoned\` lets sessions in" >&2
      return 1
    fi
    busybox sleep 1
  done
  cordoned=
}
# However this ends, an island that it cordoned takes sessions again.
leave() {
  if [ -n "$child" ]; then kill "$child" 2>/dev/null || true; fi
  if [ -n "$cordoned" ]; then uncordon || true; fi
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
  last=$(($(now) + DRAIN_SECONDS)) left=$DRAIN_SECONDS
  while [ "$left" -gt 0 ]; do
    code=0
    run fairway drain "$1" --timeout "${left}s" || code=$?
    case $code in
      0) return ;;
      "$NOT_DRAINED") at_limit "$1" && return ;;
    esac
    echo "roll: the drain of $1 ended with $code, which does not say whether sessions hold it: it begins anew" >&2
    run busybox sleep 2
    left=$((last - $(now)))
  done
  fail 1 "whether sessions hold $1 is not known at the limit (rollDrain.limitSeconds=$DRAIN_SECONDS): no pod of it was deleted, nor of the islands behind it. Above is why the controller could not be asked"
}

at_limit() {  # ISLAND
  if [ "$AT_LIMIT" != delete ]; then
    fail 3 "$1 is not drained (rollDrain.limitSeconds=$DRAIN_SECONDS): no pod of it was deleted, nor of the islands behind it. End those sessions, then upgrade again; rollDrain.atLimit=delete would not wait longer"
  fi
  echo "roll: $1 is not drained (rollDrain.limitSeconds=$DRAIN_SECONDS), and its pods are deleted all the same: rollDrain.atLimit=delete"
}

# Those of $pods that are of another revision. Other pods of the island are of a size before, and their StatefulSet removes them.
old_pods() {  # ISLAND REVISION
  listed=$(kubectl get pods --output=name \
    --selector="app.kubernetes.io/instance=$RELEASE,app.kubernetes.io/component=worker,fairway/island=$1,fairway/revision!=$2") || fail 1 "cannot ask the API server which pods of $1 are old: no pod of it was deleted, nor of the islands behind it. Above is why; upgrade again when it answers"
  for pod in $listed; do
    case " $pods " in *" $pod "*) echo "$pod" ;; esac
  done
}

while read -r island revision start workers <&3; do
  pods= number=0
  while [ "$number" -lt "$workers" ]; do
    pods="$pods pod/$start-$number" number=$((number + 1))
  done
  old=$(old_pods "$island" "$revision")
  if [ -n "$old" ]; then
    echo "roll: $island has pods of another revision:" $old
    if [ "$DRAIN_SECONDS" -gt 0 ]; then
      drain "$island"
      # Meanwhile pods may have been replaced, by a drain of their node.
      old=$(old_pods "$island" "$revision")
    fi
    if [ -n "$old" ]; then run kubectl delete --ignore-not-found $old; fi
  fi
  run kubectl wait --for=create --timeout=300s $pods
  run kubectl wait --for=condition=Ready --timeout=600s $pods
  if [ -n "$cordoned" ]; then uncordon; fi
done 3<<END
$ISLANDS
END
