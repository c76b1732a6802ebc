"""Everything that docstrings, comments and pages cite exists: files of this repository, decisions, and files of kubeadm (below cmd/kubeadm/app)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = ("src", "tests", "testbed", "scripts", "docs")
PAGES = sorted(
    path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md", ".go"} and path != Path(__file__)
)
ELSEWHERE = re.compile(r"\bspec/[a-z-]+\.md|\bDESIGN\b|\bspec (?:of )?[0-9]+\.[0-9]+|\bof the specification\b")
"""Documents that readers of this repository do not have."""
OWN = re.compile(r"(?<![\w/.-])(?:docs|tests|src/kubewright)/[\w/-]+\.(?:md|py|toml)\b")
MADE_UP = ("tests/unit/repository/", "docs/guide/example-pytest/")
"""Directories that name files which are elsewhere, or nowhere."""
DECISION = re.compile(r"\bdecision (?:record )?(\d+)\b")
KUBEADM = re.compile(
    r"(?:[(;] ?|Sources?: )kubeadm v1\.36(?:\.\d+)?: (?:cmd/kubeadm/app/)?((?:[a-z0-9_]+(?:/[a-z0-9_]+)*(?:\.go)?)(?:, [a-z0-9_]+(?:/[a-z0-9_]+)+(?:\.go)?)*)"
)
UPSTREAM = (ROOT / "tests" / "data" / "upstream" / "kubeadm-v1.36.3.txt").read_text().split()
"""The files below cmd/kubeadm/app. A citation names one of them, or a folder."""


def found(pattern: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield the matches of a pattern in all files, with their location."""
    for page in PAGES:
        text = page.read_text()
        for match in pattern.finditer(text):
            yield f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}", match


def test_no_unavailable_document_is_cited() -> None:
    assert [(place, match[0]) for place, match in found(ELSEWHERE)] == []


def test_every_cited_file_of_this_repository_exists() -> None:
    cited = [(place, match[0]) for place, match in found(OWN) if not place.startswith(MADE_UP)]
    assert len(cited) > 100
    assert [(place, path) for place, path in cited if not (ROOT / path).exists()] == []


def test_every_cited_decision_exists() -> None:
    records = {int(page.name[:4]) for page in (ROOT / "docs" / "decisions").glob("*.md")}
    cited = list(found(DECISION))
    assert len(cited) > 5
    assert [(place, match[0]) for place, match in cited if int(match[1]) not in records] == []


def test_every_cited_file_of_kubeadm_exists() -> None:
    known = {*UPSTREAM, *(folder.as_posix() for file in UPSTREAM for folder in Path(file).parents)}
    cited = [(place, path) for place, match in found(KUBEADM) for path in match[1].split(", ")]
    assert len(cited) > 80
    assert [(place, path) for place, path in cited if path not in known] == []


def test_every_file_on_the_pages_about_the_code_exists() -> None:
    """`docs/architecture.md` and `docs/how-to-add.md` name files below src/kubewright."""
    folders = (ROOT / "src" / "kubewright", ROOT)
    named = {
        path
        for page in ("architecture", "how-to-add")
        for path in re.findall(r"[a-z_]+(?:/[a-z_]+)+\.py", (ROOT / "docs" / f"{page}.md").read_text())
    }
    assert len(named) > 50
    assert sorted(path for path in named if not any((folder / path).exists() for folder in folders)) == []
