"""A further control plane that already has an admin.conf, which is used only if it belongs to the right cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from init_kit import Box, asked
from join_kit import JoinBox

from kubewright.base.clock import FakeClock
from kubewright.base.errors import CertificateError, HostError, TrustError
from kubewright.base.records import replace


@pytest.fixture
def box(tmp_path):
    return JoinBox(tmp_path)


def make_admin(box):
    """Write the admin.conf of another cluster, and that cluster's CA."""
    plain = Box(box.root)
    for phase in ("certs/ca", "kubeconfig/admin"):
        plain.act(asked(only=(phase,)))


def made_by_another(box):
    for place in (box.layout.kubeconfig("kubelet"), box.layout.kubelet_config, box.layout.manifest("kube-apiserver")):
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        Path(place).write_text("")


def test_an_admin_conf_of_an_unpinned_cluster_is_not_trusted(box):
    make_admin(box)
    before = box.snapshot()
    with pytest.raises(TrustError, match=r"admin\.conf belongs to another cluster") as refused:
        box.plan(box.request(control_plane=True))
    assert box.cluster.pin in refused.value.detail
    assert box.cluster.asked == []
    assert box.snapshot() == before


def test_an_admin_conf_of_another_cluster_is_not_trusted(box):
    make_admin(box)
    Path(box.layout.certificate("ca")).write_bytes(box.cluster.ca)
    with pytest.raises(CertificateError, match="belongs to another cluster than this machine") as refused:
        box.plan(box.request(control_plane=True, ca_cert_hashes=(), unsafe_skip_ca_verification=True))
    assert "move it away" in refused.value.remedy
    assert box.cluster.asked == []


def test_an_expired_admin_conf_gives_a_hint_to_renew_it(box):
    make_admin(box)
    box.clock = FakeClock(box.clock.now().replace(year=box.clock.now().year + 2))
    with pytest.raises(CertificateError, match=r"cannot be used: expired 36[56] d ago") as refused:
        box.plan(box.request(control_plane=True))
    assert "certs renew admin.conf" in refused.value.remedy


@pytest.mark.parametrize("adopt", [False, True])
def test_a_control_plane_of_another_tool_without_admin_conf_is_not_planned(box, adopt):
    made_by_another(box)
    request = replace(box.request(control_plane=True), adopt=adopt)
    before = box.snapshot()
    with pytest.raises(HostError, match=r"admin\.conf does not exist") as refused:
        box.plan(request)
    assert "init phase kubeconfig admin" in refused.value.remedy
    assert box.snapshot() == before
    if adopt:
        with pytest.raises(HostError, match=r"admin\.conf does not exist"):
            box.act(request)
        assert not Path(box.layout.machine_record).exists()
