"""The picture of two timelines of `init`, and how commands are called on machines."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from tests.bench import machines_timeline
from tests.bench.__main__ import BENCHMARKS, _parse


def course(factor: float) -> dict[str, object]:
    seen = {
        name: moment * factor
        for moment, name in enumerate(
            (
                *("etcd listens", "API answers", "readyz", "Node registered", "Node Ready", "controller-manager healthy"),
                *("scheduler healthy", "kube-proxy available", "CoreDNS available", "all CoreDNS pods"),
            ),
            start=2,
        )
    }
    started = {"kubelet": 1.0, "etcd": 1.5, "kube-apiserver": 1.6, "kube-controller-manager": 3.0, "kube-scheduler": 3.0}
    return {"command": 6.0 * factor, "seen": seen, "started": started}


def test_medians_are_taken_milestone_by_milestone() -> None:
    found = machines_timeline.medians([course(1.0), course(2.0), course(4.0)])
    assert found["command"] == 12.0
    assert found["readyz"] == 8.0
    assert found[""] == 0.0


def test_the_picture_has_both_tools_and_omits_unobserved_events() -> None:
    drawn = machines_timeline.picture({"kubeadm": [course(1.0)], "kubewright": [course(0.5)]})
    texts = [element.text for element in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert {"kubeadm init", "kubewright init"} <= set(texts)
    assert all(label in texts for label, _, _ in machines_timeline.ROWS)
    hints = [element.text or "" for element in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}title")]
    assert "kubewright: 0.00 to 3.00 s" in hints
    assert sum(hint.startswith("kubeadm: ") for hint in hints) == len(machines_timeline.ROWS) - 3  # no start of kube-proxy and of CoreDNS


def test_the_name_machines_selects_all_benchmarks_on_machines() -> None:
    names = [name for name in BENCHMARKS if name.startswith("machines-")]
    assert _parse(["machines"]).names == names
    assert _parse(["machines-init", "--runs", "3"]).rounds == 3
    assert not any(BENCHMARKS[name].by_default for name in names)
