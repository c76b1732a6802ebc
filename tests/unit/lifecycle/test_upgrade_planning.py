"""How `upgrade plan` chooses from a cluster's versions, and how `upgrade diff` reads manifests, without a cluster."""

from __future__ import annotations

from pathlib import PurePosixPath
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from init_kit import Box, asked

from kubewright.apis.machine import Layout
from kubewright.base.errors import APIError, DocumentError, HostError, UsageError
from kubewright.base.records import replace
from kubewright.base.versions import Version
from kubewright.base.yaml import Document
from kubewright.cli.handlers import upgrade
from kubewright.lifecycle.upgrade.planning import diff
from kubewright.lifecycle.upgrade.planning.plan import PlanOptions, plan
from kubewright.lifecycle.upgrade.planning.versions import ClusterVersions, observe
from kubewright.manifests import static_pods
from odd_objects import ODD, paths, variants

TOOL = Version.parse("v1.36.3")


def cluster(*versions: str, **more: object) -> ClusterVersions:
    servers = {version: [f"node{number}"] for number, version in enumerate(versions, 1)}
    components = dict.fromkeys(("kube-apiserver", "kube-controller-manager", "kube-scheduler"), servers)
    return ClusterVersions(**{"components": {**components, "etcd": {"3.6.8-0": ["node1"]}}, "kubelets": servers, "dns": "v1.14.2", **more})


def versions(observed, **wish: object) -> list[tuple[str, str]]:
    return [(one.description, one.version) for one in plan(observed, PlanOptions(**wish), tool=TOOL).upgrades]


def test_without_a_version_that_of_this_program_is_offered():
    assert versions(cluster("v1.36.1")) == [("stable version", "v1.36.3")]
    assert versions(cluster("v1.36.3")) == []
    assert "not looked up" in plan(cluster("v1.36.1"), PlanOptions(), tool=TOOL).warnings[0]


def test_the_version_of_the_cluster_is_that_of_its_highest_api_server():
    assert str(cluster("v1.36.1", "v1.36.2").cluster) == "v1.36.2"
    assert versions(cluster("v1.36.1", "v1.36.3")) == []


@pytest.mark.parametrize("texts", [(), ("latest",), ("v1.36.1", "")])
def test_a_cluster_without_a_readable_version_is_an_error(texts):
    with pytest.raises(APIError, match="cannot be determined"):
        plan(cluster(*texts), PlanOptions(), tool=TOOL)


@pytest.mark.parametrize(
    ("servers", "kubelet", "warned"), [(("v1.36.1",), "v1.36.9", 0), (("v1.36.1", "v1.35.4"), "v1.36.0", 1), (("v1.36.1",), "", 0)]
)
def test_kubelets_that_are_newer_than_the_oldest_api_server_are_warned_about(servers, kubelet, warned):
    found = plan(cluster(*servers, kubelets={kubelet: ["node1"]}), PlanOptions(version="v1.36.3"), tool=TOOL)
    assert [text.partition(":")[0] for text in found.warnings] == [
        f"the kubelets on node1 have {kubelet}, and an API server has v1.35.4"
    ] * warned


def test_pre_releases_require_a_version():
    with pytest.raises(UsageError, match="not looked up"):
        plan(cluster("v1.36.1"), PlanOptions(experimental=True), tool=TOOL)
    offered = versions(cluster("v1.36.1"), version="v1.37.0-rc.1", experimental=True, candidates=True)
    assert [text for text, _ in offered] == ["version in the v1.36 series", "release candidate version", "experimental version"]


def test_an_invalid_version_for_an_upgrade_is_refused():
    with pytest.raises(UsageError, match="is not a version"):
        plan(cluster("v1.36.1"), PlanOptions(version="stable"), tool=TOOL)


def test_kubelets_that_have_the_version_are_not_shown():
    kubelets = {"v1.36.3": ["node1"]}
    [found] = plan(cluster("v1.36.1", kubelets=kubelets), PlanOptions(), tool=TOOL).upgrades
    assert found.rows(kubelets=True) == []
    [found] = plan(cluster("v1.36.1", kubelets={**kubelets, "v1.35.0": ["a", "b"]}), PlanOptions(), tool=TOOL).upgrades
    assert [(row.node, row.current, row.new) for row in found.rows(kubelets=True)] == [
        ("a", "v1.35.0", "v1.36.3"),
        ("b", "v1.35.0", "v1.36.3"),
        ("node1", "v1.36.3", "v1.36.3"),
    ]


def test_etcd_is_left_out_if_it_is_external_or_stays():
    def names(observed, **wish: object) -> list[str]:
        [found] = plan(observed, PlanOptions(**wish), tool=TOOL).upgrades
        return [row.name for row in found.components if row.name == "etcd"]

    assert names(cluster("v1.36.1")) == ["etcd"]
    assert names(cluster("v1.36.1"), etcd=False) == []
    assert names(cluster("v1.36.1", components={**cluster("v1.36.1").components, "etcd": {}})) == []


def test_the_text_asks_for_a_newer_program():
    text = upgrade.text(plan(cluster("v1.36.1"), PlanOptions(version="v1.36.9"), tool=TOOL))
    assert "Note: this needs version v1.36.9 of this program" in text
    assert "Note:" not in upgrade.text(plan(cluster("v1.36.1"), PlanOptions(version="v1.36.2"), tool=TOOL))


VERSIONS = st.builds(
    Version, major=st.just(1), minor=st.integers(33, 39), patch=st.integers(0, 5), pre=st.sampled_from(["", "rc.1", "alpha.0"])
)


