"""Where the configuration of the `certs` commands comes from: a file, the cluster, the defaults."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from certs_kit import CONFIG

from kubewright.apis.machine import Layout
from kubewright.base import yaml
from kubewright.base.errors import DocumentError, Unreachable, ValidationError
from kubewright.base.events import Line, RecordingReporter, Warned
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.recording import RecordingKube
from kubewright.lifecycle.certs import configuration
from kubewright.lifecycle.certs.configuration import GivenConfiguration

STORED = f"{CONFIG}certificatesDir: /cluster\ncertificateValidityPeriod: 100h\n"


def config_map(text=STORED):
    metadata = {"name": "kubeadm-config", "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ClusterConfiguration": text} if text else {}}


def load(asked=GivenConfiguration(), *, api=None, connect=None):  # noqa: B008 - a frozen value
    reporter = RecordingReporter()
    connect = connect or (lambda: api)
    cluster = configuration.cluster_configuration(asked, connect=connect, reporter=reporter, topic="renew", layout=Layout())
    lines = [event.text for event in reporter.events if isinstance(event, Line)]
    return cluster, lines, [event.text for event in reporter.events if isinstance(event, Warned)]


def cluster_of(text=STORED):
    return RecordingKube(stand_ins=[config_map(text)])


def test_a_file_overrides_the_cluster_silently():
    documents = yaml.load_all(f"{CONFIG}certificatesDir: /file\n", source="kubeadm.yaml")
    api = cluster_of()
    cluster, lines, warnings = load(GivenConfiguration(documents=documents), api=api)
    assert (cluster.certificates_dir, lines, warnings, api.actions) == ("/file", [], [], [])


def test_use_of_the_cluster_configuration_is_announced():
    cluster, lines, warnings = load(api=cluster_of())
    assert (cluster.certificates_dir, str(cluster.certificate_validity_period)) == ("/cluster", "100h0m0s")
    assert cluster.encryption_algorithm == "ECDSA-P256"
    assert len(lines) == 3
    assert lines[2] == ""
    assert "kubeadm-config" in lines[0]
    assert warnings == []


def test_defaults_are_used_silently_without_a_kubeconfig():
    cluster, lines, warnings = load()
    assert (cluster.certificates_dir, cluster.encryption_algorithm, lines, warnings) == ("/etc/kubernetes/pki", "RSA-2048", [], [])


@pytest.mark.parametrize("directory", ["/flag"])
def test_a_given_directory_overrides_any_configuration(directory):
    documents = yaml.load_all(f"{CONFIG}certificatesDir: /file\n", source="kubeadm.yaml")
    for asked, api in ((GivenConfiguration(cert_dir=directory), cluster_of()), (GivenConfiguration(cert_dir=directory), None)):
        assert load(asked, api=api)[0].certificates_dir == directory
    assert load(GivenConfiguration(documents=documents, cert_dir=directory))[0].certificates_dir == directory


@pytest.mark.parametrize("text", ["", "[]", "kind: {", "kind: Nonsense\napiVersion: v1\n", f"{CONFIG}networking: 5\n"])
def test_an_invalid_cluster_configuration_is_reported_and_defaults_are_used(text):
    cluster, lines, warnings = load(api=cluster_of(text))
    assert cluster.certificates_dir == "/etc/kubernetes/pki"
    assert len(lines) == 4
    assert "defaults" in lines[2]
    assert len(warnings) == 1


def test_a_cluster_that_does_not_answer_is_reported():
    class Silent(RecordingKube):
        def send(self, *_: object):
            raise Unreachable("no answer")

    assert load(api=Silent())[2] == ["no answer"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [("{", "admin.conf"), ("kind: Nonsense\n", "admin.conf"), ("apiVersion: v1\nkind: Config\ncurrent-context: missing\n", "missing")],
)
def test_a_kubeconfig_that_cannot_be_loaded_is_reported_and_defaults_are_used(content, reason):
    cluster, lines, [warning] = load(connect=lambda: load_access(PurePosixPath("admin.conf"), read=lambda _: content.encode()))
    assert (cluster.certificates_dir, lines) == ("/etc/kubernetes/pki", [])
    assert reason in warning
    assert warning.endswith("; the defaults are used")


@pytest.mark.parametrize("version", ["v1.20.0", "v1.99.0", "nonsense"])
def test_the_version_of_the_cluster_does_not_matter(version):
    cluster, _, warnings = load(api=cluster_of(STORED.replace("v1.36.3", version)))
    assert (cluster.certificates_dir, warnings) == ("/cluster", [])


def test_an_invalid_file_is_an_error():
    wrong = yaml.load_all(f"{CONFIG}networking: 5\n", source="kubeadm.yaml")
    with pytest.raises(ValidationError):
        load(GivenConfiguration(documents=wrong), api=cluster_of())
    with pytest.raises(DocumentError):
        load(GivenConfiguration(documents=[]), api=cluster_of())
