"""The service account of our own pod: where it is found, and errors in it."""

from __future__ import annotations

import pytest

from kubewright.base.errors import CertificateError, UsageError
from kubewright.kube.credentials import BearerToken
from kubewright.kube.daemons import in_cluster
from kubewright.kube.daemons.in_cluster import AUTHORITY, TOKEN

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def files(**changes: bytes | None) -> dict:
    content = {TOKEN: b"aaa.bbb.ccc\n", AUTHORITY: b"the CA"} | {
        {"token": TOKEN, "ca": AUTHORITY}[name]: data for name, data in changes.items()
    }
    return {path: data for path, data in content.items() if data is not None}


def test_the_service_account_of_the_pod_is_read():
    found = in_cluster.in_cluster_access(POD, read=files().get)
    assert (found.server, found.ca_pem, found.identity) == ("https://10.96.0.1:443", b"the CA", BearerToken("aaa.bbb.ccc"))
    assert str(TOKEN) == "/var/run/secrets/kubernetes.io/serviceaccount/token"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("fd00::1", "https://[fd00::1]:443"),
        ("kubernetes.default", "https://kubernetes.default:443"),
        ("::ffff:1.2.3.4", "https://[::ffff:1.2.3.4]:443"),
    ],
)
def test_the_address_is_joined_as_go_does(host, expected):
    assert in_cluster.in_cluster_access(POD | {"KUBERNETES_SERVICE_HOST": host}, read=files().get).server == expected


@pytest.mark.parametrize("name", POD)
def test_outside_a_pod_there_is_none(name):
    environment = {key: value for key, value in POD.items() if key != name}
    assert not in_cluster.is_in_cluster(environment)
    with pytest.raises(UsageError, match="no pod"):
        in_cluster.in_cluster_access(environment, read=files().get)


@pytest.mark.parametrize("changes", [{"token": None}, {"token": b"\n"}, {"token": b"a b"}, {"token": b"\xff"}, {"ca": None}, {"ca": b""}])
def test_an_incomplete_service_account_is_refused(changes):
    with pytest.raises(CertificateError) as error:
        in_cluster.in_cluster_access(POD, read=files(**changes).get)
    assert "automountServiceAccountToken" in error.value.remedy
