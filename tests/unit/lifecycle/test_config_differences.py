"""Two documents compared: which fields differ, what the diff shows, and that neither contains a secret."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parts
from kubewright.apis.kubeadm.documents import CLUSTER, KUBE_PROXY, KUBELET
from kubewright.base import yaml
from kubewright.base.errors import APIError, DocumentError, NotFound, ValidationError
from kubewright.base.yaml import Document
from kubewright.lifecycle import config_diff
from kubewright.lifecycle.config_diff import ANOTHER, CONFIG_MAPS, DefaultedDocuments, DocumentDifference, compare

STORED = {
    "kubeadm-config": {
        "ClusterConfiguration": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.3\n"
    },
    "kubelet-config": {"kubelet": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"},
    "kube-proxy": {"config.conf": "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nbindAddress: 0.0.0.0\n"},
}


class Maps:
    """An API that has ConfigMaps only."""

    def __init__(self, maps) -> None:
        self._maps = maps

    def get(self, _resource, name, namespace):
        assert namespace == "kube-system"
        if name not in self._maps:
            raise NotFound(f"no {name}", code=404)
        return {"data": self._maps[name]}


def stored(**changed: object):
    return config_diff.read_stored(Maps({**STORED, **changed}))


def wanted(text: str, theirs=None) -> DefaultedDocuments:
    return config_diff.of_file(yaml.load_all(text, source="file"), theirs or stored())


def cluster_file(more: str = "") -> str:
    return f"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n{more}"


def found(text: str, theirs=None) -> list[DocumentDifference]:
    theirs = theirs or stored()
    return compare(config_diff.of_cluster(theirs), wanted(text, theirs))


def sides(old, new, kind=CLUSTER):
    empty = dict.fromkeys(CONFIG_MAPS)
    return compare(DefaultedDocuments(documents={**empty, kind: old}), DefaultedDocuments(documents={**empty, kind: new}))


def changes(old, new) -> list[tuple[str, object, object]]:
    differences = sides(old, new)
    return [(change.path, change.old, change.new) for one in differences for change in one.changes]


@pytest.mark.parametrize(
    "text",
    [
        cluster_file(),
        cluster_file("kubernetesVersion: v1.36.3\n"),
        cluster_file("kubernetesVersion: stable-1\n"),
        cluster_file("networking: {serviceSubnet: 10.96.0.0/12, dnsDomain: cluster.local}\nclusterName: kubernetes\n"),
        "apiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\n",
        "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint: {advertiseAddress: 10.0.0.9}\n",
    ],
)
def test_defaults_are_no_difference(text):
    assert found(text) == []


def test_a_label_is_reported_and_not_compared():
    assert wanted(cluster_file("kubernetesVersion: latest\n")).warnings == ["not compared: kubernetesVersion latest is a label"]


def test_a_file_of_a_machine_that_listens_on_a_loopback_address_is_compared():
    machine = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint: {advertiseAddress: 127.0.0.11}\n---\n"
    assert found(machine + cluster_file("kubernetesVersion: v1.36.3\n")) == []


def test_unknown_fields_of_the_cluster_are_reported_and_not_compared():
    newer = stored(**{"kubelet-config": {"kubelet": f"{STORED['kubelet-config']['kubelet']}fromTheFuture: 1\n"}})
    side = config_diff.of_cluster(newer)
    assert len(side.warnings) == 1
    assert "not compared: kube-system/kubelet-config" in side.warnings[0]
    assert "fromTheFuture: Unknown field" in side.warnings[0]
    assert found(cluster_file(), newer) == []


def test_a_different_version_is_a_difference_even_for_older_clusters():
    old = stored(**{"kubeadm-config": {"ClusterConfiguration": cluster_file("kubernetesVersion: v1.29.4\n")}})
    [difference] = found(cluster_file("kubernetesVersion: v1.36.0\n"), old)
    assert [change.as_map() for change in difference.changes] == [{"path": "kubernetesVersion", "old": "v1.29.4", "new": "v1.36.0"}]
    assert found(cluster_file(), old) == []


def test_a_changed_field_differs_in_every_document_that_it_affects():
    differences = found(cluster_file("networking: {serviceSubnet: 10.50.0.0/16, podSubnet: 10.60.0.0/16}\n"))
    assert [one.kind for one in differences] == [CLUSTER, KUBELET, KUBE_PROXY]
    assert [change.path for one in differences for change in one.changes] == [
        "networking.podSubnet",
        "networking.serviceSubnet",
        "clusterDNS",
        "clusterCIDR",
    ]
    assert differences[1].diff.splitlines()[:2] == [
        "--- KubeletConfiguration in kube-system/kubelet-config",
        "+++ KubeletConfiguration of the file",
    ]
    assert {"-- 10.96.0.10", "+- 10.50.0.10"} < set(differences[1].diff.splitlines())


def test_the_address_family_of_the_cluster_is_kept():
    proxy = STORED["kube-proxy"]["config.conf"].replace("0.0.0.0", "'::'")
    assert found(cluster_file(), stored(**{"kube-proxy": {"config.conf": proxy}})) == []


def test_a_disabled_add_on_has_no_document():
    text = cluster_file("proxy: {disabled: true}\n")
    [cluster, proxy] = found(text)
    assert [change.path for change in cluster.changes] == ["proxy.disabled"] or [change.path for change in cluster.changes] == ["proxy"]
    assert (proxy.kind, proxy.changes[0].path, proxy.changes[0].new) == (KUBE_PROXY, "", None)
    off = {"kubeadm-config": {"ClusterConfiguration": cluster_file("kubernetesVersion: v1.36.3\nproxy: {disabled: true}\n")}}
    without = {name: data for name, data in {**STORED, **off}.items() if name != "kube-proxy"}
    assert found(text, config_diff.read_stored(Maps(without))) == []


def test_arguments_are_compared_by_name_and_their_order_means_nothing():
    old = {"apiServer": {"extraArgs": [{"name": "v", "value": "1"}, {"name": "a", "value": "x"}]}}
    assert changes(old, {"apiServer": {"extraArgs": [{"name": "a", "value": "x"}, {"name": "v", "value": "1"}]}}) == []
    new = {"apiServer": {"extraArgs": [{"name": "v", "value": "2"}, {"name": "b", "value": "y"}]}}
    assert changes(old, new) == [
        ("apiServer.extraArgs[a]", {"name": "a", "value": "x"}, None),
        ("apiServer.extraArgs[v].value", "1", "2"),
        ("apiServer.extraArgs[b]", None, {"name": "b", "value": "y"}),
    ]


def test_the_order_of_other_lists_matters():
    volumes = [{"name": "a", "hostPath": "/a"}, {"name": "b", "hostPath": "/b"}]
    assert changes({"v": volumes}, {"v": volumes[::-1]}) == [("v", volumes, volumes[::-1])]
    assert changes({"v": [1, 2]}, {"v": [1]}) == [("v", [1, 2], [1])]


SECRET = "hunter2hunter2"


@pytest.mark.parametrize(
    "document",
    [
        {"apiServer": {"extraEnvs": [{"name": "DB_PASSWORD", "value": SECRET}]}},
        {"apiServer": {"extraArgs": [{"name": "oidc-client-secret", "value": SECRET}]}},
        {"apiServer": {"token": SECRET}},
        {"list": [{"password": SECRET}]},
        {"x": f"abcdef.{SECRET}xx"},
    ],
)
def test_secrets_are_hidden_and_still_differ(document):
    other = yaml.load(yaml.dump(document).replace(SECRET, SECRET[::-1]))
    [difference] = sides(document, other)
    shown = f"{difference.as_map()}{difference.diff}"
    assert SECRET not in shown
    assert SECRET[::-1] not in shown
    assert len(difference.changes) == 1
    assert difference.changes[0].new != difference.changes[0].old
    assert ANOTHER in shown or "masked" in shown


def test_equal_secrets_are_reported_as_equal():
    document = {"apiServer": {"extraEnvs": [{"name": "DB_PASSWORD", "value": SECRET}]}}
    [difference] = sides(document, {**document, "clusterName": "x"})
    assert [change.path for change in difference.changes] == ["clusterName"]
    assert ANOTHER not in difference.diff


def test_unreadable_configurations_are_errors():
    with pytest.raises(APIError, match="kubeadm-config"):
        config_diff.read_stored(Maps({}))
    with pytest.raises(DocumentError, match="kubelet-config"):
        stored(**{"kubelet-config": {"kubelet": "- a"}})
    with pytest.raises(ValidationError):
        found(cluster_file("networking: {podSubnet: nonsense}\n"))
    with pytest.raises(ValidationError):
        found(cluster_file("nonsense: 1\n"))


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "a", "b", SECRET]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "value", "token", "extraArgs", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
DOCUMENTS = st.none() | st.dictionaries(st.sampled_from(["name", "value", "token", "extraArgs", "x", "y"]), TREES, max_size=4)


@settings(max_examples=parts.given(150), deadline=None)
@given(DOCUMENTS, DOCUMENTS)
def test_changes_and_diffs_exist_only_for_different_documents(old, new):
    assert sides(old, old) == []
    assert [one.kind for one in sides(old, new)] == [one.kind for one in sides(new, old)]
    for one in sides(old, new):
        assert one.changes
        assert one.diff
        assert all(change.old != change.new for change in one.changes)


def test_every_stored_document_has_an_order():
    assert set(CONFIG_MAPS) == {CLUSTER, KUBELET, KUBE_PROXY}
    assert all(isinstance(document, Document) for document in stored().values())
