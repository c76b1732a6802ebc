"""A `node join` that was refused, or failed before the kubelet has its identity, does not prevent another one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from node_kit import UNIT, Box, Node
from tenants_kit import Killed, Killer

from kubewright.apis.kubeconfig import parse, require_usable
from kubewright.apis.node_join_requests import Condition
from kubewright.base import yaml
from kubewright.base.errors import APIError, ConfigurationChanged, HostError, KubewrightError, TrustError, Unauthorized
from kubewright.base.records import replace
from kubewright.enrollment.node.joining import RequestRefused
from kubewright.pki import certificates

OTHER_SERVER = "https://10.0.0.2:6443"
JOINS = {
    "another name": {"node": "other"},
    "another name and other SANs": {"node": "other", "sans": ("10.0.0.7", "other.test")},
    "another container runtime": {"node": "other", "runtime_endpoint": "unix:///run/crio/crio.sock"},
    "another cluster": {"server": OTHER_SERVER},
}


def _taken(box, tmp_path):
    other = Box(tmp_path / "other-machine")
    other.cluster, other.seed = box.cluster, 8
    other.join()
    with pytest.raises(APIError, match="another machine has requested to join as worker"):
        box.join()


def _refused(reason):
    def refused(box, _):
        box.cluster.condition = Condition(status="False", reason=reason, message="not this one")
        with pytest.raises(RequestRefused, match=reason):
            box.join()
        box.cluster.condition = Condition(status="True", reason="Issued")

    return refused


def _token(box, _):
    box.cluster.refusals = (Unauthorized("no", code=401),) * 10_000
    with pytest.raises(Unauthorized):
        box.join()
    box.cluster.refusals = ()


def _pin(box, _):
    with pytest.raises(TrustError):
        box.join(fingerprint=f"sha256:{'0' * 64}")


def _answer(box, _):
    box.cluster.change = lambda answer: replace(answer, client_ca=answer.serving_certificate)
    with pytest.raises(TrustError):
        box.join()
    box.cluster.change = lambda answer: answer


def _disk(box, _):
    class Full(Killer):
        def before(self) -> bool:
            if self.steps == 8:
                raise HostError("no space is left")
            self.steps += 1
            return False

    with pytest.raises(HostError):
        box.join(killer=Full())


REFUSED = {
    "the name is another's": _taken,
    "NameNotAllowed": _refused("NameNotAllowed"),
    "SanNotAllowed": _refused("SanNotAllowed"),
    "a token that is not known": _token,
    "a join key that is not pinned": _pin,
    "an answer for another machine": _answer,
    "a disk that is full": _disk,
}


def state(box):
    """The results of a join: files with their modes, the kubelet's configuration, the identity, and the record."""
    root, layout = Path(box.layout.state).parent, box.layout
    kubeconfig = require_usable(parse(yaml.load_one(Path(layout.oneinfra / "kubelet.conf").read_bytes(), source="")))
    serving = certificates.parse(Path(layout.oneinfra / "kubelet.crt").read_bytes())[0]
    return {
        "files": {str(path.relative_to(root)): oct(path.stat().st_mode) for path in sorted(root.rglob("*"))},
        "kubelet": Path(layout.kubelet_config).read_text().replace(str(root), "ROOT"),
        "node": (certificates.parse(kubeconfig.user.client_certificate_data)[0].common_name, kubeconfig.cluster.server),
        "names": serving.names,
        "record": json.loads(Path(layout.machine_record).read_text()),
    }


@pytest.mark.parametrize(
    ("refused", "after"),
    [*((refused, "another name") for refused in REFUSED), *(("the name is another's", after) for after in list(JOINS)[1:])],
)
def test_a_join_after_a_refusal_gives_the_result_of_a_fresh_machine(tmp_path, refused, after, matrix):
    box, fresh = Box(tmp_path / "machine"), Box(tmp_path / "fresh")
    with matrix("other configurations after node join").cell(f"node join, {refused}", after):
        REFUSED[refused](box, tmp_path)
        if JOINS[after].get("server"):
            box.cluster = fresh.cluster.__class__()
        box.join(**JOINS[after])
        fresh.join(**JOINS[after])
        assert state(box) == state(fresh)


def test_a_pending_request_is_continued_after_another_was_tried(tmp_path):
    """Its key stays: without it, the machine would take its own request for another machine's."""
    box = Box(tmp_path)
    _refused("NotYet")(box, tmp_path)
    with pytest.raises(APIError, match="an earlier request for worker has other names"):
        box.join(sans=("10.0.0.9",))
    key = Path(box.layout.join_key).read_bytes()
    with pytest.raises(RequestRefused):
        box.join()
    assert (Path(box.layout.join_key).read_bytes(), box.cluster.created) == (key, 1)


def test_another_name_is_refused_once_the_kubelet_has_its_identity(tmp_path):
    box = Box(tmp_path)
    killed = 0
    for number in range(60):
        box = Box(tmp_path / str(number))
        try:
            box.join(killer=Killer(number, after=True))
        except Killed:
            killed += 1
        else:
            break
        if not Path(box.layout.oneinfra / "kubelet.conf").exists():
            continue
        with pytest.raises(ConfigurationChanged, match="was created with another configuration"):
            box.join(node="other")
    assert killed >= 9


@pytest.mark.parametrize("ours", [True, False])
def test_a_failed_vpn_leaves_nothing(tmp_path, ours):
    node, fresh = Node(tmp_path / "one", ours=ours), Node(tmp_path / "two", ours=ours)
    stopped = False
    for number in range(60):
        try:
            node.join(killer=Killer(number))
        except Killed:
            stopped = stopped or (node.disk.read(UNIT) is not None and node.disk.state(node.layout.oneinfra / "kubelet.conf") is None)
            if stopped:
                break
    assert stopped
    node.cluster = fresh.cluster.__class__(ours=ours)
    assert node.disk.service("oi-wg").running
    node.join(node="other")
    fresh.join(node="other")
    node.require_tunnel(ours=ours)
    assert node.text(UNIT).replace(str(tmp_path / "one"), "ROOT") == fresh.text(UNIT).replace(str(tmp_path / "two"), "ROOT")


def test_a_join_to_another_cluster_uses_new_keys(tmp_path):
    box = Box(tmp_path)
    _refused("NameNotAllowed")(box, tmp_path)
    key = Path(box.layout.join_key).read_bytes()
    box.cluster, box.seed = box.cluster.__class__(), 8
    box.cluster.condition = Condition(status="False", reason="NameNotAllowed", message="")
    with pytest.raises(KubewrightError):
        box.join(server=OTHER_SERVER)
    assert Path(box.layout.join_key).read_bytes() != key
