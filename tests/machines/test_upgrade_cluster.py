"""A cluster of three control planes and a worker behind a load balancer, which kubeadm made and both tools joined, is upgraded machine by machine.

kubewright runs `apply`; both tools run `node`. `test_upgrade_matrix.py` has the whole matrix of tools.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml
from balancer_kit import PORT, Balancer, Client
from cluster_kit import KUBEADM, KUBEWRIGHT, TOKEN, at_once, configuration, run
from interop_kit import nodes, words_of
from level_kit import (
    ETCD_LEAVES,
    FAILURES_MATRIX,
    IGNORED,
    NEXT,
    PATCHES,
    apply,
    argument,
    changed,
    changes,
    content,
    patch,
    require_running,
)
from machine_kit import CONFIG, SHARED, Running, eventually, kubectl, kubewright, patiently, ready, signed, write
from state_kit import data_of, has_data, require_same, votes
from testbed import patch_level
from testbed.bed import Bed
from upgrade_cells import alike, container_of, require_next, workload
from upgrade_stages import WITHOUT_CHECKS

from kubewright.base.level import KUBERNETES
from kubewright.machines.images import of_release
from kubewright.machines.machine import Ended, Machine
from kubewright.machines.parts import Parts
from matrices import Matrix

FIRST, SECOND, THIRD, WORKER = "first", "second", "third", "worker"
CONTROL_PLANES = (FIRST, SECOND, THIRD)
TOOLS = {SECOND: KUBEWRIGHT, THIRD: KUBEADM, WORKER: KUBEWRIGHT}
"""The tools that join the machines. kubeadm makes the first one."""
HURRIED = f"""\
apiVersion: kubeadm.k8s.io/v1beta4
kind: UpgradeConfiguration
node: {{ignorePreflightErrors: [SystemVerification, CreateJob], patches: {{directory: {PATCHES}}}}}
timeouts: {{etcdAPICall: 5s}}
"""
"""What kubeadm is given: by default, it waits for a dead member for two minutes before it calls the others enough."""
IMPATIENT = HURRIED.replace("etcdAPICall: 5s", "upgradeManifests: 75s")
"""What kubewright is given: by default, it waits five minutes for a component that runs and is not ready."""
NEVER_READY = argument("--peer-trusted-ca-file=/etc/kubernetes/pki/etcd/server.crt")
"""An etcd that runs, but trusts none of its peers, and so never has a leader."""
OTHER_ARGUMENT = "--goaway-chance=0.001"
"""An argument of the API server that changes nothing for the tests."""
CUT_OFF = "an etcd on one of three that is never ready"
PROXY = ("-n", "kube-system", "get", "daemonset", "kube-proxy")


@dataclass(frozen=True)
class Cluster:
    """The machines of a cluster, and the address of the load balancer in front of it."""

    bed: Bed
    address: str

    def __getitem__(self, name: str) -> Machine:
        return self.bed[name]


@pytest.fixture(scope="module")
def cluster(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Bed(*CONTROL_PLANES, WORKER, bed="upgrade-cluster", parts=parts, shared=SHARED) as bed:
        assert bed.network is not None
        made = Cluster(bed, bed.network.gateway)
        balancer = Balancer(made.address, [bed[name].address for name in CONTROL_PLANES])
        levels = patch_level.images(of_release(parts.base), KUBERNETES, NEXT)
        proxy = [one for one in levels if "kube-proxy" in one.reference]
        try:
            at_once(
                lambda: _make(made),
                lambda: patch_level.give_all([bed[name] for name in CONTROL_PLANES], levels),
                lambda: patch_level.give(bed[WORKER], proxy),
            )
            eventually(lambda: ready(bed[FIRST], "deployment", "coredns"), "CoreDNS: a Job is done first")
            require_ready(made)
            yield made
        finally:
            balancer.close()


def _make(cluster: Cluster) -> None:
    first = cluster[FIRST]
    text = configuration(first).replace("cluster.test:6443", f"{cluster.address}:{PORT}")
    write(first, CONFIG, text.replace("controlPlaneComponentHealthCheck: 10m", "controlPlaneComponentHealthCheck: 4m"))
    control_plane, worker = words_of(run(KUBEADM, first, "init", "--config", CONFIG, "--upload-certs").out)
    signed(first, TOKEN)
    words = {SECOND: control_plane, THIRD: control_plane, WORKER: worker}

    def join(name: str) -> None:
        joining = patiently(cluster[name], words[name])
        cluster[name].run("sed", "-i", "/controlPlaneComponentHealthCheck/d", CONFIG)  # an upgrade writes the default into each manifest
        run(TOOLS[name], cluster[name], *joining)

    join(SECOND)
    at_once(partial(join, THIRD), partial(join, WORKER))


def node(machine: Machine, *more: str, check: bool = True) -> Ended:
    return kubewright(machine, "upgrade", "node", IGNORED, *more, check=check)


def image(machine: Machine) -> str:
    """Return the tag of kube-proxy's image."""
    spec = kubectl(machine, *PROXY).get("spec", {"template": {"spec": {"containers": [{"image": ""}]}}})
    return str(spec["template"]["spec"]["containers"][0]["image"]).rpartition(":")[2]


