"""What a node requires of a hub's answer: any difference from its request is refused by name."""

from __future__ import annotations

import base64
from datetime import timedelta

import pytest
from hub_kit import API_CA, CLIENT_CA, CLOCK, SERVING_CA, authority, cluster

from kubewright.base import yaml
from kubewright.base.errors import CertificateError, TrustError
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.base.versions import Version
from kubewright.enrollment.hub import issuing
from kubewright.enrollment.node import answer_checks
from kubewright.enrollment.node.answer_checks import Expected
from kubewright.enrollment.protocol.fields import SymmetricKey
from kubewright.enrollment.protocol.requests import JoinRequest
from kubewright.enrollment.state.clusters import LoadedCluster
from kubewright.pki import certificates
from kubewright.pki.keys import FreshKeys

LOADED = LoadedCluster(
    cluster(kubelet_config={"failCgroupV1": False, "clusterDomain": "x", "authentication": {"webhook": {"enabled": True}}})
)
WANTED = JoinRequest(endpoint="https://10.0.0.1:6443", sans=("10.0.0.5", "worker.example.com"), key=SymmetricKey(b"k" * 32))


def issued(node: str = "worker", wanted: JoinRequest = WANTED, loaded: LoadedCluster = LOADED):
    return issuing.issue(loaded, node, wanted, key_source=FreshKeys(), started=CLOCK.now(), random=SeededRandom(1))


GOOD = issued()
OTHER = issued("other", replace(WANTED, endpoint="https://10.0.0.2:6443", sans=()))


def require(answer, *, node="worker", server="https://10.0.0.1:6443", sans=WANTED.sans, now=None, **more: object):
    given = {"node": node, "server": server, "ca_pem": API_CA[0].encode(), "sans": sans, "now": now or CLOCK.now()}
    return answer_checks.checked(answer, Expected(**{**given, **more}))


def test_certificates_of_a_hub_are_valid_and_for_one_usage_each():
    require(GOOD.answer)
    assert [one.purpose for one in GOOD.certificates] == ["client", "serving"]
    leaf = certificates.first(GOOD.answer.serving_certificate.encode(), source="x")
    assert (leaf.common_name, leaf.organizations, leaf.usages) == ("worker", ("a",), ("serverAuth",))
    assert leaf.names.dns == ("localhost", "worker", "worker.example.com")
    assert leaf.names.ips == ("127.0.0.1", "::1", "10.0.0.5")
    assert leaf.issued_by(certificates.first(SERVING_CA[0].encode(), source="x"))
    user = yaml.load(GOOD.answer.kubeconfig)["users"][0]["user"]
    client = certificates.first(base64.b64decode(user["client-certificate-data"]), source="x")
    assert (client.common_name, client.organizations, client.usages) == ("system:node:worker", ("system:nodes",), ("clientAuth",))
    assert client.issued_by(certificates.first(CLIENT_CA[0].encode(), source="x"))
    assert client.lifetime == timedelta(days=365, minutes=5)


def test_fields_of_the_cluster_are_in_the_kubelet_configuration_and_ours_override_them():
    found = yaml.load(GOOD.answer.kubelet_config)
    assert (found["failCgroupV1"], found["clusterDomain"], found["clusterDNS"]) == (False, "cluster.local", ["10.96.0.10"])
    assert found["authentication"] == {"webhook": {"enabled": True}, "x509": {"clientCAFile": "/etc/oneinfra/kubelet-client-ca.crt"}}


def changed_kubeconfig(change) -> str:
    document = yaml.load(GOOD.answer.kubeconfig)
    change(document)
    return yaml.dump(document)


