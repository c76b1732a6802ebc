"""The configuration of a local cluster: what is filled in and refused, and that no other error occurs."""

from __future__ import annotations

import string
from pathlib import PurePosixPath

import pytest
import yaml as pyyaml
from hypothesis import given
from hypothesis import strategies as st

from kubewright.apis.kubeadm.loading import Loaded
from kubewright.apis.machine import Detected, Layout
from kubewright.base.errors import DocumentError, KubewrightError, UsageError, ValidationError
from kubewright.base.level import KUBERNETES
from kubewright.base.randomness import SystemRandom
from kubewright.local.cluster import configuration
from kubewright.local.record import LocalMachineRecord
from kubewright.local.user_documents import version_of

MACHINE = LocalMachineRecord(name="one-control-plane", address="127.0.0.11")
LAYOUT = Layout.below(PurePosixPath("/state/one/machines/one-control-plane"))
CLUSTER = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"
INIT = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n"


def load(config: str = "", *, machine: LocalMachineRecord = MACHINE) -> Loaded:
    return configuration.load(
        config,
        machine=machine,
        layout=LAYOUT,
        version=version_of(config, None),
        detected=Detected(host_name="host"),
        random=SystemRandom(),
    )


def test_without_a_document_everything_is_chosen_for_the_machine() -> None:
    loaded = load()
    cluster, init = loaded.configuration.cluster, loaded.configuration.init
    assert (loaded.warnings, init.bootstrap_tokens) == ([], ())
    assert (cluster.kubernetes_version, cluster.encryption_algorithm) == (KUBERNETES, "ECDSA-P256")
    assert cluster.certificates_dir == str(LAYOUT.pki)
    assert cluster.networking.pod_subnet == "10.128.0.0/9"
    assert (init.local_api_endpoint.advertise_address, init.local_api_endpoint.bind_port) == ("127.0.0.11", 6443)
    assert init.node_registration.name == "one-control-plane"


def test_values_of_the_document_are_kept() -> None:
    document = f"{CLUSTER}encryptionAlgorithm: RSA-2048\nnetworking: {{podSubnet: 10.200.0.0/16}}\napiServer: {{certSANs: [api.example]}}\n"
    token = "abcdef.0123456789abcdef"
    loaded = load(f"{document}---\n{INIT}bootstrapTokens:\n- token: {token}\n").configuration
    assert loaded.cluster.encryption_algorithm == "RSA-2048"
    assert loaded.cluster.networking.pod_subnet == "10.200.0.0/16"
    assert [one.token for one in loaded.init.bootstrap_tokens] == [token]


PLACES = [
    (CLUSTER, "certificatesDir: /etc/kubernetes/pki", "certificatesDir"),
    (CLUSTER, "etcd: {local: {dataDir: /var/lib/etcd}}", "etcd.local.dataDir"),
    (CLUSTER, "etcd: {external: {endpoints: ['https://10.0.0.1:2379']}}", "etcd.external"),
    (INIT, "localAPIEndpoint: {advertiseAddress: 10.0.0.1}", "localAPIEndpoint.advertiseAddress"),
    (INIT, "localAPIEndpoint: {bindPort: 7443}", "localAPIEndpoint.bindPort"),
    (INIT, "nodeRegistration: {name: mine}", "nodeRegistration.name"),
    (INIT, "nodeRegistration: {criSocket: 'unix:///run/containerd/containerd.sock'}", "nodeRegistration.criSocket"),
]


@pytest.mark.parametrize(("kind", "text", "path"), PLACES)
def test_a_document_may_not_set_other_paths(kind: str, text: str, path: str) -> None:
    with pytest.raises(ValidationError) as caught:
        load(f"{kind}{text}\n")
    assert [(str(error.path), error.type.name) for error in caught.value.errors] == [(path, "FORBIDDEN")]
    assert "leave these fields out" in caught.value.remedy


def test_all_refused_paths_are_reported_at_once_with_their_lines() -> None:
    documents = {kind: "".join(f"{text}\n" for found, text, _ in PLACES[3:] + PLACES[:2] if found == kind) for kind in (CLUSTER, INIT)}
    documents[INIT] = f"{INIT}localAPIEndpoint: {{advertiseAddress: 10.0.0.1, bindPort: 7443}}\nnodeRegistration: {{name: mine}}\n"
    with pytest.raises(ValidationError) as caught:
        load(f"{CLUSTER}{documents[CLUSTER]}---\n{documents[INIT]}")
    sources = [error.source for error in caught.value.errors]
    assert [source.rpartition(":")[0] for source in sources] == [f"--config:{line}" for line in (3, 4, 8, 8, 9)]
    assert sources[2:] == ["--config:8:20", "--config:8:48", "--config:9:20"]


