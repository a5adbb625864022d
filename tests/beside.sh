# SPDX-License-Identifier: Apache-2.0
# Part of ./dev: the sanitizers' phases, in a session of their own beside phases that leave a core idle (docs/testing.md).

BESIDE_PHASES=(asan tsan)
HALF_IDLE_PHASES=(python gpu versions ecosystem wheel)
BESIDE_RESULTS=

# Makes this session take only what others leave of the processors. Clusters that are started detached are sessions too.
# With autogroup, Linux shares a processor between sessions first, and each session has a nice value of its own. Without
# it, the nice values of processes count.
yield_processors() {
  renice -n 19 -p $$ >/dev/null || return 1
  if [ "$(cat /proc/sys/kernel/sched_autogroup_enabled 2>/dev/null || echo 0)" = 1 ]; then
    { echo 19 >/proc/self/autogroup; } 2>/dev/null
  fi
}

# signal_session SIGNAL: to all other processes of the session that $$ began. Ninja and others have process groups of
# their own, so a signal to the group is not enough.
signal_session() {
  local stat line fields
  for stat in /proc/[0-9]*/stat; do
    { read -r line <"$stat"; } 2>/dev/null || continue
    read -ra fields <<<"${line##*) }"  # state, parent, process group, session
    if [ "${fields[3]}" = $$ ] && [ "${line%% *}" != "$BASHPID" ]; then
      kill "-$1" "${line%% *}" 2>/dev/null || true
    fi
  done
}

# Ends this session when its starter, which has the other end of file 3, ends before it.
end_with_starter() {
  while read -r _ <&3; do :; done
  signal_session TERM
  sleep 5
  signal_session KILL
}

# What start_beside starts. File 3 ends with its starter. To file 4 it says "ready" if the phases can run beside others,
# then their lines of the summary, then the totals.
cmd_beside() {
  local name watcher
  exec 3<&0 4>&1 </dev/null >"$LOGS/beside.log" 2>&1
  yield_processors || return 0
  end_with_starter 4>&- & watcher=$!
  disown
  echo ready >&4
  for name in "$@"; do "phase_$name" 4>&-; done
  printf '%s\n' "${SUMMARY[@]}" "totals $PASSED $FAILED" >&4
  kill "$watcher"
  while read -r _ <&3; do :; done  # its starter's `times` would count it in the phase in which it ended
}

# start_beside PHASE...: fails if they must run alone. The other end of their file 3 is in this process alone, since bash
# closes it in its children. So however this process ends, they end.
start_beside() {
  local line=
  need_packages "${APT_CLANG[@]}" || return 1  # here, since two installations at a time are refused
  # Bash has what it runs beside itself ignore interrupts; tests need the signal.
  coproc BESIDE { exec env --default-signal=INT,QUIT setsid "$ROOT/dev" beside "$@"; }
  exec {BESIDE_RESULTS}<&"${BESIDE[0]}"
  read -r line <&"$BESIDE_RESULTS" || true
  if [ "$line" != ready ]; then
    BESIDE_RESULTS=
    return 1
  fi
  say "beside the next phases: $*; their output comes behind them"
}

# again_alone NAME PRESET: the tests that failed in the phase NAME beside others run once more, alone. Beside others they
# get no processor for seconds, so what the code limits in real time (5 s for a handshake) may end there. Those that pass
# now have passed. What a sanitizer reports counts the first time.
again_alone() {
  local name=$1 preset=$2 bad
  bad=$(grep -c "^FAILED $name: " "$LOGS/failures") || return 0
  if ! [ -f "$LOGS/$name.xml" ] || grep -qE 'ERROR: [A-Za-z]+Sanitizer|WARNING: ThreadSanitizer|runtime error:' "$LOGS/$name.log"; then
    return 0
  fi
  say "$bad failed in $name beside others: once more, alone"
  (sanitizer_options && run_ctest "$name-alone" "$preset" --rerun-failed -j 1) || return 0
  SUMMARY+=("$name: $bad failed beside others, and passed alone")
  PASSED=$((PASSED + bad)) FAILED=$((FAILED - bad))
  awk -v its="FAILED $name: " 'index($0, its) == 1 { of_it = 1; next } /^ / && of_it { next } { of_it = 0; print }' \
    "$LOGS/failures" >"$LOGS/others" && mv "$LOGS/others" "$LOGS/failures"
}

# Waits for what start_beside started, prints its output, and adds its lines and totals to ours.
finish_beside() {
  local line name good=0 bad=
  [ -n "$BESIDE_RESULTS" ] || return 0
  say "waiting for the phases beside"
  while read -r line <&"$BESIDE_RESULTS"; do
    if [[ $line = totals\ * ]]; then
      read -r _ good bad <<<"$line"
      break
    fi
    SUMMARY+=("$line, beside others")
  done
  cat "$LOGS/beside.log"
  if [ -z "$bad" ]; then
    SUMMARY+=("the phases beside ended before they had told their results")
    bad=1
  fi
  PASSED=$((PASSED + good)) FAILED=$((FAILED + bad)) BESIDE_RESULTS=
  for name in "${BESIDE_PHASES[@]}"; do again_alone "ctest-$name" "$name"; done
}

# run_phases PHASE...: one after the other, but for those beside, which begin with the first that leaves a core idle.
run_phases() {
  local name later beside=() tried=
  while [ $# -gt 0 ]; do
    name=$1
    shift
    if [ -z "$tried" ] && [[ " ${HALF_IDLE_PHASES[*]} " = *" $name "* ]]; then
      tried=1
      for later in "$@"; do
        if [[ " ${BESIDE_PHASES[*]} " = *" $later "* ]]; then beside+=("$later"); fi
      done
      if [ ${#beside[@]} -gt 0 ] && ! start_beside "${beside[@]}"; then beside=(); fi
    fi
    if [[ " ${beside[*]} " != *" $name "* ]]; then "phase_$name"; fi
  done
  finish_beside
}
