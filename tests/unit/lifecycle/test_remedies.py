"""Each row of the tables of remedies fits what a real program wrote, and no row before it does."""

from __future__ import annotations

import failure_examples as examples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.lifecycle.diagnosis import observation, remedies

TABLES = {
    "kubelet": (remedies.KUBELET, examples.KUBELET, observation.reasons),
    "component": (remedies.COMPONENT, examples.COMPONENT, observation.errors),
}
CELLS = [(table, text) for table, (rows, _, _) in TABLES.items() for text, _ in rows]


@pytest.mark.parametrize(("table", "text"), CELLS, ids=[" ".join(cell) for cell in CELLS])
def test_a_row_fits_the_log_that_it_was_made_for_and_no_row_hides_it(table, text):
    rows, logs, selected = TABLES[table]
    assert remedies.match(rows, selected(logs[text])) == dict(rows)[text]


@pytest.mark.parametrize("table", TABLES)
def test_every_row_has_an_example(table):
    rows, logs, _ = TABLES[table]
    assert [text for text, _ in rows if text not in logs] == []
    assert len(rows) == len(logs) == len(dict(rows)) == {"kubelet": 11, "component": 8}[table]


@pytest.mark.parametrize("table", TABLES)
def test_remedies_are_sentences_for_people(table):
    for _, remedy in TABLES[table][0]:
        assert remedy[0].islower()
        assert not remedy.endswith(".")
        assert "observation" not in remedy


def test_the_remedies_of_a_machine_name_what_to_change():
    by_text = dict(remedies.KUBELET)
    assert by_text["cgroup v1"] == (
        "boot this machine with cgroup v2, or set failCgroupV1: false in the KubeletConfiguration: this kubelet refuses cgroup v1"
    )
    assert by_text["failed at step exec"] == (
        "install the kubelet where its unit looks for it (`systemctl cat kubelet`), then run the same command again"
    )


def test_the_latest_line_counts():
    lines = [*examples.KUBELET["running with swap on"], *examples.KUBELET["cgroup v1"]]
    assert remedies.of_kubelet(lines) == dict(remedies.KUBELET)["cgroup v1"]


@given(st.lists(st.text()))
def test_any_log_has_a_remedy(lines):
    assert remedies.of_kubelet(lines) in {*dict(remedies.KUBELET).values(), remedies.KUBELET_OTHERWISE}
    assert remedies.of_component(lines) in {*dict(remedies.COMPONENT).values(), remedies.COMPONENT_OTHERWISE}
