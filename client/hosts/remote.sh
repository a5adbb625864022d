# SPDX-License-Identifier: Apache-2.0
# What `fairway cluster` does on a host: it is sent to `sh -s` there, between lines that set `folder` and what else a
# function below takes, and the call of that function. A function says what it found as NAME=VALUE lines on standard
# output. What goes wrong is the last line on standard error, with an exit code that is not 0. Each function looks
# whether its work is done already, and leaves nothing half done behind: what it makes has a temporary name first.
#
# FOLDER/releases/RELEASE   the tarball, unpacked; its name has the version and the first digits of its SHA-256
# FOLDER/plugins/DIGITS     the plugin, by the same digits
# FOLDER/current, previous  link to the release that daemons are started from, and the one before
# FOLDER/etc/NAME.toml      settings of a daemon, with which it was started the last time
# FOLDER/run, FOLDER/log    process ids and logs, where there is no systemd
# FOLDER/controller         what `fairway init` made; FOLDER/workers/NAME: what `fairway join` made
set -eu
umask 022
# Not the home of root, which its daemons' users may not enter: `find` wants to come back to where it began.
cd /
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

die() { printf '%s\n' "$*" >&2; exit 1; }
say() { printf '%s=%s\n' "$1" "$2"; }

is_root() { [ "$(id -u)" = 0 ]; }
# With systemd only root can have services start with the host.
has_systemd() { is_root && [ -d /run/systemd/system ]; }

# Daemons and all that touches their keys run as users who are not root: executors run clients' code. The controller
# has a user of its own, so that such code does not read the CA's key on a host that both share.
user_of() {
  case $1 in
    controller) stat -c %U "$folder/controller" 2>/dev/null || echo fairway-controller ;;
    *) echo fairway ;;
  esac
}
# What begins a command that the user of daemon $1 runs.
as_of() {
  local user
  is_root || return 0
  user=$(user_of "$1")
  echo "setpriv --reuid $user --regid $user --init-groups --no-new-privs env HOME=/nonexistent"
}
# Runs what follows $1 as the user of daemon $1, who can stop it, or give it files that never end: then it is ended.
run_as() {
  local daemon=$1
  shift
  # shellcheck disable=SC2046
  timeout -k 1 60 $(as_of "$daemon") "$@"
}
make_user() {
  if is_root && ! getent passwd "$1" >/dev/null; then
    useradd --system --user-group --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin "$1"
  fi
}

# One at a time changes something; the lock is let go with the script. Nobody else may change what lies there.
lock() {
  [ -O "$folder" ] && [ -z "$(find "$folder" -prune -perm /022)" ] ||
    die "$folder is $(stat -c %U "$folder")'s with mode $(stat -c %a "$folder"), and must be $(id -un)'s alone to write:" \
      "give it that owner and mode 755, or name another folder in the file"
  exec 9>>"$folder/lock"
  flock -w 120 9 || die "another \`fairway cluster\` has been at work on this host for 2 minutes"
}

# A directory for the user $2 alone.
private_directory() {
  mkdir "$1"
  if is_root; then chown "$2:$2" "$1"; fi
  chmod 700 "$1"
}

# The unit of daemon $1. In another folder than root's own its name has digits that follow from the folder: each cluster
# has its own units. One that was made before that was so keeps its name.
unit_of() {
  local place=-
  [ "$folder" = /opt/fairway ] || is_ours "fairway-cluster-$1.service" ||
    place=.$(printf %s "$folder" | sha256sum | cut -c 1-12).
  echo "fairway-cluster$place$1.service"
}
# Whether the unit $1 is of this folder.
is_ours() { grep -qF "ExecStart=$folder/releases/" "/etc/systemd/system/$1" 2>/dev/null; }

