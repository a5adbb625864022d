# SPDX-License-Identifier: Apache-2.0
"""A node: namespaces and control groups of its own, in which node.sh starts containerd, the kubelet and kube-proxy."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess

from waiting import end_with_parent, wait_for

HERE = pathlib.Path(__file__).resolve().parent
CONTAINERD = """
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # Without CAP_SYS_RESOURCE nobody can lower it.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
"""


def control_groups():
    """The folder of this process's group in each hierarchy of version 1."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers:
            yield pathlib.Path("/sys/fs/cgroup", controllers.removeprefix("name=")) / path.lstrip("/")


class Node:
    """`pods`: the network of its pods, a.b.c (of 24 bits)."""

    def __init__(self, folder, name, namespace, address, pods):
        self.folder, self.name, self.namespace, self.address, self.pods = folder, name, namespace, address, pods
        self.groups = [group / namespace for group in control_groups()]
        self.process = None
        folder.mkdir()

    def write_settings(self, program, kubeconfigs, ca, certificate, services, dns, pause):
        """`kubeconfigs`: of the kubelet, of kube-proxy, of what keeps NetworkPolicies."""
        self.program, self.services = program, services
        for name, path in zip(("node", "proxy", "policies"), kubeconfigs):
            shutil.copy(path, self.folder / f"{name}.conf")
        (self.folder / "containerd.toml").write_text(CONTAINERD.format(pause=pause))
        (self.folder / "10-pods.conflist").write_text(json.dumps({
            "cniVersion": "0.4.0", "name": "pods", "plugins": [
                {"type": "ptp", "ipMasq": False, "mtu": 1500, "ipam": {
                    "type": "host-local", "ranges": [[{"subnet": f"{self.pods}.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
                {"type": "portmap", "capabilities": {"portMappings": True}}]}))
        (self.folder / "kubelet.json").write_text(json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"x509": {"clientCAFile": str(ca)}}, "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(certificate[0]), "tlsPrivateKeyFile": str(certificate[1]),
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            # Those of the machine: version 1 of control groups.
            "failCgroupV1": False, "cgroupDriver": "cgroupfs",
            "clusterDNS": [dns], "clusterDomain": "cluster.local", "resolvConf": str(self.folder / "resolv.conf"), "failSwapOn": False,
            # However full the disk is.
            "evictionHard": {"memory.available": "100Mi"}, "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
            "nodeStatusUpdateFrequency": "5s", "syncFrequency": "10s",
            "configMapAndSecretChangeDetectionStrategy": "Watch"}))
        (self.folder / "resolv.conf").write_text("")
        (self.folder / "kube-proxy.json").write_text(json.dumps({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables",
            "hostnameOverride": self.name, "clientConnection": {"kubeconfig": str(self.folder / "proxy.conf")}, "clusterCIDR": "10.244.0.0/16",
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}}))

    def _begin(self):
        end_with_parent()
        for group in self.groups:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    def start(self):
        for group in self.groups:
            group.mkdir(exist_ok=True)
            if (group / "cpuset.cpus").exists():
                for name in ("cpuset.cpus", "cpuset.mems"):
                    (group / name).write_text((group.parent / name).read_text())
        with (self.folder / "node.log").open("w") as log:
            self.process = subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{self.namespace}", "unshare", "--mount", "--uts", "--ipc", "--cgroup", "--pid", "--fork",
                 "--kill-child", HERE / "node.sh", self.folder, self.name, self.address, self.program,
                 self.services],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=self._begin)
        wait_for(self._has_containerd, lambda: f"containerd of {self.name}: {self.said()}")

    def said(self):
        return "".join(f"\n== {name}\n{(self.folder / f'{name}.log').read_text()[-3000:]}" for name in ("node", "containerd", "kubelet")
                       if (self.folder / f"{name}.log").exists())

    def first_process(self):
        """Its number out here."""
        assert self.process.poll() is None, f"{self.name} ended: {self.said()}"
        found = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(found[0]) if found else None

    def run(self, *words, **more):
        """A command of its administrator."""
        return subprocess.run(["nsenter", f"--target={self.first_process()}", "--all", *map(str, words)], text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=300, **more)

    def _has_containerd(self):
        return self.first_process() and (self.folder / "containerd.log").exists() and self.run("ctr", "version").returncode == 0

    def load(self, images):
        """Name -> archive."""
        for name, archive in images.items():
            base = name.rpartition(":")[0]
            done = self.run("ctr", "-n", "k8s.io", "images", "import", "--base-name", base, archive)
            assert done.returncode == 0, done.stderr
            assert name in self.run("ctr", "-n", "k8s.io", "images", "ls", "-q").stdout.split(), done.stdout

    def kill(self):
        """As when its power goes: all processes at once. Its files stay."""
        if self.process and self.process.poll() is None:
            first = self.first_process()
            os.kill(first or self.process.pid, signal.SIGKILL)
            self.process.wait(60)
        for group in self.groups:
            self._remove(group)

    @staticmethod
    def _remove(group):
        if not group.exists():
            return
        for path in sorted((path for path in group.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts)):
            with contextlib.suppress(OSError):
                path.rmdir()

        def gone():
            with contextlib.suppress(OSError):
                group.rmdir()
            return not group.exists()

        wait_for(gone, f"the end of the processes in {group}", 30)
