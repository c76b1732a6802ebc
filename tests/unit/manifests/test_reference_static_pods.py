"""Static pods and kubelet files of the reference cases, byte for byte."""

from __future__ import annotations

import pytest
from manifest_cases import CASES, COMPONENTS, MORE_CASES, REFERENCE, configuration_of, detected_for, places

from kubewright.base import yaml
from kubewright.manifests import kubelet, static_pods

ROWS = [(case, component) for case in (*CASES, *MORE_CASES) for component in COMPONENTS if (case, component) != ("external-etcd", "etcd")]

REPAIRED = {("extra-everything", "kube-controller-manager"): ("containerPort: 10257\n", "containerPort: 10357\n")}
"""What kubeadm v1.36 writes, and what we write: its probes lack the secure-port that this case sets."""


def test_every_manifest_of_the_reference_has_a_row():
    files = sorted(path for case in (*CASES, *MORE_CASES) for path in (REFERENCE / "cases" / case / "manifests").glob("*.yaml"))
    assert len(ROWS) == len(files) == 39


@pytest.mark.parametrize(("case", "component"), ROWS)
def test_manifests_are_written_byte_for_byte(case, component):
    configuration = configuration_of(case)
    pod = static_pods.render(component, configuration, *places(configuration), detected_for(case), external_ca=case == "external-ca")
    text = yaml.dump(pod)
    expected = (REFERENCE / "cases" / case / "manifests" / f"{component}.yaml").read_text()
    theirs, ours = REPAIRED.get((case, component), ("", ""))
    assert expected.count(theirs) == 1 if theirs else not ours
    assert text == expected.replace(theirs, ours)
    assert yaml.load(text) == pod


@pytest.mark.parametrize("case", [*CASES, *MORE_CASES])
def test_kubelet_files_are_written_byte_for_byte(case):
    configuration = configuration_of(case)
    layout, _ = places(configuration)
    written = kubelet.files(configuration, layout, detected_for(case))
    expected = {path.name: path.read_text() for path in (REFERENCE / "cases" / case / "kubelet").iterdir()}
    assert {path.name: text for path, text in written.items()} == expected
    assert [str(path) for path in written] == [
        "/var/lib/kubelet/kubeadm-flags.env",
        "/var/lib/kubelet/instance-config.yaml",
        "/var/lib/kubelet/config.yaml",
    ]