def test_naming_the_paths_in_use_is_allowed() -> None:
    document = (
        f"{CLUSTER}certificatesDir: {LAYOUT.pki}\netcd: {{local: {{dataDir: {LAYOUT.etcd_data}}}}}\n"
        f"---\n{INIT}localAPIEndpoint: {{advertiseAddress: 127.0.0.11, bindPort: 6443}}\nnodeRegistration: {{name: one-control-plane}}\n"
    )
    assert load(document).configuration == load().configuration


@pytest.mark.parametrize(
    ("document", "asked", "expected"),
    [
        ("", None, KUBERNETES),
        ("", "v1.35.4", "v1.35.4"),
        ("kubernetesVersion: v1.35.4", None, "v1.35.4"),
        ("kubernetesVersion: v1.35.4", "v1.35.4", "v1.35.4"),
        ("kubernetesVersion: stable-1", None, KUBERNETES),
        ("kubernetesVersion: stable-1", "v1.35.4", "v1.35.4"),
        ("kubernetesVersion: 7", None, KUBERNETES),
    ],
)
def test_the_version_comes_from_the_flag_or_the_document_or_is_ours(document: str, asked: str | None, expected: str) -> None:
    assert version_of(f"{CLUSTER}{document}\n", asked) == expected


def test_a_flag_and_a_document_that_disagree_about_the_version_are_refused() -> None:
    with pytest.raises(UsageError, match=r"v1\.35\.4 is not the version of --config, v1\.36\.3"):
        version_of(f"{CLUSTER}kubernetesVersion: v1.36.3\n", "v1.35.4")


@pytest.mark.parametrize("text", ["kind: [", "\x00", "- &a [*a, *a]", "a: 1\na: 2\n", "'", "%YAML 9.9\n---\n", "\t- x"])
def test_invalid_yaml_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises((DocumentError, ValidationError)) as caught:
        load(text)
    assert caught.value.remedy


# Generated by hypothesis: broken texts, and well-formed documents of our kinds with anything in any field.
_KEYS = st.sampled_from(
    [
        "apiServer", "apiVersion", "bootstrapTokens", "caCertificateValidityPeriod", "certificatesDir", "clusterName", "controllerManager",
        "controlPlaneEndpoint", "criSocket", "dataDir", "dns", "encryptionAlgorithm", "etcd", "external", "extraArgs", "extraVolumes",
        "featureGates", "hostPath", "kind", "kubeletExtraArgs", "kubernetesVersion", "local", "localAPIEndpoint", "name", "networking",
        "nodeRegistration", "patches", "podSubnet", "proxy", "serviceSubnet", "skipPhases", "taints", "timeouts", "token", "ttl", "value",
    ]
)  # fmt: skip
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(["10.96.0.0/12", "::/0", "v1.36.3", "1h", "127.0.0.11", "ECDSA-P256", "/etc", "a.b", "-1", "0x1F", "1e999"])
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS | st.text(string.printable, max_size=8), inner, max_size=5),
    max_leaves=12,
)
_DOCUMENTS = st.fixed_dictionaries(
    {
        "apiVersion": st.sampled_from(["kubeadm.k8s.io/v1beta4", "kubeadm.k8s.io/v1beta3", "kubelet.config.k8s.io/v1beta1", "v1", ""]),
        "kind": st.sampled_from(["ClusterConfiguration", "InitConfiguration", "KubeletConfiguration", "KubeProxyConfiguration", "Pod"]),
    },
    optional={},
).flatmap(lambda fixed: st.dictionaries(_KEYS, _VALUES, max_size=6).map(lambda fields: {**fields, **fixed}))


def _never_worse(text: str) -> None:
    try:
        loaded = load(text)
    except KubewrightError as error:
        assert error.what
        assert error.exit_code in {2, 3}
    else:
        assert loaded.configuration.cluster.certificates_dir == str(LAYOUT.pki)


@given(st.text(max_size=200) | st.text(string.printable, max_size=200))
def test_any_text_is_loaded_or_refused(text: str) -> None:
    _never_worse(text)


@given(st.lists(_DOCUMENTS, min_size=1, max_size=3))
def test_any_document_is_loaded_or_refused(documents: list[dict[str, object]]) -> None:
    _never_worse(pyyaml.safe_dump_all(documents))


@given(st.lists(_DOCUMENTS, min_size=1, max_size=2), st.data())
def test_any_damaged_document_is_loaded_or_refused(documents: list[dict[str, object]], data: st.DataObject) -> None:
    text = pyyaml.safe_dump_all(documents)  # ours refuses what kubeadm's cannot read
    at = data.draw(st.integers(0, len(text)))
    _never_worse(text[:at] + data.draw(st.text(string.printable, max_size=3)) + text[at + data.draw(st.integers(0, 3)) :])
