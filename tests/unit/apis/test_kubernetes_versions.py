"""What kubernetesVersion may be: versions, labels of release servers, CI builds; and the images that follow."""

from __future__ import annotations

import pytest
from apis_documents import MACHINE, cluster, field_errors, load

from kubewright.apis import kubeadm
from kubewright.apis.kubeadm import cluster_document, component_image, images
from kubewright.apis.kubeadm.versions import image_tag, labels_needed, resolve
from kubewright.base.records import replace


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
    assert (resolve(text, {}).version, resolve(text, {}).warnings, resolve(text, {}).ci) == (version, (), False)


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


@pytest.mark.parametrize(
    ("text", "labels", "version", "warnings"),
    [
        ("stable-1", {"stable-1": "v1.36.7"}, "v1.36.7", 0),
        ("", {"stable-1": "v1.36.7"}, "v1.36.7", 0),
        ("latest-1.35", {"latest-1.35": "v1.35.9-rc.0"}, "v1.35.9-rc.0", 0),
        ("stable-1", {}, "v1.36.3", 1),
        ("stable", {"stable": "v1.37.2", "stable-1.36": "v1.36.9"}, "v1.36.9", 0),
        ("stable", {"stable": "v2.0.0"}, "v1.36.3", 1),
        ("stable-1.36", {"stable-1.36": "v1.37.0"}, "v1.36.3", 1),
        ("release/stable", {"stable": "v1.36.4"}, "v1.36.4", 0),
    ],
)
def test_labels_are_what_the_release_server_answered_within_our_own_minor(text, labels, version, warnings):
    found = resolve(text, labels)
    assert (found.version, len(found.warnings)) == (version, warnings)


@pytest.mark.parametrize("answer", ["<html>", "", "stable-1", "v1.34.1", "1"])
def test_an_answer_that_is_no_usable_version_is_an_error(answer):
    machine = replace(MACHINE, version_labels={"stable-1": answer})
    assert field_errors(cluster(kubernetesVersion="stable-1"), detected=machine) == [("kubernetesVersion", "Invalid value")]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("", ("stable-1", "stable-1.36")),
        ("stable-1.36", ("stable-1.36",)),
        ("ci/latest", ("ci/latest", "stable-1.36")),
        ("release/latest-1", ("latest-1", "stable-1.36")),
        ("v1.36.2", ()),
        ("ci/v1.36.2", ()),
        ("foo bar", ()),
        ("newest", ()),
    ],
)
def test_the_labels_to_ask_for_are_known_before(text, labels):
    assert labels_needed(text) == labels


def test_a_ci_build_takes_its_images_from_the_ci_repository_and_is_stored_with_its_prefix():
    found = load(cluster(kubernetesVersion="ci/v1.37.0-alpha.1.5+abc")).configuration.cluster
    assert found.kubernetes_version == "v1.37.0-alpha.1.5+abc"
    assert cluster_document(found)["kubernetesVersion"] == "ci/v1.37.0-alpha.1.5+abc"
    assert component_image(found, "kube-apiserver") == "gcr.io/k8s-staging-ci-images/kube-apiserver:v1.37.0-alpha.1.5_abc"
    assert component_image(found, "pause") == "registry.k8s.io/pause:3.10.2"


def test_a_ci_build_with_an_own_repository_takes_its_images_from_there():
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


def test_a_tag_holds_only_what_a_tag_may_hold():
    assert image_tag("v1.36.2+a~b") == "v1.36.2_a_b"


def test_the_package_gives_out_functions_not_the_modules_they_live_in():
    assert {name: callable(getattr(kubeadm, name)) for name in kubeadm.__all__} == dict.fromkeys(kubeadm.__all__, True)
    with pytest.raises(AttributeError, match="nothing"):
        _ = kubeadm.nothing


def test_an_unknown_component_has_no_image():
    with pytest.raises(KeyError):
        component_image(load(cluster()).configuration.cluster, "kubelet")
