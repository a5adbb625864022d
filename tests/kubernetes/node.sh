#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# node.sh FOLDER NAME ADDRESS PROGRAM SERVICES: a node of Kubernetes, as the first process of namespaces of its own (mounts, processes, network,
# control groups, host name): Debian's containerd, the kubelet, kube-proxy, and what keeps NetworkPolicies. SERVICES: the
# range of their addresses. FOLDER has their settings, and gets all that they write. All of it ends with this process, and the mounts with it.
set -euo pipefail
folder=$1 name=$2 address=$3 program=$4 services=$5
mount --make-rprivate /
mount --make-rshared /
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /sys/fs/cgroup
# The same controllers in hierarchies of version 1 as outside, from this process's own groups on.
while IFS=: read -r _ controllers _; do
  [ -n "$controllers" ] || continue
  mkdir "/sys/fs/cgroup/${controllers#name=}"
  mount -t cgroup -o "$controllers" cgroup "/sys/fs/cgroup/${controllers#name=}"
done </proc/self/cgroup
# The kubelet wants values that are the whole machine's: it sees them, and nothing is set.
mkdir -p "$folder/values"
for value in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 \
  kernel/keys/root_maxbytes=25000000; do
  setting=${value%=*}
  echo "${value#*=}" >"$folder/values/${setting##*/}"
  mount --bind "$folder/values/${setting##*/}" "/proc/sys/$setting"
done
hostname "$name"
for place in etc var; do
  mkdir -p "$folder/$place" "$folder/work-$place"
  mount -t overlay -o "lowerdir=/$place,upperdir=$folder/$place,workdir=$folder/work-$place" overlay "/$place"
done
mount -t tmpfs tmpfs /run
for place in containerd kubelet log; do
  mkdir -p "$folder/$place"
done
mkdir -p /var/lib/containerd /var/lib/kubelet /etc/cni/net.d
mount --bind "$folder/containerd" /var/lib/containerd
mount --bind "$folder/kubelet" /var/lib/kubelet
mount --bind "$folder/log" /var/log
cp "$folder/10-pods.conflist" /etc/cni/net.d
# Pods' networks.
echo 1 >/proc/sys/net/ipv4/ip_forward

containerd --config "$folder/containerd.toml" >"$folder/containerd.log" 2>&1 &
until ctr version >/dev/null 2>&1; do sleep 0.1; done
# As a service manager does: what ends begins again.
keep() {
  local log=$folder/$1.log
  while :; do
    "$program" "$@" >>"$log" 2>&1 || true
    echo "== $1 ended" >>"$log"
    sleep 1
  done
}
keep kube-proxy --config "$folder/kube-proxy.json" &
keep policies "$folder/policies.conf" "$name" "$services" &
keep kubelet --config "$folder/kubelet.json" --kubeconfig "$folder/node.conf" --hostname-override "$name" --node-ip "$address" &
wait