# $1, if it is the id of a process that runs a program of ours. Ids are given anew.
if_ours() { case $(readlink "/proc/${1:-0}/exe" 2>/dev/null || true) in "$folder"/releases/*) echo "$1" ;; esac }
pid_of_unit() { if_ours "$(systemctl show --property MainPID --value "$1" 2>/dev/null || true)"; }
# The process id of a daemon that runs, or nothing.
pid_of() {
  if has_systemd; then
    pid_of_unit "$(unit_of "$1")"
  else
    if_ours "$(cat "$folder/run/$1.pid" 2>/dev/null || true)"
  fi
}

# The start of the file $2 of worker $1, read as its user, who can put anything there: neither a pipe nor a link to what
# has no end holds this up.
start_of() {
  [ -f "$2" ] || return 0
  # shellcheck disable=SC2046
  timeout -k 1 5 $(as_of "$1") head -c 65536 "$2" 2>/dev/null || true
}
# The certificate of worker $1, or nothing. Its key may be in the same file. What no certificate has is told as '?', so
# that it has one SHA-256 here and where it is told.
certificate_of() {
  start_of "$1" "$folder/workers/$1/worker.pem" |
    sed -n '/-BEGIN CERTIFICATE-/,/-END CERTIFICATE-/p;/-END CERTIFICATE-/q' | LC_ALL=C tr -c '\n\r -{}~' '?'
}
# Whether daemon $1 has all its files.
is_made() {
  local place=$folder/workers/$1
  if [ "$1" = controller ]; then
    [ -f "$folder/controller/controller.pem" ]
  else
    [ -f "$place/ca.pem" ] && [ -f "$place/worker.pem" ] &&
      { [ -f "$place/worker.key" ] || start_of "$1" "$place/worker.pem" | grep -q -e '-BEGIN.* PRIVATE KEY-'; }
  fi
}
# The seconds that daemon $1 has to end, as it was started; nothing: that is not known.
end_limit() {
  local limit
  if has_systemd; then
    limit=$(sed -n 's/^TimeoutStopSec=//p' "/etc/systemd/system/$(unit_of "$1")" 2>/dev/null || true)
  else
    limit=$(cat "$folder/run/$1.limit" 2>/dev/null || true)
  fi
  case $limit in "" | *[!0-9]*) ;; *) echo "$limit" ;; esac
}

# "releases/0.1.0-abc/bin/fairway-worker" -> "0.1.0-abc"
release_of() {
  local path
  path=$(readlink "/proc/$1/exe" 2>/dev/null || true)
  path=${path#"$folder/releases/"}
  echo "${path%%/*}"
}

probe() {
  local tool place name pid made release settings certificate limit
  case $folder in
    "") if is_root; then folder=/opt/fairway; else folder=$HOME/.local/fairway; fi ;;
    "~/"*) folder=$HOME/${folder#"~/"} ;;
  esac
  say user "$(id -un)"
  say system "$(uname -s)"
  say machine "$(uname -m)"
  for tool in tar gzip dd df flock setsid sha256sum readlink timeout; do
    command -v "$tool" >/dev/null || say lacks "$tool"
  done
  if is_root && ! command -v setpriv >/dev/null; then say lacks setpriv; fi
  folder=$(readlink -m "$folder")
  say folder "$folder"
  # Confined services see no home folders.
  if has_systemd; then case $folder/ in "$HOME"/* | /home/*) say hidden yes ;; esac fi
  place=$folder
  while [ ! -e "$place" ]; do place=$(dirname "$place"); done
  if [ ! -d "$place" ] || [ ! -w "$place" ]; then say unwritable "$place"; fi
  # shellcheck disable=SC2046
  set -- $(df -Pk "$place" | tail -n 1)
  say free_kb "$4"
  if [ -L "$folder/current" ]; then say current "$(basename "$(readlink "$folder/current")")"; fi
  for place in "$folder"/releases/* "$folder"/plugins/*; do
    if [ -d "$place" ]; then say has "${place#"$folder/"}"; fi
  done
  for place in "$folder"/controller "$folder"/workers/*; do
    [ -d "$place" ] || continue
    name=${place##*/}
    made=no release=- settings=-
    if is_made "$name"; then made=yes; fi
    pid=$(pid_of "$name")
    if [ -n "$pid" ]; then release=$(release_of "$pid"); fi
    if [ -f "$folder/etc/$name.toml" ]; then settings=$(sha256sum <"$folder/etc/$name.toml"); fi
    say daemon "$name $made $release ${settings%% *}"
    limit=$(end_limit "$name")
    if [ -n "$limit" ]; then say limit "$name $limit"; fi
    [ "$name" != controller ] || continue
    certificate=$(certificate_of "$name" | tr '\n' '|')
    if [ -n "$certificate" ]; then say certificate "$name $certificate"; fi
  done
  if [ -d "$folder/controller" ]; then say controller_user "$(user_of controller)"; fi
}

