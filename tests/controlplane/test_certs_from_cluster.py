"""`certs` with the configuration of a real cluster, through --kubeconfig."""

from __future__ import annotations

import contextlib
from pathlib import PurePosixPath

import pytest

from kubewright.apis.kubeconfig import EmbeddedCertificate, kubeconfig_document
from kubewright.apis.machine import Addresses, Detected, Layout
from kubewright.base import yaml
from kubewright.base.clock import SystemClock
from kubewright.base.errors import AlreadyExists, NotFound
from kubewright.base.randomness import SystemRandom
from kubewright.cli.handlers import machine as cli_machine
from kubewright.cli.main import main
from kubewright.host.certificates import HostCertificateStore
from kubewright.host.real import RealHost
from kubewright.kube.resources import CONFIG_MAP
from kubewright.lifecycle.certs import configuration
from kubewright.pki import certificates, ensure, specs

STORED = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
encryptionAlgorithm: ECDSA-P384
certificateValidityPeriod: 100h
certificatesDir: {directory}
"""


@pytest.fixture
def machine(apiserver, admin, tmp_path, monkeypatch):
    """A control plane's certificates in a directory that only the cluster's configuration names."""
    host = RealHost(layout=Layout.below(PurePosixPath(tmp_path)))
    monkeypatch.setattr(cli_machine, "host", lambda *_, **__: host)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    text = STORED.format(directory=tmp_path / "moved")
    asked = configuration.GivenConfiguration(documents=yaml.load_all(text, source="stored"))
    detected = Detected(host_name="node1", default_ipv4="10.98.0.11")
    whole = configuration.whole_configuration(asked, detected=detected, random=SystemRandom(), layout=host.layout).configuration
    store = HostCertificateStore(host, directory=PurePosixPath(tmp_path / "moved"))
    wanted = specs.certificates_for(whole, Addresses.of_machine("10.98.0.11"))
    for spec in wanted:
        ensure.ensure(store, spec, ensure.IssuingSources(SystemClock(), SystemRandom()))
    with contextlib.suppress(AlreadyExists):
        admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}})
    metadata = {"name": "kubeadm-config", "namespace": "kube-system"}
    with contextlib.suppress(NotFound):
        admin.delete(CONFIG_MAP, "kubeadm-config", "kube-system")
    admin.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ClusterConfiguration": text}})
    identity = apiserver.identity("kubernetes-admin", "system:masters")
    credentials = EmbeddedCertificate(certificate_pem=identity.cert_pem, key_pem=identity.key_pem)
    document = kubeconfig_document(
        server=apiserver.url, cluster_name="kubernetes", user="admin", ca_pem=apiserver.ca_pem, credentials=credentials
    )
    (tmp_path / "admin.conf").write_text(yaml.dump(document))
    yield store
    admin.delete(CONFIG_MAP, "kubeadm-config", "kube-system")


def test_directory_period_and_algorithm_come_from_the_cluster(machine, tmp_path, capsys):
    assert main(["certs", "renew", "apiserver", "--kubeconfig", str(tmp_path / "admin.conf")]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert [line.partition(" ")[0] for line in out.splitlines()] == ["[renew]", "[renew]", "", "certificate"]
    found = certificates.first(machine.read("apiserver.crt"), source="apiserver.crt")
    assert found.key_kind == "ECDSA-P384"
    assert found.lifetime.total_seconds() == 100 * 3600 + 300
    assert main(["certs", "check-expiration", "--kubeconfig", str(tmp_path / "admin.conf")]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("apiserver "))
    assert "  4d3h  " in row
