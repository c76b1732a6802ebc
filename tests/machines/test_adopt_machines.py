"""Machines that kubeadm made and kubewright takes over: what it would change, and what it refuses without `--adopt`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from machine_kit import CONFIG, INIT, SHARED, eventually, join_command, kubectl, kubewright, write
from testbed.bed import Bed

from kubewright.machines.parts import Parts

MANIFESTS = "/etc/kubernetes/manifests"
IGNORED = "--ignore-preflight-errors=SystemVerification"


@pytest.fixture(scope="module")
def bed(parts: Parts) -> Iterator[Bed]:
    """A control plane and a worker that kubeadm made."""
    with Bed("one", "two", bed="adopt", parts=parts, shared=SHARED) as made:
        one, two = made["one"], made["two"]
        write(one, CONFIG, INIT.format(address=one.address))
        one.run("kubeadm", "init", "--config", CONFIG)
        two.run("mkdir", "-p", MANIFESTS)  # as the kubelet's package (kubernetes/release: cmd/krel/templates/latest/kubelet/kubelet.spec)
        two.run("kubeadm", *join(made), IGNORED)
        eventually(lambda: len(kubectl(one, "get", "nodes").get("items", [])) == 2, "two Nodes")
        # four static ones, two of CoreDNS, kube-proxy on both Nodes; the kubelet reports static pods to the cluster
        # with a delay
        eventually(lambda: len(kubectl(one, "-n", "kube-system", "get", "pods").get("items", [])) == 8, "all pods to be there")
        yield made


def join(bed: Bed) -> list[str]:
    return join_command(bed["one"], tool=("kubeadm",))


def test_a_control_plane_of_kubeadm_is_adopted_on_request(bed: Bed) -> None:
    """With the same configuration nothing changes; it is changed only on request, and belongs to kubewright from then on."""
    one = bed["one"]
    assert kubewright(one, "init", "--plan", "--config", CONFIG).out == ""
    refused = kubewright(one, "init", "--config", CONFIG, check=False)
    assert refused.code == 1
    assert "error: this machine is part of a cluster, but kubewright did not set it up" in refused.err
    assert "--adopt" in refused.err

    write(one, "/root/other.yaml", INIT.format(address=one.address).replace("10.244.0.0/16", "10.245.0.0/16"))
    other = kubewright(one, "init", "--adopt", "--config", "/root/other.yaml", check=False)
    assert other.code == 1
    assert "+      podSubnet: 10.245.0.0/16" in other.err

    admin, state = "/etc/kubernetes/admin.conf", "find /etc/kubernetes /var/lib/kubewright -type f -exec sha256sum {} + | sort"
    one.run("mv", admin, "/root/admin.conf")
    before = one.run("sh", "-c", state, check=False).out
    for words in (["--adopt"], ["--adopt", "--plan"]):
        blind = kubewright(one, "init", *words, "--config", CONFIG, check=False)
        assert (blind.code, blind.out) == (1, "")
        assert f"{admin} does not exist" in blind.err
        assert "init phase kubeconfig admin" in blind.err
    assert one.run("sh", "-c", state, check=False).out == before
    kubewright(one, "init", "phase", "kubeconfig", "admin", "--config", CONFIG)
    one.run("mv", "/root/admin.conf", admin)

    pods = {pod["metadata"]["uid"] for pod in kubectl(one, "-n", "kube-system", "get", "pods")["items"]}
    assert "no changes: the configuration is that of" in kubewright(one, "init", "--adopt", "--config", CONFIG).out
    assert kubewright(one, "init", "--config", CONFIG).code == 0
    assert kubewright(one, "init", "--plan", "--config", CONFIG).out == ""
    assert {pod["metadata"]["uid"] for pod in kubectl(one, "-n", "kube-system", "get", "pods")["items"]} == pods


def test_a_worker_of_kubeadm_is_adopted_on_request(bed: Bed) -> None:
    """Nothing changes either, unless its kubelet was installed without a package: then it lacks a directory and logs errors about it."""
    words, two = [*join(bed), IGNORED], bed["two"]
    two.run("rmdir", MANIFESTS)
    assert kubewright(two, *words, "--plan").out == f"create directory {MANIFESTS} (mode 0700)\n\nplan: 1 to create\n"
    two.run("mkdir", MANIFESTS)
    assert kubewright(two, *words, "--plan").out == ""
    refused = kubewright(two, *words, check=False)
    assert refused.code == 1
    assert "kubewright did not set it up" in refused.err
    assert "no changes: the configuration is that of" in kubewright(two, *words, "--adopt").out
    assert kubewright(two, *words, "--plan").out == ""
    assert kubewright(two, *words).code == 0