# Makes the folder, and one for what is copied next: FOLDER/$1/.part-$2.
prepare() {
  make_user fairway
  mkdir -p "$folder"
  [ -f "$folder/.fairway-cluster" ] || [ -z "$(ls -A "$folder" | grep -vx lock)" ] ||
    die "$folder has files that are not of \`fairway cluster\`: name another folder in the file, or move them away"
  lock
  : >"$folder/.fairway-cluster"
  mkdir -p "$folder/releases" "$folder/plugins" "$folder/workers" "$folder/etc" "$folder/run" "$folder/log"
  # What an earlier copy left behind that was cut off.
  find "$folder/releases" "$folder/plugins" -maxdepth 1 -name '.part-*' -mmin +60 -exec rm -rf {} +
  mkdir "$folder/$1/.part-$2"
}

forget_part() { rm -rf "$folder/$1/.part-$2"; }

# What was copied takes its name, if it is whole: a release must run here, a plugin have its digits.
finish_release() {
  local told
  lock
  told=$(run_as worker "$folder/releases/.part-$1/bin/fairway-worker" --version 2>&1) || {
    forget_part releases "$1"
    die "its programs do not run here: $told"
  }
  [ -d "$folder/releases/$2" ] || mv -T "$folder/releases/.part-$1" "$folder/releases/$2"
  forget_part releases "$1"
}
finish_plugin() {
  local sum
  lock
  sum=$(sha256sum "$folder/plugins/.part-$1/"*)
  chmod 644 "$folder/plugins/.part-$1/"*  # it came with the login's umask
  case $sum in
    "$2"*) [ -d "$folder/plugins/$2" ] || mv -T "$folder/plugins/.part-$1" "$folder/plugins/$2" ;;
    *) forget_part plugins "$1"; die "it came with other bytes than were sent" ;;
  esac
  forget_part plugins "$1"
}

# Makes $1 a link to $2, at once.
link_to() {
  rm -f "$1.part"
  ln -s "$2" "$1.part"
  mv -T "$1.part" "$1"
}
# Release $1 is the current one from now on.
switch() {
  local before
  lock
  before=$(readlink "$folder/current" || true)
  [ "$before" != "releases/$1" ] || return 0
  if [ -n "$before" ]; then link_to "$folder/previous" "$before"; fi
  link_to "$folder/current" "releases/$1"
}

# Makes the CA and the controller's certificate, for the address $1.
init() {
  lock
  [ ! -d "$folder/controller" ] || return 0
  rm -rf "$folder/controller.part"
  make_user fairway-controller
  private_directory "$folder/controller.part" fairway-controller
  run_as controller "$folder/current/bin/fairway" init "$folder/controller.part" --bind "$1" --host "$1" </dev/null >/dev/null
  # So that --from FOLDER/controller finds the settings that count.
  ln -sf "$folder/etc/controller.toml" "$folder/controller.part/fairway.toml"
  mv -T "$folder/controller.part" "$folder/controller"
}

# Tries $text as the settings of daemon $1, with the programs in $2, and keeps it in $1.toml.part.
try_settings() {
  local told file=$folder/etc/$1.toml.part
  printf '%s' "$text" >"$file"
  told=$(run_as "$1" "$2/bin/fairway" config check "$file" </dev/null 2>&1) || {
    rm -f "$file"
    die "${told##*"$file:"}"
  }
}
# Changes nothing.
check_settings() {
  lock
  try_settings "$1" "$folder/releases/$2"
  rm -f "$folder/etc/$1.toml.part"
}
# Writes $text to the settings of daemon $1, if its program takes them.
settings() {
  lock
  try_settings "$1" "$folder/current"
  mv "$folder/etc/$1.toml.part" "$folder/etc/$1.toml"
}