@given(VERSIONS, VERSIONS, st.booleans(), st.booleans(), st.booleans())
def test_only_newer_versions_are_offered(here, asked, experimental, candidates, etcd):
    wish = PlanOptions(version=str(asked), experimental=experimental, candidates=candidates, etcd=etcd)
    found = plan(cluster(str(here)), wish, tool=TOOL)
    assert bool(found.upgrades) == (here < asked)
    assert {one.version for one in found.upgrades} <= {str(asked)}
    assert all(row.new for one in found.upgrades for row in one.components)


class Lists:
    """An API that returns the given objects, by kind."""

    def __init__(self, **objects: object) -> None:
        self._objects = objects

    def list(self, resource, namespace=None, *, label_selector="", field_selector=""):
        wanted = dict(part.split("=") for part in label_selector.split(",") if part)
        return [one for one in self._objects.get(resource.kind, ()) if wanted.items() <= one["metadata"].get("labels", {}).items()]


def static_pod(image: str, component="kube-apiserver"):
    labels = {"component": component, "tier": "control-plane"}
    return {"metadata": {"name": "x", "labels": labels}, "spec": {"nodeName": "node1", "containers": [{"image": image}]}}


def test_malformed_parts_of_objects_count_as_missing():
    node = {"status": {"nodeInfo": {"kubeletVersion": "v1.36.1"}}}
    pod = {"spec": {"nodeName": "node1", "containers": [{"image": "registry.k8s.io/kube-apiserver:v1.36.1"}]}}
    dns = {"spec": {"template": {"spec": {"containers": [{"image": "registry.k8s.io/coredns/coredns:v1.14.2"}]}}}}
    labels = static_pod("")["metadata"]
    nodes = [{**one, "metadata": {"name": "node1"}} for one in variants(node)]
    pods = [{**one, "metadata": labels} for one in variants(pod)]
    found = observe(Lists(Node=nodes, Pod=pods))
    assert sum(map(len, found.kubelets.values())) == len(nodes) == 3 * len(ODD) == (len(paths(node)) - 1) * len(ODD)
    assert set(found.kubelets) == {"", "ü", "v1.36.1"} - {"v1.36.1"}
    servers = found.components["kube-apiserver"]
    assert sum(map(len, servers.values())) == len(pods) == (len(paths(pod)) - 1) * len(ODD)
    assert (set(servers), {name for names in servers.values() for name in names}) == ({"", "v1.36.1"}, {"", "ü", "node1"})
    tags = {observe(Lists(Deployment=[{**one, "metadata": {"labels": {"k8s-app": "kube-dns"}}}])).dns for one in variants(dns)}
    assert tags == {""}


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("registry.k8s.io/kube-apiserver:v1.36.1", "v1.36.1"),
        ("localhost:5000/kube-apiserver:v1.36.1", "v1.36.1"),
        ("localhost:5000/kube-apiserver", ""),
        ("x/kube-apiserver:v1.37.0-alpha.1_abc", "v1.37.0-alpha.1+abc"),
        ("x/kube-apiserver:v1.36.1@sha256:00", "v1.36.1"),
    ],
)
def test_versions_are_the_tags_of_images(image, version):
    found = observe(Lists(Pod=[static_pod(image)]))
    assert found.components["kube-apiserver"] == {version: ["node1"]}
    assert (found.components["etcd"], found.kubelets, found.dns) == ({}, {}, "")


def test_two_deployments_of_dns_are_an_error():
    one = {"metadata": {"name": "a", "labels": {"k8s-app": "kube-dns"}}, "spec": {}}
    with pytest.raises(APIError, match="several Deployments"):
        observe(Lists(Deployment=[one, one]))


def machine(files):
    return SimpleNamespace(layout=Layout(), read=files.get)


def test_the_first_missing_manifest_is_reported():
    files = {PurePosixPath("/etc/kubernetes/manifests/kube-apiserver.yaml"): b"x"}
    with pytest.raises(HostError, match="kube-controller-manager"):
        diff.manifests(machine(files))


@pytest.mark.parametrize(
    "manifest", ["", "[]", "metadata: x", "metadata: {annotations: {}}", f'metadata: {{annotations: {{{static_pods.ENDPOINT}: "x"}}}}']
)
def test_a_manifest_without_its_endpoint_is_an_error(manifest):
    with pytest.raises(DocumentError, match="does not contain the local API endpoint"):
        diff.configuration(Document(value={}), {"kube-apiserver": manifest}, version="v1.36.3", host=machine({}))


def test_a_diff_shows_the_patched_manifest(tmp_path):
    box = Box(tmp_path / "machine")
    (tmp_path / "patches").mkdir(mode=0o700)
    (tmp_path / "patches" / "kube-scheduler+merge.yaml").write_text("metadata: {labels: {team: blue}}\n")
    (tmp_path / "patches" / "kube-scheduler+merge.yaml").chmod(0o600)
    found = box.call(asked()).configuration
    host = box.machine(box.layout)
    plain, patched = (
        "".join(
            diff.differences(
                replace(found, init=replace(found.init, patches_directory=place)), {"kube-scheduler": ""}, host=host, context=0
            )
        )
        for place in ("", str(tmp_path / "patches"))
    )
    assert "team: blue" not in plain
    assert [line for line in patched.splitlines() if line not in plain.splitlines() and not line.startswith("@@")] == ["+    team: blue"]
