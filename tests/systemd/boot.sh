#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# boot.sh ROOT CONSOLE: becomes the systemd of the Debian in ROOT, as the first process of namespaces of its own (mounts, processes,
# network, host name, IPC, control groups). Of the kernel it may change nothing, of control groups it has those below its own. Its
# messages go to the terminal CONSOLE. It ends with this process, and its mounts with it.
set -euo pipefail
root=$1 console=$2
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
mount -t proc -o nosuid,nodev,noexec proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs sys
mount -t cgroup2 -o nosuid,nodev,noexec cgroup sys/fs/cgroup
mount -t tmpfs -o mode=755,nosuid tmpfs dev
for device in null zero full random urandom tty; do
  touch "dev/$device"
  mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for number in 0 1 2; do ln -s "/proc/self/fd/$number" "dev/$(cut -d ' ' -f $((number + 1)) <<<'stdin stdout stderr')"; done
touch dev/console
mount --bind "$console" dev/console
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs run
ip link set lo up
mkdir -p mnt
pivot_root . mnt
umount -l /mnt
# By `container` systemd knows that it is not the whole machine's.
exec env -i container=namespaces PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  setpriv --bounding-set=-sys_module,-sys_rawio,-sys_time,-syslog /sbin/init </dev/console >/dev/console 2>&1