# Worker $1 gets its certificate from the controller $2, whose CA has the hash $3, by $token, unless it has another one
# by now than the one whose SHA-256 is $4. Says whether it got it.
join() {
  local digits
  lock
  digits=$(certificate_of "$1" | sha256sum)
  [ "${digits%% *}" = "$4" ] || return 0
  [ -d "$folder/workers/$1" ] || private_directory "$folder/workers/$1" fairway
  # Pipes and links are none of ours.
  run_as "$1" find "$folder/workers/$1" -mindepth 1 -maxdepth 1 ! -type f ! -type d -delete
  # The token stays out of arguments, which all users of this host can read.
  printf '%s\n' "$token" | run_as "$1" sh -c 'umask 077; cat >"$1"' sh "$folder/workers/$1/token"
  run_as "$1" "$folder/current/bin/fairway" join "$2" --ca-hash "$3" --to "$folder/workers/$1" \
    --token-file "$folder/workers/$1/token" </dev/null >/dev/null || {
    [ $? != 124 ] || echo "\`fairway join\` has not ended for 60 s" >&2
    rm -f "$folder/workers/$1/token"
    exit 1
  }
  rm -f "$folder/workers/$1/token" "$folder/workers/$1/fairway.toml"
  say joined yes
}

# The CAs in which the controller believes, or worker $1; of a worker nothing, if it lacks the file.
show_ca() {
  case $1 in
    controller) run_as controller cat "$folder/controller/ca.pem" ;;
    *) start_of "$1" "$folder/workers/$1/ca.pem" ;;
  esac
}

# Tokens for the workers $2, $3, ... to join by, from the controller at $1.
tokens() {
  local controller=$1 name
  shift
  for name in "$@"; do
    say token "$name"
    run_as controller "$folder/current/bin/fairway" token create --worker "$name" --ttl 10m --controller "$controller" \
      --from "$folder/controller" </dev/null
  done
}

ask_status() {
  run_as controller "$folder/current/bin/fairway" status --output json --controller "$1" --tls-ca "$folder/controller/ca.pem" \
    --token-file "$folder/controller/admin.token" </dev/null
}

# The unit of daemon $1, out of the one of its program $2 in the release $3. It may take $4 seconds to end.
write_unit() {
  local files=$folder/workers/$1 user unit
  [ "$1" != controller ] || files=$folder/controller
  user=$(user_of "$1") unit=$(unit_of "$1")
  [ ! -e "/etc/systemd/system/$unit" ] || is_ours "$unit" ||
    die "/etc/systemd/system/$unit starts another program than one in $folder:" \
      "$(sed -n 's/^ExecStart=//p' "/etc/systemd/system/$unit"): end and remove that unit, or name another folder in the file"
  sed -e "s|^ExecStart=.*|ExecStart=$folder/releases/$3/bin/$2 --config $folder/etc/$1.toml|" \
    -e "s|^InaccessiblePaths=.*|InaccessiblePaths=-$folder/controller|" \
    -e "s|^StateDirectory=.*|ReadWritePaths=$files|" -e '/^StateDirectoryMode=/d' -e '/^Documentation=/d' \
    -e "s|^User=.*|User=$user|" -e "s|^Group=.*|Group=$user|" -e '/^TimeoutStopSec=/d' \
    -e '/^ExecStart=/a\' -e "TimeoutStopSec=$4" \
    "$folder/releases/$3/share/fairway/systemd/$2.service" >"/etc/systemd/system/.$unit.part"
  mv "/etc/systemd/system/.$unit.part" "/etc/systemd/system/$unit"
  systemctl daemon-reload
}

# Starts daemon $1, the program $2 of the release $3. Once it is told to, it has $4 seconds to end. Whether it serves is asked for later (has_ended, ask_status).
start() {
  local started tries=0
  lock
  [ -z "$(pid_of "$1")" ] || return 0
  if has_systemd; then
    write_unit "$@"
    say started yes
    systemctl enable --quiet "$(unit_of "$1")"
    systemctl start --no-block "$(unit_of "$1")"
    return
  fi
  say started yes
  echo "$4" >"$folder/run/$1.limit"
  if [ -f "$folder/log/$1.log" ]; then mv -f "$folder/log/$1.log" "$folder/log/$1.log.1"; fi
  # It writes its id itself, before it is the daemon: no daemon is without one.
  # shellcheck disable=SC2016,SC2086
  setsid sh -c 'echo $$ >"$1.part" && mv "$1.part" "$1" && shift && umask 077 && exec "$@"' sh "$folder/run/$1.pid" \
    $(as_of "$1") "$folder/releases/$3/bin/$2" --config "$folder/etc/$1.toml" \
    </dev/null >>"$folder/log/$1.log" 2>&1 9>&- &
  started=$!
  while [ -z "$(pid_of "$1")" ] && kill -0 "$started" 2>/dev/null && [ $tries -lt 100 ]; do
    tries=$((tries + 1))
    sleep 0.05
  done
}

