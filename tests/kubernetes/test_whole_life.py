# SPDX-License-Identifier: Apache-2.0
"""From an install to what is left: nodes that die, values and images that are wrong, an uninstall, an install on the same volume."""

import re

from cluster import MADE, ROOT
from release import BIN, CHART, NAMESPACE, VALUES, Release
from test_release import all_serve
from waiting import wait_for

KINDS = "all,configmaps,secrets,serviceaccounts,roles,rolebindings,persistentvolumeclaims,networkpolicies,poddisruptionbudgets"
MADE_ONCE = {"secret/fw-fairway-admin", "secret/fw-fairway-ca", "secret/fw-fairway-viewer"}
CERTIFICATES = {f"secret/fw-fairway-{name}" for name in ("controller", "a", "b", "host")}
VOLUME = "persistentvolumeclaim/data-fw-fairway-controller-0"
NOBODYS = {"configmap/kube-root-ca.crt", "serviceaccount/default"}  # each namespace has them


def there(cluster):
    """The names of all objects of the namespace."""
    return set(cluster.kubectl("-n", NAMESPACE, "get", KINDS, "-o=name").split()) - NOBODYS


def test_a_node_that_dies_is_declared_out_and_its_pods_start_on_the_other(release, client):
    """The client is on the other node, if it can be."""
    cluster = release.cluster
    lives = cluster.get("pod/client", client.namespace)["spec"]["nodeName"]
    (dies,) = set(cluster.nodes) - {lives}
    release.wait_until_ready()
    lost = {name for name, pod in release.pods().items() if pod["spec"]["nodeName"] == dies}
    before = release.numbers()
    cluster.nodes[dies].kill()
    try:
        wait_for(lambda: not cluster.is_ready("node", dies), "the node to be missed")
        cluster.kubectl("taint", "nodes", dies, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
        release.wait_until_ready()
        assert lost <= {name for name, number in release.numbers().items() if number != before[name]}
        assert {pod["spec"]["nodeName"] for pod in release.pods().values()} == {lives}
        all_serve(client)
    finally:
        cluster.nodes[dies].start()
        wait_for(lambda: cluster.is_ready("node", dies), cluster.nodes[dies].said, 180)
        cluster.kubectl("taint", "nodes", dies, "node.kubernetes.io/out-of-service-", check=False)


def test_an_upgrade_that_the_api_server_refuses_changes_no_pod(release):
    before = release.numbers()
    said = release.helm("upgrade", release.name, *_chart(release), "--set=controller.storage=2Gi", check=False)
    assert "UPGRADE FAILED" in said and "updates to statefulset spec" in said
    assert release.numbers() == before
    release.upgrade()
    assert release.numbers() == before


def _chart(release, **changes):
    return CHART, "-f", release.values(**changes)


def test_an_image_of_the_job_that_is_not_there_is_told_by_its_pod(cluster):
    other = Release(cluster, "other")
    said = other.helm("install", "other", *_chart(other, images=VALUES["images"] | {"controller": "localhost/absent"}), "--timeout=30s",
                      check=False)
    assert "INSTALLATION FAILED: failed pre-install" in said
    (pod,) = other.pods().values()
    waiting = [one["state"].get("waiting", {}) for one in pod["status"]["initContainerStatuses"]]
    assert waiting[0]["reason"] in ("ErrImagePull", "ImagePullBackOff") and "localhost/absent:0.1.0" in waiting[0]["message"]
    other.helm("uninstall", "other")
    left = {name for name in there(cluster) if "/other-" in name}
    assert {name.partition("/")[0] for name in left} == {"job.batch", "pod"}, "for a look"
    other.kubectl("delete", "job", "other-fairway-certificates")


def test_a_worker_whose_image_is_not_there_is_mended_by_an_upgrade_that_rolls(cluster):
    cluster.add_volume("other")
    other = Release(cluster, "other")
    other.install(islands=[{"name": "a", "image": "localhost/absent:1"}, {"name": "b"}])
    other.wait_until_ready("other-fairway-controller-0", "other-fairway-b-0")

    def waits():
        return "other-fairway-a-0" in other.pods() and [
            one["state"].get("waiting", {}).get("reason") for one in other.pods()["other-fairway-a-0"]["status"].get("containerStatuses", [])]

    wait_for(lambda: waits() in (["ErrImagePull"], ["ImagePullBackOff"]), "the pod to say why")
    assert "Phase:          Succeeded" in other.helm("test", "other"), "the other island serves"
    other.upgrade("--set=rollIslands=true", islands=[{"name": "a"}, {"name": "b"}])
    assert other.is_ready("other-fairway-a-0")
    other.helm("uninstall", "other")
    other.all_end()
    other.kubectl("delete", "secrets,persistentvolumeclaims", "--selector=app.kubernetes.io/instance=other")
    assert not {name for name in there(cluster) if "other-" in name}, "by the command of the page"


def test_the_commands_for_secrets_of_ones_own_lead_to_a_cluster(cluster, tmp_path):
    """Those of docs/kubernetes.md, for a release of another name."""
    section = (ROOT / "docs" / "kubernetes.md").read_text().partition("### Secrets of your own")[2]
    block = re.search(r"```sh\n(.*?)```", section, re.S)[1]
    own = Release(cluster, "own")
    block = block.replace("fw-fairway-", "own-fairway-")
    done = cluster.run("env", f"PATH={BIN}:{MADE}:/usr/bin:/bin", "sh", "-euc", block, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    cluster.add_volume("own")
    values = {"tls": {"mode": "existing", "controllerSecret": "our-controller", "islandSecretPrefix": "our-island-"},
              "admin": {"secret": "our-admin"}, "islands": [{"name": "island0"}]}
    own.install(**values)
    own.wait_until_ready("own-fairway-controller-0", "own-fairway-island0-0")
    own.helm("uninstall", "own")
    own.all_end()
    assert {name for name in there(cluster) if "own-" in name} == {"persistentvolumeclaim/data-own-fairway-controller-0"}
    own.kubectl("delete", "persistentvolumeclaim/data-own-fairway-controller-0", "secret/our-controller", "secret/our-admin",
                "secret/our-island-island0")


def test_an_uninstall_leaves_the_volume_and_the_secrets_and_the_next_install_takes_them_up(release, client, user):
    cluster = release.cluster
    release.helm("uninstall", release.name)
    release.all_end()
    assert there(cluster) == {VOLUME} | MADE_ONCE | CERTIFICATES
    release.install()
    release.wait_until_ready()
    all_serve(client)
    release.helm("uninstall", release.name)
    release.all_end()
    release.kubectl("delete", "secrets,persistentvolumeclaims", "--selector=app.kubernetes.io/instance=fw")
    assert there(cluster) == set(), "by the command of the page"
