"""The structs of pods: what Go would write for an object."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubewright.apis import workloads
from kubewright.apis.findings import Findings
from kubewright.base import yaml

CASES = Path(__file__).parents[2] / "data" / "reference" / "cases"
MANIFESTS = sorted(CASES.glob("*/manifests/*.yaml"))


def written(body, kind="Pod"):
    findings = Findings()
    struct = workloads.kind(kind)
    return struct.encode(struct.decode(body, findings.root)), findings


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: f"{path.parents[1].name}-{path.stem}")
def test_a_manifest_is_written_unchanged(path):
    found, findings = written(yaml.load(path.read_bytes()))
    assert (findings.errors, findings.surplus) == ([], [])
    assert yaml.dump(found).encode() == path.read_bytes()


def test_fields_that_go_always_writes_exist_and_unknown_ones_are_dropped():
    assert written({"kind": "Pod", "spec": {"containers": [{"name": "a", "nmae": "b"}]}, "x": 1})[0] == {
        "kind": "Pod",
        "metadata": {},
        "spec": {"containers": [{"name": "a", "resources": {}}]},
        "status": {},
    }


def test_wrong_types_are_found():
    _, findings = written({"spec": {"hostNetwork": "yes", "containers": {}}})
    assert [error.path.text for error in findings.errors] == ["spec.hostNetwork", "spec.containers"]


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "DaemonSet"])
def test_every_type_of_the_table_is_known(kind):
    seen, left = set(), [kind]
    while left:
        struct = left.pop()
        seen.add(struct)
        for member in workloads.members(struct).values():
            workloads.kind(member.type)
            inner = member.type.replace("[]", "").replace("{}", "").replace("?", "")
            left += [inner] if workloads.is_struct(inner) and inner not in seen else []
    assert len(seen) > 100


def test_merged_lists_have_their_keys():
    keys = {member.name: member.merge_key for member in workloads.members("PodSpec").values() if member.merge_key is not None}
    assert (keys["containers"], keys["volumes"], keys["hostAliases"], len(keys)) == ("name", "name", "ip", 9)
