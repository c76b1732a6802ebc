"""Values of kubernetesVersion: versions, labels of release servers, CI builds; and the resulting images."""

from __future__ import annotations

import pytest
from apis_documents import cluster, field_errors, load

from kubewright.apis.kubeadm.codec import cluster_document
from kubewright.apis.kubeadm.versions import Resolved, component_image, image_tag, images, resolve


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v1.36.2", "v1.36.2"),
        ("1.36.2", "v1.36.2"),
        ("v1.36.0-alpha.1", "v1.36.0-alpha.1"),
        ("1.36.2-rc.0+build.1", "v1.36.2-rc.0+build.1"),
        ("release/v1.36.1", "v1.36.1"),
        ("v1.37.0", "v1.37.0"),
        ("v1.35.0", "v1.35.0"),
    ],
)
def test_versions_are_used_as_they_are(text, version):
    assert (resolve(text).version, resolve(text).warnings, resolve(text).ci) == (version, (), False)


@pytest.mark.parametrize(
    "text",
    [
        "v1.36",
        "foo bar",
        "newest",
        "v1.34.9",
        "v1.35.0-rc.1",
        "v1.36.2foo",
        "v1.36.02",
        "stable-0",
        "latest-1.361",
        "ci/",
        "v1.36.2\n",
        "x/v1.36.2",
    ],
)
def test_other_texts_and_old_versions_are_refused(text):
    assert field_errors(cluster(kubernetesVersion=text)) == [("kubernetesVersion", "Invalid value")]


NOT_LOOKED_UP = "{} is not looked up: v1.36.3 is used, the version of this program"


@pytest.mark.parametrize("text", ["stable-1", "stable", "stable-1.36", "latest-1.35", "release/stable", "ci/latest"])
def test_a_label_means_our_own_version_with_a_warning(text):
    found = resolve(text)
    assert (found.version, found.warnings) == ("v1.36.3", (NOT_LOOKED_UP.format(text),))


def test_an_unset_version_is_our_own_without_a_warning():
    assert resolve("") == Resolved(version="v1.36.3")
    assert (load(cluster(kubernetesVersion="")).configuration.cluster.kubernetes_version, load(cluster()).warnings) == ("v1.36.3", [])


def test_a_ci_build_takes_its_images_from_the_ci_repository_and_is_stored_with_its_prefix():
    found = load(cluster(kubernetesVersion="ci/v1.37.0-alpha.1.5+abc")).configuration.cluster
    assert found.kubernetes_version == "v1.37.0-alpha.1.5+abc"
    assert cluster_document(found)["kubernetesVersion"] == "ci/v1.37.0-alpha.1.5+abc"
    assert component_image(found, "kube-apiserver") == "gcr.io/k8s-staging-ci-images/kube-apiserver:v1.37.0-alpha.1.5_abc"
    assert component_image(found, "pause") == "registry.k8s.io/pause:3.10.2"


def test_a_ci_build_with_its_own_repository_uses_its_images():
    found = load(cluster(kubernetesVersion="ci/v1.37.0-alpha.1", imageRepository="r.example")).configuration.cluster
    assert component_image(found, "kube-scheduler") == "r.example/kube-scheduler:v1.37.0-alpha.1"
    assert component_image(found, "coredns") == "r.example/coredns:v1.14.2"


def test_disabled_add_ons_and_external_etcd_need_no_images():
    external = {"external": {"endpoints": ["https://a:1"]}}
    found = load(cluster(etcd=external, dns={"disabled": True}, proxy={"disabled": True})).configuration.cluster
    assert [image.rpartition("/")[2].partition(":")[0] for image in images(found)] == [
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "pause",
    ]


def test_a_tag_contains_only_valid_characters():
    assert image_tag("v1.36.2+a~b") == "v1.36.2_a_b"


def test_an_unknown_component_has_no_image():
    with pytest.raises(KeyError):
        component_image(load(cluster()).configuration.cluster, "kubelet")
