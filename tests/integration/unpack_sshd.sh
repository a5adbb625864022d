#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# unpack_sshd.sh DIR: Debian's sshd in DIR, for tests, unless this system has one. Unpacked and not installed, so that none
# is started here.
set -euo pipefail
dir=$1
if [ -x /usr/sbin/sshd ] || [ -x "$dir/usr/sbin/sshd" ]; then exit; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get download -qq openssh-server libwrap0
for package in *.deb; do dpkg -x "$package" root; done
mkdir -p "$(dirname "$dir")"
mv root "$dir"
