"""`upgrade rollback` refuses an earlier API server that cannot read what the later one has stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from upgrade_kit import NEW, OLD, PODS, Answers, ControlPlane

from kubewright.base.errors import HostError
from kubewright.base.versions import Version
from kubewright.http.messages import Response
from kubewright.lifecycle.upgrade import stored_objects

BEFORE = "v1.35.4"
PATH = "/apis/scheduling.k8s.io/v1alpha2/workloads?limit=1"
ANSWERS = {"objects": (200, {"items": [{}]}), "none": (200, {"items": []}), "not served": (404, {"kind": "Status"})}


@pytest.fixture
def box(tmp_path):
    """A control plane that was upgraded from the minor release before."""
    box = ControlPlane(tmp_path)
    for name in PODS[1:]:
        path = Path(box.layout.manifest(name))
        path.write_text(path.read_text().replace(OLD, BEFORE))
    box.upgrade()
    return box


def answering(monkeypatch, status, document):
    """Let the API server answer the request for Workloads."""
    exchange = Answers.exchange

    def answer(self, request, /):
        if request.target == PATH:
            return Response(status=status, headers={}, body=json.dumps(document).encode())
        return exchange(self, request)

    monkeypatch.setattr(Answers, "exchange", answer)


@pytest.mark.parametrize("found", ANSWERS)
def test_objects_in_a_version_that_the_earlier_release_does_not_know_are_named(box, monkeypatch, found):
    answering(monkeypatch, *ANSWERS[found])
    if found == "objects":
        with pytest.raises(HostError, match=rf"kube-apiserver {BEFORE} cannot read objects that {NEW} has stored") as caught:
            box.rollback()
        assert caught.value.detail == "workloads.scheduling.k8s.io are stored as scheduling.k8s.io/v1alpha2"
        assert box.tags()[1:] == [NEW] * 3
    else:
        box.rollback()
        assert box.tags()[1:] == [BEFORE] * 3


def test_an_api_server_that_does_not_answer_is_replaced_with_a_warning(box):
    box.runtime.broken = {"kube-apiserver"}
    box.rollback()
    assert box.tags()[1:] == [BEFORE] * 3
    assert [text for text in box.warnings() if f"it was not checked whether kube-apiserver {BEFORE} can read all objects" in text]


@pytest.mark.parametrize(
    ("earlier", "later", "kinds"),
    [
        ("v1.36.2", "v1.36.3", []),
        ("v1.35.4", "v1.36.3", ["workloads"]),
        ("v1.36.3", "v1.37.1", ["workloads", "podgroups"]),
        ("v1.36.3", "v1.36.9", []),
    ],
)
def test_only_kinds_whose_version_is_new_in_the_later_release_are_asked_for(earlier, later, kinds):
    found = stored_objects.unknown_to(Version.parse(earlier), later=Version.parse(later))
    assert [plural for _, plural in found] == kinds