def other_authority(document) -> None:
    document["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(authority("evil")[0].encode()).decode()


def with_user(**fields: object):
    return changed_kubeconfig(
        lambda document: document["users"][0]["user"].update({name.replace("_", "-"): at for name, at in fields.items()})
    )


def with_cluster(**fields: object):
    return changed_kubeconfig(
        lambda document: document["clusters"][0]["cluster"].update({name.replace("_", "-"): at for name, at in fields.items()})
    )


def another_user(document) -> None:
    document["users"].append({"name": "other", "user": {"exec": PROGRAM}})


def with_fields(text: str) -> dict[str, str]:
    document = yaml.load(GOOD.answer.kubelet_config)
    return {"kubelet_config": yaml.dump({**document, **yaml.load(text)})}


PROGRAM = {"command": "/bin/sh", "apiVersion": "client.authentication.k8s.io/v1"}


@pytest.mark.parametrize(
    ("change", "what", "why"),
    [
        ({"kubernetes_version": "new"}, "the version", ""),
        ({"kubernetes_version": "1.21.0"}, "the version", "v1.21.0 is older than v1.27.0"),
        ({"kubeconfig": "[]"}, "the kubeconfig", ""),
        ({"kubeconfig": changed_kubeconfig(other_authority)}, "the kubeconfig", "another CA"),
        ({"kubeconfig": with_user(exec=PROGRAM)}, "the kubeconfig", "no kubelet needs: exec"),
        ({"kubeconfig": changed_kubeconfig(another_user)}, "the kubeconfig", "no kubelet needs: exec"),
        ({"kubeconfig": with_user(tokenFile="/etc/shadow")}, "the kubeconfig", "no kubelet needs: token-file"),
        ({"kubeconfig": with_user(token="x")}, "the kubeconfig", "no kubelet needs: token"),
        ({"kubeconfig": with_user(username="x", password="y")}, "the kubeconfig", "no kubelet needs: username, password"),
        ({"kubeconfig": with_user(auth_provider={"name": "gcp"})}, "the kubeconfig", "no kubelet needs: auth-provider"),
        ({"kubeconfig": with_user(client_key="/etc/kubernetes/pki/ca.key")}, "the kubeconfig", "no kubelet needs: client-key"),
        ({"kubeconfig": with_user(**{"as": "admin"})}, "the kubeconfig", "no kubelet needs: impersonate"),
        ({"kubeconfig": with_cluster(tls_server_name="other")}, "the kubeconfig", "no kubelet needs: tls-server-name"),
        ({"kubeconfig": with_cluster(proxy_url="http://x")}, "the kubeconfig", "no kubelet needs: proxy-url"),
        ({"kubeconfig": with_cluster(certificate_authority="/ca")}, "the kubeconfig", "no kubelet needs: certificate-authority"),
        ({"kubeconfig": with_cluster(insecure_skip_tls_verify=True)}, "the kubeconfig", "no kubelet needs: insecure-skip-tls-verify"),
        ({"kubeconfig": with_cluster(server="https://10.0.0.1:6443/other")}, "the kubeconfig", "requested: https://10.0.0.1:6443"),
        ({"kubeconfig": with_cluster(server="https://[::1")}, "the kubeconfig", "requested: https://10.0.0.1:6443"),
        ({"kubeconfig": OTHER.answer.kubeconfig}, "the kubeconfig", "https://10.0.0.2:6443"),
        ({"serving_certificate": OTHER.answer.serving_certificate}, "the serving certificate", "do not match"),
        (
            {"serving_certificate": OTHER.answer.serving_certificate, "serving_key": OTHER.answer.serving_key},
            "the serving certificate",
            'it is for "other": expected: worker',
        ),
        ({"serving_key": "none"}, "the serving certificate", "no private key"),
        ({"client_ca": GOOD.answer.serving_certificate}, "the CA of clients", "not a CA"),
        ({"kubelet_config": "a: [b"}, "the kubelet's configuration", ""),
        ({"kubelet_config": "kind: Pod\n"}, "the kubelet's configuration", "not a KubeletConfiguration"),
        (
            {"kubelet_config": GOOD.answer.kubelet_config.replace("/etc/oneinfra/kubelet.crt", "/etc/passwd")},
            "the kubelet's configuration",
            'unusual places: "/etc/passwd"',
        ),
        (
            {"kubelet_config": GOOD.answer.kubelet_config.replace("/etc/oneinfra/kubelet.crt", "/etc/oneinfra/kubelet.key")},
            "the kubelet's configuration",
            'unusual places: "/etc/oneinfra/kubelet.key"',
        ),
        (
            with_fields("{staticPodURL: http://x, staticPodPath: /a, readOnlyPort: 10255, volumePluginDir: /b}"),
            "the kubelet's configuration",
            "fields are refused: staticPodPath: a hub may not set it\nstaticPodURL: a hub may not set it\nvolumePluginDir: a hub may not set it\nreadOnlyPort: a",
        ),
        (
            with_fields("authorization: {mode: AlwaysAllow}"),
            "the kubelet's configuration",
            'authorization.mode: "AlwaysAllow" must be Webhook',
        ),
        (with_fields('clusterDomain: "a\\0b"'), "the kubelet's configuration", "clusterDomain holds a control character"),
    ],
)
def test_answers_that_differ_from_the_request_are_refused_by_name(change, what, why):
    with pytest.raises(TrustError) as refused:
        require(replace(GOOD.answer, **change))
    assert refused.value.what == f"{what} that the hub sent cannot be used"
    assert why in refused.value.detail
    assert refused.value.remedy


def test_written_files_contain_only_parsed_values():
    noisy = replace(
        GOOD.answer,
        kubernetes_version="v1.36.3",
        kubeconfig=f"# a\n{GOOD.answer.kubeconfig}",
        serving_certificate=f"text\n{GOOD.answer.serving_certificate}more",
        client_ca=f"text\n{GOOD.answer.client_ca}more",
    )
    found, plain = require(noisy), require(GOOD.answer)
    assert (found.version, found.client_ca, found.kubeconfig) == (plain.version, plain.client_ca, plain.kubeconfig)
    assert found.serving.pem() == plain.serving.pem()
    assert found.client_ca.decode() == GOOD.answer.client_ca
    written = yaml.load(found.kubeconfig.decode())
    assert written["clusters"] == [{"name": "kubernetes", "cluster": yaml.load(GOOD.answer.kubeconfig)["clusters"][0]["cluster"]}]
    assert written["users"][0]["name"] == "system:node:worker"
    assert written["users"][0]["user"] == yaml.load(GOOD.answer.kubeconfig)["users"][0]["user"]


def test_a_bundle_of_cas_is_written_as_given_by_the_owner_of_the_machine():
    given = f"{API_CA[0]}{authority('next')[0]}".encode()
    found = yaml.load(require(GOOD.answer, ca_pem=given).kubeconfig.decode())
    assert base64.b64decode(found["clusters"][0]["cluster"]["certificate-authority-data"]) == given


@pytest.mark.parametrize(
    ("kubelet", "server", "fits"),
    [
        ("1.36.3", "v1.36.0", True),
        ("1.33.0", "v1.36.3", True),
        ("1.32.9", "v1.36.3", False),
        ("1.27.0", "v1.36.3", False),
        ("1.37.0", "v1.36.3", False),
        ("2.36.3", "v1.36.3", False),
        ("1.27.0", None, True),
    ],
)
def test_an_incompatible_kubelet_version_is_refused(kubelet, server, fits):
    answer, known = replace(GOOD.answer, kubernetes_version=kubelet), Version.parse(server) if server else None
    if fits:
        assert str(require(answer, api_server=known).version) == f"v{kubelet}"
        return
    with pytest.raises(TrustError, match="the version that the hub sent") as refused:
        require(answer, api_server=known)
    assert f"v{kubelet} is not compatible with the API server {server}" in refused.value.detail


def test_wrong_node_names_and_times_in_certificates_are_refused():
    for more in (
        {"node": "other"},
        {"sans": ("10.0.0.9",)},
        {"now": CLOCK.now() + timedelta(days=366)},
        {"now": CLOCK.now() - timedelta(hours=1)},
    ):
        with pytest.raises(TrustError):
            require(GOOD.answer, **more)


def test_the_clock_of_a_hub_may_be_some_minutes_ahead():
    began = certificates.first(GOOD.answer.serving_certificate.encode(), source="x").not_before
    require(GOOD.answer, now=began - timedelta(minutes=4))
    with pytest.raises(TrustError, match="cannot be used") as refused:
        require(GOOD.answer, now=began - timedelta(minutes=6))
    assert refused.value.remedy == "check the clock of this machine"


def test_an_expiring_ca_shortens_certificates_and_an_expired_one_signs_nothing():
    soon = authority("soon", days=3)
    loaded = LoadedCluster(cluster(client_ca=soon[0], client_key=soon[1]))
    [client, serving] = issued(loaded=loaded).certificates
    assert client.not_after < serving.not_after
    with pytest.raises(CertificateError, match="has expired"):
        issuing.issue(loaded, "w", WANTED, key_source=FreshKeys(), started=CLOCK.now() + timedelta(days=4), random=SeededRandom(1))


def test_a_cluster_may_use_ecdsa_keys():
    loaded = LoadedCluster(cluster(key_algorithm="ECDSA-P256"))
    answer = issued(loaded=loaded).answer
    require(answer)
    assert answer.serving_key.startswith("-----BEGIN EC PRIVATE KEY-----")
    assert GOOD.answer.serving_key.startswith("-----BEGIN RSA PRIVATE KEY-----")


def test_a_cluster_with_mismatched_keys_is_refused():
    with pytest.raises(CertificateError, match="do not match"):
        LoadedCluster(cluster(client_key=SERVING_CA[1]))
