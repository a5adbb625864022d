# SPDX-License-Identifier: Apache-2.0
"""A cluster of Kubernetes on this machine: the control plane in a network namespace, nodes in namespaces of their own, names by CoreDNS.

All of it ends with the `with` block. Its networks have no way out.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess

import certificates
import images
from node import Node
from waiting import end_with_parent, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
MADE = ROOT / ".deps" / "kubernetes"
PROGRAM, KUBECTL = MADE / "fairway-kubernetes", MADE / "kubectl"
HELM = ROOT / ".deps" / "helm" / "helm"
SERVER = "10.90.0.1"  # where the control plane is
SERVICES, DNS = "10.96.0.0/16", "10.96.0.10"
COREFILE = """.:53 {
  errors
  ready
  cache 5
  kubernetes cluster.local in-addr.arpa
}
"""


def require_tools():
    assert os.geteuid() == 0, "nodes are made by root: run these tests as root"
    for tool in ("containerd", "ctr", "runc", "umoci", "nft", "iptables", "ipset", "conntrack", "ip", "openssl", "busybox"):
        assert shutil.which(tool), f"{tool} is missing; `./dev test kubernetes` installs it"
    for path in (PROGRAM, KUBECTL, HELM):
        assert path.exists(), f"{path} is missing; `./dev test kubernetes` builds it"


def tell(*words):
    done = subprocess.run(list(map(str, words)), text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


class Cluster:
    """`folder` must have a short path, since sockets are below it."""

    def __init__(self, folder, names=("n1", "n2"), more_images=None):
        self.folder, self.ends = folder, contextlib.ExitStack()
        self.space = f"fairway-kube-{os.getpid()}"
        self.nodes = {name: Node(folder / name, name, f"{self.space}-{name}", f"10.90.0.{number + 11}", f"10.244.{number + 1}")
                      for number, name in enumerate(names)}
        self.images = more_images or {}

    def __enter__(self):
        require_tools()
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.ends.close()

    # ---- how it starts ----

    def _start(self):
        self._make_network()
        self._make_certificates()
        self._start_control_plane()
        self.images |= images.make(self.folder / "images", KUBECTL)
        for node in self.nodes.values():
            node.write_settings(PROGRAM, (self.node_files[node.name], self.proxy, self.policies), self.authority.file,
                                self.node_certificates[node.name], SERVICES, DNS, images.PAUSE)
            self.ends.callback(node.kill)
            node.start()
            node.load(self.images)
        self.apply(_of_the_cluster())
        for name in self.nodes:
            wait_for(lambda name=name: self.is_ready("node", name), self.nodes[name].said, 180)
        wait_for(lambda: self.get("daemonset/coredns", "kube-system").get("status", {}).get("numberReady") == len(self.nodes),
                 lambda: self.kubectl("-n", "kube-system", "describe", "pods", check=False), 180)

    def _make_network(self):
        def space(name):
            tell("ip", "netns", "add", name)
            self.ends.callback(tell, "ip", "netns", "del", name)
            tell("ip", "-n", name, "link", "set", "lo", "up")

        space(self.space)
        tell("ip", "-n", self.space, "link", "add", "nodes", "type", "bridge")
        tell("ip", "-n", self.space, "address", "add", f"{SERVER}/24", "dev", "nodes")
        tell("ip", "-n", self.space, "link", "set", "nodes", "up")
        for node in self.nodes.values():
            space(node.namespace)
            tell("ip", "link", "add", node.name, "netns", self.space, "type", "veth", "peer", "name", "up0", "netns", node.namespace)
            tell("ip", "-n", self.space, "link", "set", node.name, "master", "nodes", "up")
            tell("ip", "-n", node.namespace, "address", "add", f"{node.address}/24", "dev", "up0")
            tell("ip", "-n", node.namespace, "link", "set", "up0", "up")
            tell("ip", "-n", node.namespace, "route", "add", "default", "via", SERVER)
        for node in self.nodes.values():  # where pods are
            for other in (self.space, *(one.namespace for one in self.nodes.values() if one is not node)):
                tell("ip", "-n", other, "route", "add", f"{node.pods}.0/24", "via", node.address)

    def _make_certificates(self):
        self.authority = authority = certificates.Authority(self.folder / "certificates")
        server = f"https://{SERVER}:6443"
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
        self.server = authority.sign("server", "kube-apiserver", hosts=[SERVER, "10.96.0.1", "127.0.0.1", *names])
        self.to_kubelets = authority.sign("to-kubelets", "kube-apiserver", "system:masters")
        self.accounts = authority.key_pair("accounts")
        self.admin = authority.kubeconfig("admin", "admin", server, "system:masters")
        self.manager, self.scheduler, self.proxy = (
            authority.kubeconfig(name, f"system:{name}", server) for name in ("kube-controller-manager", "kube-scheduler", "kube-proxy"))
        self.policies = authority.kubeconfig("policies", "policies", server, "system:masters")
        self.node_files = {name: authority.kubeconfig(f"node-{name}", f"system:node:{name}", server, "system:nodes") for name in self.nodes}
        self.node_certificates = {name: authority.sign(f"kubelet-{name}", f"system:node:{name}", "system:nodes", hosts=[name, node.address])
                                  for name, node in self.nodes.items()}

    def _part(self, name, *flags):
        with (self.folder / f"{name}.log").open("w") as log:
            part = subprocess.Popen(["nsenter", f"--net=/run/netns/{self.space}", PROGRAM, name, *map(str, flags)], cwd=self.folder,
                                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=end_with_parent)
        self.ends.callback(part.wait)
        self.ends.callback(part.kill)

    def _start_control_plane(self):
        self._part("etcd", "--data-dir", self.folder / "etcd", "--unsafe-no-fsync")
        self._part("kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", f"--advertise-address={SERVER}",
                   f"--tls-cert-file={self.server[0]}", f"--tls-private-key-file={self.server[1]}", f"--client-ca-file={self.authority.file}",
                   f"--kubelet-certificate-authority={self.authority.file}", f"--kubelet-client-certificate={self.to_kubelets[0]}",
                   f"--kubelet-client-key={self.to_kubelets[1]}", "--service-account-issuer=https://kubernetes.default.svc",
                   f"--service-account-key-file={self.accounts[0]}", f"--service-account-signing-key-file={self.accounts[1]}",
                   f"--service-cluster-ip-range={SERVICES}", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
                   "--allow-privileged", "--kubelet-preferred-address-types=InternalIP")
        wait_for(lambda: self.kubectl("get", "--raw=/readyz", check=False) == "ok", lambda: self._log_of("kube-apiserver"))
        self._part("kube-controller-manager", f"--kubeconfig={self.manager}", f"--root-ca-file={self.authority.file}",
                   f"--service-account-private-key-file={self.accounts[1]}", "--use-service-account-credentials", "--leader-elect=false",
                   "--bind-address=127.0.0.1", "--node-monitor-grace-period=20s")
        self._part("kube-scheduler", f"--kubeconfig={self.scheduler}", "--leader-elect=false", "--bind-address=127.0.0.1")

    def _log_of(self, part):
        return (self.folder / f"{part}.log").read_text()[-5000:]

    # ---- what its administrator types ----

    def start(self, *words, **more):
        """A kubectl that goes on."""
        return subprocess.Popen(["nsenter", f"--net=/run/netns/{self.space}", KUBECTL, *map(str, words)], text=True,
                                env={**os.environ, "KUBECONFIG": str(self.admin)}, **more)

    def run(self, *words, said=None, seconds=120, **more):
        """A command there, with KUBECONFIG of the administrator."""
        environment = {**os.environ, "KUBECONFIG": str(self.admin), "HOME": str(self.folder), "PATH": f"{MADE}:{HELM.parent}:{os.environ['PATH']}"}
        return subprocess.run(["nsenter", f"--net=/run/netns/{self.space}", *map(str, words)], text=True, capture_output=True, input=said,
                              timeout=seconds, env=environment, **more)

    def kubectl(self, *words, check=True, said=None, seconds=120):
        """What it prints."""
        done = self.run(KUBECTL, *words, said=said, seconds=seconds)
        assert not check or done.returncode == 0, f"kubectl {words}\n{done.stdout}{done.stderr}"
        return done.stdout if check else done.stdout + done.stderr

    def helm(self, *words, check=True, seconds=300):
        done = self.run(HELM, *words, seconds=seconds)
        assert not check or done.returncode == 0, f"helm {words}\n{done.stdout}{done.stderr}"
        return done.stdout if check else done.stdout + done.stderr

    def apply(self, objects):
        self.kubectl("apply", "-f-", said=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def add_volume(self, name):
        """A volume that all nodes can mount (their files are of one machine), to be claimed once. Returns its folder."""
        place = self.folder / "volumes" / name
        place.mkdir(parents=True)
        where = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": list(self.nodes)}]}
        self.apply([{
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "folders",
                     "persistentVolumeReclaimPolicy": "Retain", "local": {"path": str(place)},
                     "nodeAffinity": {"required": {"nodeSelectorTerms": [where]}}}}])
        return place

    def all(self, kind, namespace, selector):
        """A list."""
        return json.loads(self.kubectl("-n", namespace, "get", kind, "-o=json", f"--selector={selector}"))["items"]

    def get(self, what, namespace="default"):
        """The object, or an empty one."""
        done = self.run(KUBECTL, "-n", namespace, "get", what, "-o=json", "--ignore-not-found")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() else {}

    def is_ready(self, kind, name, namespace="default"):
        conditions = self.get(f"{kind}/{name}", namespace).get("status", {}).get("conditions", [])
        return {"Ready": "True"}.items() <= {one["type"]: one["status"] for one in conditions}.items()


def _of_the_cluster():
    """What a distribution brings: names, a right of kube-proxy's account (bound by default), a storage class."""
    labels = {"k8s-app": "kube-dns"}

    def named(kind, api, name="coredns", **more):
        return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "kube-system"}, **more}

    pod = {
        "serviceAccountName": "coredns", "tolerations": [{"operator": "Exists"}], "priorityClassName": "system-node-critical", "dnsPolicy": "Default",
        "containers": [{
            "name": "coredns", "image": images.TOOLS, "command": ["/opt/program", "coredns", "-conf", "/etc/coredns/Corefile"],
            "securityContext": {"runAsUser": 0}, "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
            "volumeMounts": [{"name": "program", "mountPath": "/opt/program"}, {"name": "settings", "mountPath": "/etc/coredns"}]}],
        "volumes": [{"name": "program", "hostPath": {"path": str(PROGRAM), "type": "File"}},
                    {"name": "settings", "configMap": {"name": "coredns"}}]}
    return [
        named("ServiceAccount", "v1"),
        named("ClusterRole", "rbac.authorization.k8s.io/v1", rules=[
            {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]),
        named("ClusterRoleBinding", "rbac.authorization.k8s.io/v1", roleRef={
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "coredns"},
            subjects=[{"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}]),
        named("ConfigMap", "v1", data={"Corefile": COREFILE}),
        named("DaemonSet", "apps/v1", spec={"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}),
        named("Service", "v1", "kube-dns", spec={"clusterIP": DNS, "selector": labels, "ports": [
            {"name": "dns", "protocol": "UDP", "port": 53}, {"name": "dns-tcp", "protocol": "TCP", "port": 53}]}),
        # Volumes are made by hand: Cluster.add_volume.
        named("StorageClass", "storage.k8s.io/v1", "folders", provisioner="kubernetes.io/no-provisioner", volumeBindingMode="WaitForFirstConsumer")
        | {"metadata": {"name": "folders", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}},
    ]