# The end of the log of daemon $1, if it has ended, or the controller wants none of its executors.
ended() {
  [ -z "$(pid_of "$1")" ] || last_log "$1" | grep -qF 'fenced by the controller' || return 0
  say ended yes
  last_log "$1"
}
# Of its present run.
last_log() {
  if has_systemd; then
    journalctl "_SYSTEMD_INVOCATION_ID=$(systemctl show --property InvocationID --value "$(unit_of "$1")")" \
      --lines 5 --no-pager --output cat
  else
    tail -n 5 "$folder/log/$1.log"
  fi
}

# Ends daemon $1; a worker lets work in flight end for its --drain-limit.
stop() {
  local pid unit told limit tries=0
  [ -f "$folder/.fairway-cluster" ] || return 0
  lock
  pid=$(pid_of "$1")
  if has_systemd; then
    unit=$(unit_of "$1")
    if ! is_ours "$unit"; then
      [ -z "$pid" ] || die "$unit starts another program than one in $folder, and process $pid goes on:" \
        "end that process by \`kill $pid\`, and type the same again"
      return 0
    fi
    told=$(systemctl disable --now --quiet "$unit" 2>&1) || die "systemd refuses: $(echo "$told" | tr '\n' ' ')"
    [ -z "$(pid_of "$1")" ] || die "systemd has ended $unit, it says, and process $(pid_of "$1") goes on"
    [ -z "$pid" ] || say stopped yes
    return
  fi
  if [ -n "$pid" ]; then
    limit=$(end_limit "$1")
    limit=${limit:-60}
    kill -TERM "$pid"
    while [ "$(pid_of "$1")" = "$pid" ]; do
      tries=$((tries + 1))
      if [ $tries = $((limit * 10)) ]; then kill -KILL "$pid"; fi
      [ $tries -lt $((limit * 10 + 300)) ] || die "process $pid does not end, for 30 s after SIGKILL"
      sleep 0.1
    done
    say stopped yes
  fi
  rm -f "$folder/run/$1.pid" "$folder/run/$1.limit"
}

# Removes releases and plugins that are not used: all but the current ones, those before, and what runs.
tidy() {
  local place used name pid
  lock
  used=" $(basename "$(readlink "$folder/current")") $(basename "$(readlink "$folder/previous")") "
  for place in "$folder"/controller "$folder"/workers/*; do
    pid=$(pid_of "${place##*/}")
    if [ -n "$pid" ]; then used="$used$(release_of "$pid") "; fi
  done
  for place in "$folder"/releases/*; do
    case $used in *" ${place##*/} "*) ;; *) rm -rf "$place" ;; esac
  done
  for place in "$folder"/plugins/*; do
    name=${place##*/}
    [ "$name" = "$1" ] || grep -qF "/plugins/$name/" "$folder"/etc/*.toml 2>/dev/null || rm -rf "$place"
  done
}

# Removes all, keys and tokens too. All daemons must have been stopped.
purge() {
  local place pid
  [ -e "$folder" ] || return 0
  [ -f "$folder/.fairway-cluster" ] || die "$folder was not made by \`fairway cluster\`, so nothing in it is removed"
  lock
  for place in "$folder"/controller "$folder"/workers/*; do
    [ -z "$(pid_of "${place##*/}")" ] || die "${place##*/} still runs, from $folder: end it first"
  done
  if has_systemd; then
    # Those of workers that are forgotten, too.
    for place in /etc/systemd/system/fairway-cluster*.service; do
      is_ours "${place##*/}" || continue
      pid=$(pid_of_unit "${place##*/}")
      [ -z "$pid" ] || die "${place##*/} still runs: \`systemctl stop ${place##*/}\` there, and type the same again"
      systemctl disable --quiet "${place##*/}"
      rm -f "$place"
    done
    systemctl daemon-reload
  fi
  for place in releases plugins current previous current.part previous.part controller controller.part workers etc run log; do
    if [ -e "$folder/$place" ] || [ -L "$folder/$place" ]; then say removed yes; rm -rf "${folder:?}/$place"; fi
  done
  rm -f "$folder/.fairway-cluster" "$folder/lock"
  rmdir "$folder" 2>/dev/null || true
}
