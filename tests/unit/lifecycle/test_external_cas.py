"""A CA whose key is kept elsewhere: what must exist before the first phase, and what is not done."""

from __future__ import annotations

from pathlib import Path

import pytest
from init_kit import Box, asked

from kubewright.base.errors import CertificateError, UsageError
from kubewright.pki import table

FILES = ("certs", "kubeconfig", "etcd", "control-plane", "kubelet-start")


@pytest.fixture
def box(tmp_path):
    made = Box(tmp_path)
    made.run(asked(only=("certs", "kubeconfig")))
    made.reporter.events.clear()
    return made


def lose(box, *names: str):
    for name in names:
        (Path(box.layout.pki) / name).unlink()


def test_with_everything_signed_all_phases_run(box):
    lose(box, "ca.key", "front-proxy-ca.key")
    made = [change.target for change in box.run(asked(only=FILES)) if change]
    assert [target for target in made if target.startswith(("certificate", "kubeconfig", "key pair"))] == []
    assert 'Using existing "apiserver" certificate and key' in box.lines("certs")
    assert box.lines("kubeconfig").count('Using existing "admin.conf"') == 1


MISSING = ["apiserver.crt", "apiserver.key", "apiserver-kubelet-client.crt", "apiserver-kubelet-client.key"]


@pytest.mark.parametrize("name", MISSING)
@pytest.mark.parametrize("only", [FILES, ("kubelet-start",), ("certs/etcd-ca",)])
def test_a_certificate_that_cannot_be_created_is_reported_before_anything_is_done(box, name, only):
    lose(box, "ca.key", name)
    before = box.snapshot()
    with pytest.raises(CertificateError, match=name.rpartition(".")[0]):
        box.run(asked(only=only))
    assert box.snapshot() == before


@pytest.mark.parametrize("row", table.KUBECONFIGS, ids=lambda row: row.name)
def test_every_missing_kubeconfig_is_reported(box, row):
    lose(box, "ca.key")
    Path(box.layout.kubeconfig(row.name)).unlink()
    with pytest.raises(CertificateError, match=row.file):
        box.run(asked(only=("kubelet-start",)))


def test_a_kubeconfig_of_another_ca_is_refused(box, tmp_path):
    other = Box(tmp_path / "other")
    other.run(asked(only=("certs", "kubeconfig")))
    lose(box, "ca.key")
    Path(box.layout.kubeconfig("admin")).write_bytes(Path(other.layout.kubeconfig("admin")).read_bytes())
    with pytest.raises(CertificateError, match=r"admin\.conf trusts another CA"):
        box.run(asked(only=("kubelet-start",)))


def test_an_external_front_proxy_ca_requires_only_its_own_certificate(box):
    lose(box, "front-proxy-ca.key")
    Path(box.layout.kubeconfig("admin")).unlink()
    box.run(asked(only=FILES))
    lose(box, "front-proxy-client.crt")
    with pytest.raises(CertificateError, match="front-proxy-client"):
        box.run(asked(only=("kubelet-start",)))


@pytest.mark.parametrize("name", ["ca.key", "front-proxy-ca.key"])
def test_nothing_is_uploaded_without_the_keys(box, name):
    lose(box, name)
    before = box.snapshot()
    with pytest.raises(UsageError, match=f"{name} is not on this machine"):
        box.run(asked(upload_certs=True))
    assert box.snapshot() == before


def test_a_dry_run_copies_kubeconfigs_that_cannot_be_created(box, tmp_path):
    lose(box, "ca.key")
    box.dry_run(asked(), tmp_path / "dry")
    for row in table.KUBECONFIGS:
        assert (tmp_path / "dry" / row.file).read_bytes() == Path(box.layout.kubeconfig(row.name)).read_bytes()
    assert not (tmp_path / "dry" / "ca.key").exists()


def test_service_account_keys_must_be_provided_too(box):
    lose(box, "ca.key", "sa.key", "sa.pub")
    with pytest.raises(CertificateError, match=r"sa\.key and sa\.pub are missing"):
        box.run(asked(only=("certs",)))
