"""The image of `make image` in a cluster of kubeadm: machines join through our controllers, as a Deployment and as a static pod."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator
from typing import Any

import pytest
from archive_kit import REFERENCE, give_image
from cluster_kit import KUBEADM
from cryptography import x509
from interop_kit import reset
from machine_kit import CONFIG, INIT, SHARED, administer, eventually, kubectl, kubewright, patiently, printed, ready, write
from testbed.bed import Bed

from kubewright.machines.machine import Ended, Machine
from kubewright.machines.parts import Parts
from kubewright.manifests.controllers import NAME, STATIC_POD_PORT

OFF = "*,-csrapproving,-csrsigning,-csrcleaner,-bootstrapsigner,-tokencleaner"
CONTROLLERS_OFF = f"controllerManager: {{{{extraArgs: [{{{{name: controllers, value: '{OFF}'}}}}]}}}}\n"
PKI = "/etc/kubernetes/pki"


@pytest.fixture(scope="module")
def bed(parts: Parts) -> Iterator[Bed]:
    """A control plane of kubeadm whose kube-controller-manager leaves the five controllers to us, and a machine that is to join."""
    with Bed("one", "two", bed="controllers", parts=parts, shared=SHARED) as made:
        one = made["one"]
        give_image(one)
        write(one, CONFIG, INIT.replace("networking:", CONTROLLERS_OFF + "networking:").format(address=one.address))
        one.run("kubeadm", "init", "--config", CONFIG)
        yield made


def apply(one: Machine, documents: str) -> None:
    administer(one, "apply", "-f", "-", data=documents)


def join(bed: Bed) -> Ended:
    command = bed["one"].run("kubeadm", "token", "create", "--print-join-command").out.split()
    return bed["two"].run("kubeadm", *patiently(bed["two"], command[1:]))


def requests_of(one: Machine, node: str) -> list[dict[str, Any]]:
    found = kubectl(one, "get", "csr", "--show-managed-fields")["items"]
    return [csr for csr in found if _asked_for(csr) == f"system:node:{node}"]


def _asked_for(csr: dict[str, Any]) -> str:
    request = x509.load_pem_x509_csr(base64.b64decode(csr["spec"]["request"]))
    [name] = request.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(name.value)


def require_joined_through_ours(one: Machine, *, besides: Collection[str] = ()) -> None:
    """The second machine has made requests besides those of an earlier join, our controllers have approved and signed each, and it is Ready."""
    eventually(lambda: _ready(one, "two"), "the node to be ready")
    found = [csr for csr in requests_of(one, "two") if csr["metadata"]["name"] not in besides]
    assert {tuple(condition["reason"] for condition in csr["status"]["conditions"]) for csr in found} == {("AutoApproved",)}
    writers = {entry["manager"] for csr in found for entry in csr["metadata"]["managedFields"] if entry.get("subresource")}
    assert writers == {NAME}


def _ready(one: Machine, name: str) -> bool:
    conditions = kubectl(one, "get", "node", name).get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def leader(one: Machine) -> str:
    """The pod that holds the lease: its identity begins with its name."""
    holder: str = kubectl(one, "-n", "kube-system", "get", "lease", NAME).get("spec", {}).get("holderIdentity", "")
    return holder.partition("_")[0]


def test_the_image_contains_only_the_archive_and_runs_as_an_ordinary_user(bed: Bed) -> None:
    one = bed["one"]
    assert printed(one, REFERENCE, "kubewright", "version", "-o", "short") == "v1.36.3\n"
    python = ("/opt/kubewright/libexec/python3", "-c", "import os; print(os.getuid(), os.getgid(), sorted(os.listdir('/')))")
    directories = ["dev", "etc", "opt", "proc", "run", "sys", "tmp", "usr"]
    assert printed(one, REFERENCE, *python) == f"65532 65532 {directories}\n"


def test_a_machine_joins_through_the_deployment_and_the_other_replica_takes_over(bed: Bed) -> None:
    one = bed["one"]
    administer(one, "-n", "kube-system", "create", "secret", "tls", f"{NAME}-ca", "--cert", f"{PKI}/ca.crt", "--key", f"{PKI}/ca.key")
    apply(one, kubewright(one, "controllers", "manifest", "deployment", "--image", REFERENCE).out)
    eventually(lambda: ready(one, "deployment", NAME), "both replicas")
    join(bed)
    require_joined_through_ours(one)
    first = leader(one)
    administer(one, "-n", "kube-system", "delete", "pod", first, "--wait=false")
    eventually(lambda: leader(one) not in {"", first}, "the other replica to lead")
    healthy = ("-n", "kube-system", "get", "pdb", NAME)
    eventually(lambda: kubectl(one, *healthy).get("status", {}).get("currentHealthy", 0) >= 1, "the budget to count a healthy replica")


def test_a_machine_joins_through_the_static_pod(bed: Bed) -> None:
    one, two = bed["one"], bed["two"]
    administer(one, "-n", "kube-system", "delete", "deployment", NAME)
    reset(KUBEADM, two)
    administer(one, "delete", "node", "two")
    apply(one, kubewright(one, "controllers", "manifest", "rbac").out)
    write(one, f"/etc/kubernetes/{NAME}.conf", kubewright(one, "kubeconfig", "user", "--client-name", NAME).out)
    one.run("chmod", "600", f"/etc/kubernetes/{NAME}.conf")
    pod = kubewright(one, "controllers", "manifest", "static-pod", "--image", REFERENCE).out
    write(one, f"/etc/kubernetes/manifests/{NAME}.yaml", pod)
    eventually(lambda: _pod_ready(one), "the static pod")
    before = {csr["metadata"]["name"] for csr in requests_of(one, "two")}
    join(bed)
    require_joined_through_ours(one, besides=before)
    address = f"https://127.0.0.1:{STATIC_POD_PORT}"
    assert one.run("curl", "-sk", f"{address}/readyz").out.startswith("ok")
    assert one.run("curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", f"{address}/metrics").out == "403"


def _pod_ready(one: Machine) -> bool:
    conditions = kubectl(one, "-n", "kube-system", "get", "pod", f"{NAME}-one").get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