def client(cluster: Cluster, path: Path) -> Client:
    """Return a client with the certificate of an administrator."""
    kubernetes = cluster[FIRST].root / "etc/kubernetes"
    user = yaml.safe_load((kubernetes / "admin.conf").read_bytes())["users"][0]["user"]
    pair = path / "client.pem"
    pair.write_bytes(b"".join(base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")))
    context = ssl.create_default_context(cafile=str(kubernetes / "pki/ca.crt"))
    context.load_cert_chain(pair)
    return Client(cluster.address, "/api/v1/namespaces/kube-system/configmaps/kubeadm-config", context)


def test_no_request_fails_while_a_cluster_is_upgraded_machine_by_machine(cluster: Cluster, tmp_path: Path) -> None:
    first, second = cluster[FIRST], cluster[SECOND]
    workload(first, WORKER)
    works = container_of(first, WORKER)
    etcd = [content(machine)["manifests/etcd.yaml"] for machine in (first, second)]
    with client(cluster, tmp_path) as asking:
        apply(first)
        require_running(first, NEXT)
        require_running(second, KUBERNETES)
        assert image(first) == KUBERNETES
        begun = asking.asked
        node(second)
        require_running(second, NEXT)
    assert asking.failures == []
    assert 0 < begun < asking.asked
    assert image(first) == KUBERNETES
    assert container_of(first, WORKER) == works
    assert [content(machine)["manifests/etcd.yaml"] for machine in (first, second)] == etcd


def test_an_etcd_that_is_never_ready_on_one_of_three_is_restored(cluster: Cluster, matrix: Callable[[str], Matrix]) -> None:
    """Meanwhile, kubeadm completes the upgrade of the cluster of the test before: it has restarted etcd and the API server of another machine."""
    first, second, third = (cluster[name] for name in CONTROL_PLANES)
    works = container_of(first, WORKER)
    etcd = [content(machine)["manifests/etcd.yaml"] for machine in (first, second)]
    patch_level.install(third, KUBEADM, KUBERNETES, NEXT)
    upgrading = Running(third, "upgrade", "node", IGNORED, tool=(KUBEADM,), KUBECONFIG="/etc/kubernetes/admin.conf")
    upgrading.says('Component "kube-apiserver" upgraded successfully!')
    require_restored(cluster)
    matrix(FAILURES_MATRIX).record(CUT_OFF, KUBEWRIGHT, "as before")
    upgraded = upgrading.ended()
    assert upgraded.code == 0, upgraded.err
    require_next(third)
    require_same(alike(third), alike(second))
    for tool in (KUBEWRIGHT, KUBEADM):
        matrix("upgrade").record(f"made by {KUBEADM}", f"{KUBEWRIGHT} apply, {tool} node")
    assert image(first) == NEXT
    require_upgraded(cluster)
    assert container_of(first, WORKER) == works
    assert [content(machine)["manifests/etcd.yaml"] for machine in (first, second)] == etcd


def require_upgraded(cluster: Cluster) -> None:
    """Upgrade the worker, and require that nothing is left to do."""
    first, second, worker = cluster[FIRST], cluster[SECOND], cluster[WORKER]
    node(worker)
    for machine in (second, worker):
        before = content(machine)
        assert changes(node(machine, "-o", "json")) == []
        assert content(machine) == before
    assert votes(first) == dict.fromkeys(CONTROL_PLANES, True)
    require_ready(cluster)
    run(KUBEADM, first, "certs", "check-expiration")


def require_ready(cluster: Cluster) -> None:
    wanted = {**dict.fromkeys(CONTROL_PLANES, (True, True)), WORKER: (True, False)}
    eventually(lambda: nodes(cluster[FIRST]) == wanted, "all Nodes to be ready")


def healthy(cluster: Cluster) -> set[str]:
    """Return the machines whose own member of etcd is healthy."""
    said = json.loads(kubewright(cluster[FIRST], "etcd", "status", "-o", "json", check=False).out or "{}")
    return {one["name"] for one in said.get("members", ()) if not one.get("problem")}


def require_restored(cluster: Cluster) -> None:
    """Let an etcd be never ready on one of three. Meanwhile, another machine waits for its turn to restart its API server."""
    first, second = cluster[FIRST], cluster[SECOND]
    patch(second, "etcd", NEVER_READY)
    write(second, CONFIG, IMPATIENT)
    patch(first, "kube-apiserver", argument(OTHER_ARGUMENT))
    before = content(second)
    data = data_of(second)
    failing = Running(second, "upgrade", "node", "--config", CONFIG)
    failing.says("Waiting for the kubelet to restart etcd")
    # the Job of its checks may take a minute, after which the other one has ended
    waiting = Running(first, "upgrade", "node", *WITHOUT_CHECKS, "--patches", PATCHES)
    waiting.says("second is working")
    assert OTHER_ARGUMENT.encode() not in content(first)["manifests/kube-apiserver.yaml"]
    ended = failing.ended()
    assert (
        ended.code,
        "error: error execution phase control-plane: etcd failed; this machine is back in its earlier state" in ended.err,
    ) == (1, True), ended.err
    assert "the last lines of etcd" in ended.err, ended.err
    assert changed(before, content(second)) == ETCD_LEAVES
    assert has_data(second, data)
    waited = waiting.ended()
    assert (waited.code, OTHER_ARGUMENT.encode() in content(first)["manifests/kube-apiserver.yaml"]) == (0, True), waited.err
    eventually(lambda: healthy(cluster) == set(CONTROL_PLANES), "all members to be healthy")


def test_a_member_that_dies_while_another_one_is_restarted_ends_as_before_or_as_wanted(
    cluster: Cluster, matrix: Callable[[str], Matrix]
) -> None:
    second, third = cluster[SECOND], cluster[THIRD]
    patch(second, "etcd", argument("--max-request-bytes=1572865"))
    upgrading = Running(second, "upgrade", "node", IGNORED, "--patches", PATCHES)
    upgrading.says("Waiting for the kubelet to restart etcd")
    third.cut_power()
    ended = upgrading.ended()
    assert "Traceback" not in ended.err
    has_patch = b"--max-request-bytes=1572865" in content(second)["manifests/etcd.yaml"]
    assert has_patch is (ended.code == 0), ended.err
    matrix(FAILURES_MATRIX).record("another member dies meanwhile", KUBEWRIGHT, "as wanted" if has_patch else "as before")
    eventually(lambda: healthy(cluster) == {FIRST, SECOND}, "the members of the other machines to be healthy")
    patch(second, "etcd", argument("--max-request-bytes=1572866"))
    before = content(second)
    refused = node(second, "--patches", PATCHES, check=False)
    assert (refused.code, "would lose its quorum: other members are dead" in refused.err) == (1, True), refused.err
    assert changed(before, content(second)) == set()
    third.boot()
    third.ready()
    eventually(lambda: healthy(cluster) == set(CONTROL_PLANES), "all members to be healthy")


def test_kubeadm_calls_an_etcd_that_is_never_ready_on_one_of_three_a_success(cluster: Cluster, matrix: Callable[[str], Matrix]) -> None:
    """The kubelet uses the load balancer, as in clusters from before v1.31.

    If it uses the API server of its machine, which needs this etcd, it cannot report that the static pod has changed,
    and kubeadm restores the earlier etcd after five minutes.
    """
    third = cluster[THIRD]
    third.run("sed", "-i", f"s,server: .*,server: https://{cluster.address}:{PORT},", "/etc/kubernetes/kubelet.conf")
    third.run("systemctl", "restart", "kubelet")
    patch(third, "etcd", NEVER_READY)
    write(third, CONFIG, HURRIED)
    with matrix(FAILURES_MATRIX).cell(CUT_OFF, KUBEADM) as cell:
        ended = run(KUBEADM, third, "upgrade", "node", "--config", CONFIG, check=False)
        assert ended.code == 0, ended.err
        assert healthy(cluster) == {FIRST, SECOND}
        cell.says("SUCCESS")
