"""The documents are consistent: links work, pictures exist and are small, and commands that are shown exist."""

from __future__ import annotations

import re
import xml.dom.minidom
from pathlib import Path

import pytest

from kubewright.cli.rows import commands
from typed import blocks

ROOT = Path(__file__).parents[3]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
SHOWN = re.compile(r"(?:`|\$ )kubewright ([a-z]+)")
MADE_BY_BENCH = ROOT / "docs" / "performance"
"""Files that the first run of `make bench` writes."""
MOST_PICTURE_BYTES = 100_000


def anchors(page: Path) -> set[str]:
    """Return the anchors that code hosts give a page's headings: lower case, blanks to hyphens, punctuation dropped."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_decision_records_are_numbered_without_gaps_and_named_by_title():
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [int(page.name[:4]) for page in records]
    assert numbers == list(range(1, len(records) + 1))
    assert [page.read_text().split(".")[0] for page in records] == [f"# {number}" for number in numbers]


def test_every_link_works():
    broken, seen = [], 0
    for page in PAGES:
        for target in LINK.findall(page.read_text()):
            if "://" in target:
                continue
            seen += 1
            path, _, anchor = target.partition("#")
            place = (page.parent / path).resolve() if path else page
            if place.is_relative_to(MADE_BY_BENCH):
                continue
            if not place.exists() or (anchor and anchor not in anchors(place)):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert seen > 20
    assert broken == []


def test_shown_commands_exist():
    known = {command.words[0] for command in commands.TABLE.every() if command.words}
    shown = {(page.name, word) for page in PAGES for word in SHOWN.findall(page.read_text())}
    assert len(shown) > 10
    assert [(page, word) for page, word in sorted(shown) if word not in known] == []


def test_every_command_block_of_a_guide_is_tested_or_says_why_not():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").rglob("*.md"))]
    found = [block for page in pages for block in blocks(page) if block.is_commands]
    assert len(found) > 45
    assert [block.place for block in found if not block.how] == []
    named = [path for block in found if block.how == "not typed" for path in re.findall(r"tests/\S+\.py", block.where)]
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_fault_names_an_existing_test():
    """A path, or the folder that is named above the table."""
    defined = re.compile(r"^(?:    )?(?:async )?def (test_\w+)", re.MULTILINE)
    tests = ROOT / "tests"
    there = {path.relative_to(tests).as_posix(): set(defined.findall(path.read_text())) for path in tests.rglob("test_*.py")}
    page = (ROOT / "docs" / "guide" / "troubleshooting.md").read_text()
    folder, seen, wrong = "", 0, []
    for line in page.splitlines():
        if found := re.search(r"`tests/(\w+)", line):
            folder = found.group(1)
        for path, name in re.findall(r"`(?:([\w/]+\.py)::)?(test_\w+)`", line):
            seen += 1
            if not any(name in names for file, names in there.items() if file == path or (not path and file.startswith(f"{folder}/"))):
                wrong.append(f"{path or folder} {name}")
    assert seen > 60
    assert wrong == []


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "images").glob("*.svg")), ids=lambda path: path.name)
def test_pictures_are_small_and_load_nothing_external(picture):
    text = picture.read_text()
    xml.dom.minidom.parseString(text)
    assert len(text.encode()) < MOST_PICTURE_BYTES
    assert set(re.findall(r"https?://[^\s\"')]+", text)) <= {"http://www.w3.org/2000/svg"}
