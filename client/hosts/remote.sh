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
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

die() { printf '%s\n' "$*" >&2; exit 1; }
say() { printf '%s=%s\n' "$1" "$2"; }

is_root() { [ "$(id -u)" = 0 ]; }
# With systemd only root can have services start with the host.
has_systemd() { is_root && [ -d /run/systemd/system ]; }

# Daemons and all that touches their keys run as a user who is not root: executors run clients' code.
as=
if is_root; then as="setpriv --reuid fairway --regid fairway --init-groups --no-new-privs env HOME=/nonexistent"; fi

# One at a time changes something; the lock is let go with the script.
lock() {
  exec 9>>"$folder/lock"
  flock -w 120 9 || die "another \`fairway cluster\` has been at work on this host for 2 minutes"
}

# A directory for the daemons' user alone.
private_directory() {
  mkdir "$1"
  if is_root; then chown fairway:fairway "$1"; fi
  chmod 700 "$1"
}

unit_of() { echo "fairway-cluster-$1.service"; }

# The process id of a daemon that runs, or nothing. Ids are given anew: it counts if it runs a program of ours.
pid_of() {
  local pid
  if has_systemd; then
    pid=$(systemctl show --property MainPID --value "$(unit_of "$1")" 2>/dev/null || true)
  else
    pid=$(cat "$folder/run/$1.pid" 2>/dev/null || true)
  fi
  case $(readlink "/proc/${pid:-0}/exe" 2>/dev/null || true) in "$folder"/releases/*) echo "$pid" ;; esac
}

# "releases/0.1.0-abc/bin/fairway-worker" -> "0.1.0-abc"
release_of() {
  local path
  path=$(readlink "/proc/$1/exe" 2>/dev/null || true)
  path=${path#"$folder/releases/"}
  echo "${path%%/*}"
}

probe() {
  local tool place name pid made release settings
  case $folder in
    "") if is_root; then folder=/opt/fairway; else folder=$HOME/.local/fairway; fi ;;
    "~/"*) folder=$HOME/${folder#"~/"} ;;
  esac
  say user "$(id -un)"
  say system "$(uname -s)"
  say machine "$(uname -m)"
  for tool in tar gzip dd df flock setsid sha256sum readlink; do
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
    if [ -f "$place/controller.pem" ] || [ -f "$place/worker.pem" ]; then made=yes; fi
    pid=$(pid_of "$name")
    if [ -n "$pid" ]; then release=$(release_of "$pid"); fi
    if [ -f "$folder/etc/$name.toml" ]; then settings=$(sha256sum <"$folder/etc/$name.toml"); fi
    say daemon "$name $made $release ${settings%% *}"
  done
}

# Makes the folder, and one for what is copied next: FOLDER/$1/.part-$2.
prepare() {
  if is_root && ! getent passwd fairway >/dev/null; then
    useradd --system --user-group --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin fairway
  fi
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
  told=$("$folder/releases/.part-$1/bin/fairway-worker" --version 2>&1) || {
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
  case $sum in
    "$2"*) [ -d "$folder/plugins/$2" ] || mv -T "$folder/plugins/.part-$1" "$folder/plugins/$2" ;;
    *) forget_part plugins "$1"; die "it came with other bytes than were sent" ;;
  esac
  forget_part plugins "$1"
}

# Release $1 is the current one from now on.
switch() {
  lock
  if [ -L "$folder/current" ]; then mv -T "$folder/current" "$folder/previous"; fi
  rm -f "$folder/current.part"
  ln -s "releases/$1" "$folder/current.part"
  mv -T "$folder/current.part" "$folder/current"
}

# Makes the CA and the controller's certificate, for the address $1.
init() {
  lock
  [ ! -d "$folder/controller" ] || return 0
  rm -rf "$folder/controller.part"
  private_directory "$folder/controller.part"
  $as "$folder/current/bin/fairway" init "$folder/controller.part" --bind "$1" --host "$1" </dev/null >/dev/null
  # So that --from FOLDER/controller finds the settings that count.
  ln -sf "$folder/etc/controller.toml" "$folder/controller.part/fairway.toml"
  mv -T "$folder/controller.part" "$folder/controller"
}

# Writes $text to the settings of daemon $1, if its program takes them.
settings() {
  local told
  lock
  printf '%s' "$text" >"$folder/etc/$1.toml.part"
  told=$($as "$folder/current/bin/fairway" config check "$folder/etc/$1.toml.part" </dev/null 2>&1) ||
    die "${told##*"$folder/etc/$1.toml.part:"}"
  mv "$folder/etc/$1.toml.part" "$folder/etc/$1.toml"
}

# Worker $1 gets its certificate from the controller $2, whose CA has the hash $3, by $token.
join() {
  lock
  [ ! -f "$folder/workers/$1/worker.pem" ] || return 0
  [ -d "$folder/workers/$1" ] || private_directory "$folder/workers/$1"
  # The token stays out of arguments, which all users of this host can read.
  printf '%s\n' "$token" | $as sh -c 'umask 077; cat >"$1"' sh "$folder/workers/$1/token"
  $as "$folder/current/bin/fairway" join "$2" --ca-hash "$3" --to "$folder/workers/$1" \
    --token-file "$folder/workers/$1/token" </dev/null >/dev/null || {
    rm -f "$folder/workers/$1/token"
    exit 1
  }
  rm -f "$folder/workers/$1/token" "$folder/workers/$1/fairway.toml"
}

# The CAs in which a daemon believes.
show_ca() { $as cat "$folder/$1/ca.pem"; }

# Tokens for the workers $2, $3, ... to join by, from the controller at $1.
tokens() {
  local controller=$1 name
  shift
  for name in "$@"; do
    say token "$name"
    $as "$folder/current/bin/fairway" token create --worker "$name" --ttl 10m --controller "$controller" \
      --from "$folder/controller" </dev/null
  done
}

ask_status() {
  $as "$folder/current/bin/fairway" status --output json --controller "$1" --tls-ca "$folder/controller/ca.pem" \
    --token-file "$folder/controller/admin.token" </dev/null
}

# The unit of daemon $1, out of the one of its program $2 in the release $3.
write_unit() {
  local files=$folder/workers/$1
  [ "$1" != controller ] || files=$folder/controller
  sed -e "s|^ExecStart=.*|ExecStart=$folder/releases/$3/bin/$2 --config $folder/etc/$1.toml|" \
    -e "s|^InaccessiblePaths=.*|InaccessiblePaths=-$folder/controller|" \
    -e "s|^StateDirectory=.*|ReadWritePaths=$files|" -e '/^StateDirectoryMode=/d' -e '/^Documentation=/d' \
    "$folder/releases/$3/share/fairway/systemd/$2.service" >"/etc/systemd/system/.$(unit_of "$1").part"
  mv "/etc/systemd/system/.$(unit_of "$1").part" "/etc/systemd/system/$(unit_of "$1")"
  systemctl daemon-reload
}

# Starts daemon $1, the program $2 of the release $3. Whether it serves is asked for later (has_ended, ask_status).
start() {
  local started tries=0
  lock
  [ -z "$(pid_of "$1")" ] || return 0
  say started yes
  if has_systemd; then
    write_unit "$@"
    systemctl enable --quiet "$(unit_of "$1")"
    systemctl start --no-block "$(unit_of "$1")"
    return
  fi
  if [ -f "$folder/log/$1.log" ]; then mv -f "$folder/log/$1.log" "$folder/log/$1.log.1"; fi
  # It writes its id itself, before it is the daemon: no daemon is without one.
  # shellcheck disable=SC2016,SC2086
  setsid sh -c 'echo $$ >"$1.part" && mv "$1.part" "$1" && shift && umask 077 && exec "$@"' sh "$folder/run/$1.pid" \
    $as "$folder/releases/$3/bin/$2" --config "$folder/etc/$1.toml" \
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
  local pid tries=0
  [ -f "$folder/.fairway-cluster" ] || return 0
  lock
  pid=$(pid_of "$1")
  if has_systemd; then
    [ -z "$pid" ] || say stopped yes
    systemctl disable --now --quiet "$(unit_of "$1")" 2>/dev/null || true
    return
  fi
  if [ -n "$pid" ]; then
    kill -TERM "$pid"
    while [ "$(pid_of "$1")" = "$pid" ]; do
      tries=$((tries + 1))
      if [ $tries = 600 ]; then kill -KILL "$pid"; fi
      sleep 0.1
    done
    say stopped yes
  fi
  rm -f "$folder/run/$1.pid"
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
  local place
  [ -e "$folder" ] || return 0
  [ -f "$folder/.fairway-cluster" ] || die "$folder was not made by \`fairway cluster\`, so nothing in it is removed"
  lock
  for place in "$folder"/controller "$folder"/workers/*; do
    [ -z "$(pid_of "${place##*/}")" ] || die "${place##*/} still runs, from $folder: end it first"
  done
  if has_systemd; then
    for place in "$folder"/controller "$folder"/workers/*; do
      rm -f "/etc/systemd/system/$(unit_of "${place##*/}")"
    done
    systemctl daemon-reload
  fi
  for place in releases plugins current previous current.part controller controller.part workers etc run log; do
    if [ -e "$folder/$place" ] || [ -L "$folder/$place" ]; then say removed yes; rm -rf "${folder:?}/$place"; fi
  done
  rm -f "$folder/.fairway-cluster" "$folder/lock"
  rmdir "$folder" 2>/dev/null || true
}
