"""Figures, their JSON, and the tables and pictures made from them."""

from __future__ import annotations

import json
import re
import subprocess
import xml.etree.ElementTree as ET

import pytest
from tests.bench import drawing, report, results
from tests.bench.__main__ import BENCHMARKS
from tests.bench.model import MEBIBYTES, MOST, RATIO, Figure, Result, figure, ratios

ROWS = [{"ours": 3.0, "theirs": 2.0}, {"ours": 2.0, "theirs": 2.0}, {"ours": 9.0, "theirs": 3.0}]
TIMELINE = {
    "bars": [
        {"kind": "phase", "label": "certs", "start": 0.2, "end": 0.4},
        {"kind": "component", "label": "etcd", "start": 0.3, "end": 0.5},
        {"kind": "node", "label": "default-worker-1", "start": 3.0, "end": 3.1},
    ],
    "marks": {"API ready": 2.5, "nodes Ready": 3.1},
    "total": 3.2,
}


def a_result(*figures: Figure, **extra: object) -> Result:
    machine = {
        "cores": 2, "memoryMiB": 2048, "kernel": "6.1", "architecture": "amd64", "processor": "", "python": "3.11.2", "kubernetes": "v1.36.3",
    }  # fmt: skip
    return Result(
        benchmark="start", taken="2026-11-21T12:00:00Z", commit="286403e", machine=machine, figures=figures, raw=ROWS, extra=extra
    )


def test_ratios_are_computed_pair_by_pair():
    one = ratios("beside the peer", ROWS, "ours", "theirs", target=1.15)
    assert one.samples == (1.5, 1.0, 3.0)
    assert one.value == 1.5
    assert not one.met


@pytest.mark.parametrize(("statistic", "value"), [("median", 3.0), (MOST, 9.0)])
def test_a_figure_is_the_median_or_maximum_of_its_samples(statistic, value):
    assert figure("time", ROWS, "ours", statistic=statistic).value == value


def test_a_figure_without_a_target_is_informational():
    one = Figure(name="time", unit="s", samples=(1.0,))
    assert (one.met, one.share) == (True, None)


def test_a_result_is_read_back_as_it_was_written(tmp_path):
    found = a_result(figure("time", ROWS, "ours", target=2.0), ratios("ratio", ROWS, "ours", "theirs"), timeline=TIMELINE)
    path = results.save(found, tmp_path)
    assert json.loads(path.read_text())["figures"][0]["met"] is False
    assert results.load(tmp_path, ["start", "nodes"]) == [found]


@pytest.mark.parametrize(
    ("unit", "value", "written"),
    [("s", 0.0289, "28.9 ms"), ("s", 1.234, "1.23 s"), ("s", 271.4, "271 s"), (RATIO, 1.1499, "1.15 ×"), (MEBIBYTES, 149.7, "150 MiB")],
)
def test_numbers_carry_their_unit(unit, value, written):
    assert report.number(Figure(name="n", unit=unit, samples=(value,)), value) == written


def test_the_table_says_which_targets_are_met():
    text = report.text([a_result(figure("`up`", ROWS, "ours", target=2.0), figure("peer", ROWS, "theirs", target=2.0))])
    lines = text.splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("up ")
    assert lines[1].endswith("no")
    assert lines[2].endswith("yes")


def test_the_document_gets_its_figures_between_the_marks_and_keeps_the_rest(tmp_path):
    document = tmp_path / "performance.md"
    document.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    found = a_result(figure("`up`", ROWS, "ours", target=2.0))
    report.fill(document, [found])
    once = document.read_text()
    report.fill(document, [found])
    assert document.read_text() == once
    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
    assert "old" not in once
    assert "### start\n\n286403e, 2026-11-21, 2 cores" in once
    assert once.count("| `up` | ≤ 2.00 s | 3.00 s | 2.00 s to 9.00 s | 3 | **no** |") == 1


def test_a_result_names_the_commit_that_was_measured(tmp_path):
    """With changes, if the sources differed from the commit; documents may differ."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
    (tmp_path / "src").mkdir()
    assert results.commit(tmp_path) == "no commit"
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "m"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    (tmp_path / "README.md").write_text("new")
    assert head.startswith(results.commit(tmp_path))
    (tmp_path / "src" / "new.py").write_text("")
    assert results.commit(tmp_path).endswith(" with changes")


def test_every_figure_in_the_documents_names_its_commit():
    """And the page is generated from the results next to it."""
    documents = results.SOURCES / "docs"
    found = results.load(documents / "performance", list(BENCHMARKS))
    assert len(found) == len(list((documents / "performance").glob("*.json"))) > 0
    assert [one.benchmark for one in found if not re.fullmatch(r"[0-9a-f]{7,}( with changes)?", one.commit)] == []
    assert report.markdown(found) in (documents / "performance.md").read_text()


def test_a_document_without_marks_is_refused(tmp_path):
    document = tmp_path / "performance.md"
    document.write_text("nothing\n")
    with pytest.raises(ValueError, match=r"performance\.md lacks"):
        report.fill(document, [])


def test_the_chart_has_a_bar_for_every_target_and_a_dot_for_every_round():
    picture = ET.fromstring(drawing.targets([figure("a < b", ROWS, "ours", target=2.0), figure("untold", ROWS, "theirs")]))
    space = "{http://www.w3.org/2000/svg}"
    assert len(picture.findall(f"{space}circle")) == len(ROWS)
    assert len(picture.findall(f"{space}rect")) == 2  # the background and one bar
    assert "a < b" in [element.text for element in picture.findall(f"{space}text")]


def test_the_timeline_shows_every_bar_and_every_mark():
    picture = ET.fromstring(drawing.course(TIMELINE))
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"certs", "etcd", "default-worker-1", "API ready 2.50 s", "nodes Ready 3.10 s"} <= set(texts)
