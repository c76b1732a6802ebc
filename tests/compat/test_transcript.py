"""docs/compat/transcript.md equals the current output of the two programs."""

from __future__ import annotations

import pytest
import transcript
from certs_comparison import find_kubeadm


@pytest.fixture(scope="module")
def answers():
    return transcript.runs(find_kubeadm())


def test_the_page_equals_the_current_output(answers):
    theirs, ours = answers
    assert transcript.page(theirs.runs, ours.runs) == transcript.PAGE.read_text(), (
        "generate it again: PYTHONPATH=src python tests/compat/transcript.py"
    )


def test_both_tools_succeed_and_fail_alike(answers):
    theirs, ours = answers
    codes = [(one.code, two.code) for one, two in zip(theirs.runs, ours.runs, strict=True)]
    assert len(codes) == len(transcript.STEPS) >= 10
    assert [codes.count(pair) for pair in ((0, 0), (1, 1))] == [len(codes) - 2, 2]


def test_both_tools_leave_the_same_files(answers):
    theirs, ours = ({path: found.mode for path, found in answer.files.items() if found.kind == "file"} for answer in answers)
    assert len(ours) > 30
    assert ours == theirs


def test_the_page_contains_nothing_that_changes_from_run_to_run():
    text = transcript.PAGE.read_text()
    assert transcript.still(text) == text
    assert text.count("<date>") > 10
