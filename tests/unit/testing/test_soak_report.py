"""The page of a soak: what it says about kills that succeeded, failed, or came too late, and about what was not run again."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.soak import report
from tests.soak.report import Outcome

GOOD = Outcome("init", 0, 4, 7, 0.5, 5.0, True, 9.1, "2026-11-21T20:00:00+00:00", "")


def at(boundary: str, workflow: str = "init", *, index: int = 0, killed: bool = True, error: str = "") -> Outcome:
    return Outcome(workflow, index, 2, 7, 0.0, 5.0, killed, 9.1, "2026-11-21T20:00:00+00:00", error, boundary)


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def test_a_row_counts_the_moments_of_each_part_of_a_run():
    late = Outcome("init", 3, 4, 7, 4.99, 5.0, False, 9.1, "2026-11-22T00:10:00+00:00", "")
    bad = Outcome("init", 2, 4, 7, 2.6, 5.0, True, 9.1, "2026-11-21T20:00:00+00:00", "AssertionError: the state is another one:")
    text = report.page([GOOD, bad, late])
    [head, _, row] = rows(text)
    assert head == ["", "moments", "0 to 20 %", "20 to 40 %", "40 to 60 %", "60 to 80 %", "80 to 100 %", "undisturbed", "taken", "seed"]
    assert row[:3] == ["init", "2 of 3 ok (1 ended before)", "1 of 1 ok"]
    assert row[3:7] == ["-", "0 of 1 ok", "-", "1 of 1 ok (1 ended before)"]
    assert row[7:] == ["5.0 s", "2026-11-21 to 2026-11-22", "7"]
    assert "- init after 2.6 s: AssertionError: the state is another one:" in text


def test_a_page_without_failures_names_none():
    assert "failed" not in report.page([GOOD])


def test_every_boundary_has_a_row_with_the_kill_and_its_outcome():
    found = [
        at("preflight begins"),
        at("certs begins", index=1, killed=False, error="AssertionError: no"),
        at("preflight begins", "worker"),
    ]
    text = report.page(found)
    [head, _, *boundaries] = rows(text)
    assert head == ["killed where", "init: 1 of 2 ok, taken 2026-11-21", "worker join: 1 of 1 ok, 1 not tried yet, taken 2026-11-21"]
    assert boundaries == [
        ["preflight begins", "killed there, ok", "killed there, ok"],
        ["certs begins", "not killed there, failed", "-"],
    ]
    assert "- init where certs begins: AssertionError: no" in text


def test_sections_that_were_not_run_again_stay_on_the_page():
    first = report.page([GOOD])
    both = report.page([at("preflight begins")], before=first)
    assert (len(rows(both)), both.count("## ")) == (6, 2)
    assert rows(first) == rows(both)[3:]
    assert report.page([GOOD], before=both) == both
    assert rows(report.page([GOOD, at("preflight begins")])) == rows(both)


def test_moments_of_workflows_that_were_not_run_again_stay_on_the_page():
    first = report.page([GOOD])
    both = report.page([replace(GOOD, workflow="upgrade", moment=4.5)], before=first)
    assert [row[:2] for row in rows(both)[2:]] == [["init", "1 of 1 ok"], ["upgrade apply", "1 of 1 ok"]]
    assert rows(both)[2] == rows(first)[2]


def test_boundaries_of_workflows_that_were_not_run_again_stay_on_the_page():
    first = report.page([at("preflight begins"), at("certs begins", index=1), at("preflight begins", "worker")])
    both = report.page([at("preflight begins", "upgrade"), at("addon/coredns begins", "upgrade", index=1)], before=first)
    [head, _, *boundaries] = rows(both)
    assert [column.partition(":")[0] for column in head] == ["killed where", "init", "worker join", "upgrade apply"]
    assert boundaries == [
        ["preflight begins", "killed there, ok", "killed there, ok", "killed there, ok"],
        ["certs begins", "killed there, ok", "-", "-"],
        ["addon/coredns begins", "-", "-", "killed there, ok"],
    ]
    again = report.page([at("certs begins", index=1, error="AssertionError: no")], before=both)
    assert rows(again)[2:] == [
        ["certs begins", "killed there, failed", "-", "-"],
        ["preflight begins", "-", "killed there, ok", "killed there, ok"],
        ["addon/coredns begins", "-", "-", "killed there, ok"],
    ]


def test_outcomes_are_kept_in_order(tmp_path):
    assert report.load(tmp_path / "none") == []
    report.keep(tmp_path / "soak", GOOD)
    report.keep(tmp_path / "soak", GOOD)
    assert report.load(tmp_path / "soak") == [GOOD, GOOD]
