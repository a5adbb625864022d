#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes bare Debian systems in folders, to try a new user's situation: Python, and no compiler.
#
#   root.sh make SUITE DIR        makes DIR a Debian SUITE (bookworm, trixie) with python3-venv, by
#                                 debootstrap; nothing when it is one already
#   root.sh copy FROM DIR         a fresh copy of a made one, in seconds
#   root.sh run DIR COMMAND...    runs COMMAND there as root, in a mount namespace of its own, with the
#                                 host's /proc, /sys, /dev, network and registries' settings; what is
#                                 given as FAIRWAY_ROOT_BIND=FOLDER is at the same path inside; with
#                                 FAIRWAY_ROOT_OFFLINE=1 without the host's network, loopback alone
#
# Needs root, debootstrap, util-linux and coreutils.
set -euo pipefail

die() { printf 'root.sh: %s\n' "$*" >&2; exit 1; }

make_root() {
  local suite=$1 dir=$2 log
  if [ -f "$dir/.fairway-root" ]; then return; fi
  case $suite in bookworm | trixie | forky | sid) ;; *) die "no Debian suite $suite" ;; esac
  rm -rf "$dir.part"
  mkdir -p "$dir.part"
  log=$dir.log
  # Its own mount namespace: its mounts disappear with it, however it ends.
  unshare --mount --propagation private debootstrap --variant=minbase \
    --include=python3,python3-venv,ca-certificates "$suite" "$dir.part" >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; die "debootstrap $suite failed; all of it is in $log"; }
  rm -rf "$dir.part"/var/cache/apt/archives/*.deb "$dir.part"/var/lib/apt/lists/*
  touch "$dir.part/.fairway-root"
  mv "$dir.part" "$dir"
}

run_in_root() {
  local dir=$1
  shift
  [ -f "$dir/.fairway-root" ] || die "$dir was not made by this script"
  # The host's settings for package registries hold inside, too.
  local file
  for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
    [ -f "$file" ] || continue
    mkdir -p "$dir$(dirname "$file")"
    # By a name of its own, because another run may do the same.
    { cp -L "$file" "$dir$file.$$" && mv -f "$dir$file.$$" "$dir$file"; } || die "cannot copy $file into $dir"
  done
  exec unshare --mount ${FAIRWAY_ROOT_OFFLINE:+--net} --propagation private bash -euc '
    dir=$1; shift
    mount --rbind /proc "$dir/proc"
    mount --rbind /sys "$dir/sys"
    mount --rbind /dev "$dir/dev"
    if [ -n "${FAIRWAY_ROOT_BIND-}" ]; then
      mkdir -p "$dir$FAIRWAY_ROOT_BIND"
      mount --rbind "$FAIRWAY_ROOT_BIND" "$dir$FAIRWAY_ROOT_BIND"
    fi
    exec chroot "$dir" /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"' root "$dir" "$@"
}

case ${1-} in
  make) make_root "${2:?SUITE}" "${3:?DIR}" ;;
  copy) rm -rf "${3:?DIR}" && mkdir -p "$(dirname "$3")" && cp -a "${2:?FROM}" "$3" ;;
  run) shift; run_in_root "$@" ;;
  *) die "see its first lines" ;;
esac
