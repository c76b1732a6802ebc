"""What a machine reports about its certificate request, in each state that a real API server and a real signer leave it in.

`tests/machines/test_faults_joining.py` tests joins with missing bindings and denied requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest
from server_kit import RunningServer

from kubewright.apis.kubeadm.types import BootstrapToken
from kubewright.base.clock import FakeClock, SystemClock
from kubewright.base.events import SilentReporter
from kubewright.base.wait import PollingWaiter
from kubewright.discovery import csr, node_requests
from kubewright.discovery.csr import RequestedCertificate
from kubewright.kube.client import KubeClient
from kubewright.kube.core import Object
from kubewright.kube.credentials import BearerToken
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, SECRET
from kubewright.lifecycle.diagnosis import failures
from kubewright.lifecycle.diagnosis.cluster import SET_CLOCK, BootstrapLook, ClusterView
from kubewright.lifecycle.diagnosis.observation import Observation
from kubewright.pki import keys
from kubewright.pki.keys import Algorithm
from kubewright.tokens import secrets

KEY = keys.generate(Algorithm.ECDSA_P256)
TOKEN = "state1.0123456789abcdef"
WAITER = PollingWaiter(clock=SystemClock(), reporter=SilentReporter())


class Machine:
    """A machine of a cluster whose kubelet sends requests with a bootstrap token, and an administrator."""

    def __init__(self, server: RunningServer, name: str) -> None:
        self.name = name
        self.admin = KubeClient(server.access(), timeout=600)
        self.kubelet = KubeClient(server.access().as_identity(BearerToken(TOKEN)), timeout=600)

    def introduce(self) -> None:
        """Create the token and its permissions, if they do not exist."""
        token = BootstrapToken(token=TOKEN, groups=[node_requests.ASKING.group], usages=["authentication"])
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": node_requests.ASKING.role}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": node_requests.ASKING.group}
        binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "states"}}
        self.admin.create(secrets.secret_object(token, clock=SystemClock()))
        self.admin.create({**binding, "roleRef": role, "subjects": [subject]})
        WAITER.until(lambda: "the token is not known yet" if self.answers() != 200 else None, within=600, saying="the token to be known")
        WAITER.until(lambda: None if self.may_ask() else "not yet", within=600, saying="the permissions of the token to be known")

    def answers(self) -> int:
        return self.kubelet.raw("GET", "/version").status

    def may_ask(self) -> bool:
        """Return whether the API server has read the binding: it reads tokens and bindings by separate watches."""
        attributes = {"group": "certificates.k8s.io", "resource": "certificatesigningrequests", "verb": "create"}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}}
        return bool(self.kubelet.create(review)["status"]["allowed"])

    def ask(self, wanted: RequestedCertificate) -> Object:
        return self.kubelet.create(wanted.body())

    def approve(self, request: Object) -> None:
        condition = {"type": "Approved", "status": "True", "reason": "Test", "message": "by hand"}
        self.admin.update({**request, "status": {"conditions": [condition]}}, subresource="approval")

    def look(self, *, ahead: timedelta = timedelta(0)) -> ClusterView:
        clock = FakeClock(SystemClock().now() + ahead)
        return BootstrapLook(self.name, connect=lambda: self.kubelet, clock=clock).look(None, thoroughly=True)

    def told(self, view: ClusterView) -> tuple[str, str]:
        seen = Observation(kubelet=None, cluster=view)
        return failures.reason(seen, "", now=0), failures.remedy(seen)


@pytest.fixture
def machine(apiserver: RunningServer) -> Iterator[Machine]:
    made = Machine(apiserver, "states-1")
    with closing(made.admin), closing(made.kubelet):
        yield made


def test_each_state_without_a_signer_and_a_lost_token_are_reported(machine: Machine) -> None:
    """Only the API server runs: nothing approves or signs."""
    machine.introduce()
    assert machine.look() == ClusterView()
    request = machine.ask(csr.node_client(machine.name, KEY))
    name = request["metadata"]["name"]
    pending, remedy = machine.told(machine.look())
    assert pending.startswith(f"certificate request {name} is Pending, and nobody approves it: system:bootstrap:state1 (")
    assert f"`kubectl certificate approve {name}`" in remedy
    machine.approve(request)
    unsigned, remedy = machine.told(machine.look())
    assert unsigned == f"certificate request {name} is Approved by kubeadm, but not signed"
    assert remedy.startswith("check that kube-controller-manager runs and has the CA's key")
    machine.admin.delete(CERTIFICATE_SIGNING_REQUEST, name)
    for ahead, way in ((timedelta(hours=3), "ahead of"), (timedelta(hours=-3), "behind")):
        view = machine.look(ahead=ahead)
        assert view.request is None
        clock, remedy = machine.told(view)
        assert clock.startswith("the clock of this machine is ")
        assert clock.endswith(f" {way} the API server's: set it")
        assert remedy == SET_CLOCK
    machine.admin.delete(SECRET, f"bootstrap-token-{TOKEN.partition('.')[0]}", namespace="kube-system")
    WAITER.until(lambda: "the token is known" if machine.answers() != 401 else None, within=600, saying="the token to be gone")
    refused, remedy = machine.told(machine.look())
    assert refused == "the API server no longer accepts the token of this machine"
    assert "`kubewright token create --print-join-command`" in remedy


def test_a_request_that_the_signer_cannot_sign_ends_the_wait(controlplane: RunningServer) -> None:
    """kube-controller-manager signs no request of a kubelet for other usages, however it was approved."""
    machine = Machine(controlplane, "states-2")
    with closing(machine.admin), closing(machine.kubelet):
        wanted = replace_usages(csr.node_client(machine.name, KEY))
        request = machine.admin.create(wanted)
        machine.approve(request)
        name = request["metadata"]["name"]

        def undecided() -> str | None:
            found = machine.admin.get(CERTIFICATE_SIGNING_REQUEST, name)
            return None if node_requests.refusal(found) else "the signer has not looked at it"

        WAITER.until(undecided, within=600, saying="the signer to refuse")
        status = node_requests.status_of(machine.admin.get(CERTIFICATE_SIGNING_REQUEST, name))
        machine.admin.delete(CERTIFICATE_SIGNING_REQUEST, name)
    assert status.refused
    assert status.text.startswith(f"the signer could not sign certificate request {name}: SignerValidationFailure: usages did not match")
    assert f"`kubectl describe csr {name}`" in status.remedy


def replace_usages(wanted: RequestedCertificate) -> Object:
    body = wanted.body()
    return {**body, "spec": {**body["spec"], "usages": ["server auth", "digital signature"]}}
