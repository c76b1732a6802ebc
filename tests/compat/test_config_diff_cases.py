"""`config diff` for kubeadm's reference cases: what kubeadm uploads for a file does not differ from the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubewright.base import yaml
from kubewright.base.errors import NotFound
from kubewright.lifecycle import config_diff

CASES = Path(__file__).parents[1] / "data" / "reference" / "cases"
NAMES = sorted(path.parent.name for path in CASES.glob("*/init-dry-run-objects.json"))


class Uploaded:
    """An API with the objects that a dry run of kubeadm would upload."""

    def __init__(self, path: Path) -> None:
        objects = [entry.get("object", entry) for entry in json.loads(path.read_text())]
        self.maps = {one["metadata"]["name"]: one for one in objects if one.get("kind") == "ConfigMap"}

    def get(self, _resource, name, _namespace):
        if name not in self.maps:
            raise NotFound(f"no {name}", code=404)
        return self.maps[name]


def test_there_are_cases():
    assert len(NAMES) >= 9


@pytest.mark.parametrize("name", NAMES)
def test_objects_uploaded_by_kubeadm_do_not_differ_from_the_file(name):
    stored = config_diff.read_stored(Uploaded(CASES / name / "init-dry-run-objects.json"))
    assert len(stored) == 3
    documents = yaml.load_all((CASES / name / "kubeadm.yaml").read_text(), source="kubeadm.yaml")
    found = config_diff.compare(config_diff.of_cluster(stored), config_diff.of_file(documents, stored))
    assert [one.diff for one in found] == []
