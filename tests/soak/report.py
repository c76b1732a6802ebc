"""What a soak found: an outcome for each kill, kept as JSON lines, and the page that is made of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

_FILE: Final = "outcomes.jsonl"
_PARTS: Final = 5
"""Parts of a run that the page tells apart."""
_TITLES: Final = {"init": "init", "worker": "worker join", "control-plane": "control-plane join"}

_HEAD: Final = """\
# Soak: runs that are killed

Made by `make soak` ([tests/soak](../tests/soak)); not by hand. A machine that was never used for each kill; kubewright is killed by SIGKILL; then the
same command runs again and must end in the state of a run that nothing disturbed: every file with mode, owner and content (of certificates what they
are for and who signed them), every object that kubewright makes, the members of etcd, and an empty `--plan`. `make test-all` does the same at some
boundaries and moments that a seed chooses, with SIGTERM, with SIGHUP and a reset, and with a power cut.
"""
_BOUNDARIES: Final = "At every boundary between two phases"
_MOMENTS: Final = "At random moments"
_TEXTS: Final = {
    _BOUNDARIES: "The run kills itself where it tells that a phase begins, or that the last one has ended, and does nothing after that.",
    _MOMENTS: "So many seconds after it began: one moment in each of as many equal parts of an undisturbed run as there are moments.",
}


@dataclass(frozen=True)
class Outcome:
    """One kill, at a boundary or at a moment.

    `killed` is false where the command was through before; `error` is empty where everything was as it should be.
    """

    workflow: str
    index: int
    count: int
    seed: int
    moment: float
    undisturbed: float
    killed: bool
    took: float
    ended: str
    error: str
    boundary: str = ""

    @property
    def part(self) -> int:
        """In which of the parts of a run it lies."""
        return min(_PARTS - 1, int(_PARTS * self.moment / self.undisturbed))


def keep(directory: Path, outcome: Outcome) -> None:
    """Append an outcome."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / _FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(outcome)) + "\n")


def load(directory: Path) -> list[Outcome]:
    """Return what is kept, in order."""
    path = directory / _FILE
    return [Outcome(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def page(outcomes: Sequence[Outcome], *, before: str = "") -> str:
    """Render the page. Of boundaries, or of moments, of which there is no outcome it says what the page said before."""
    made = {
        _BOUNDARIES: _boundaries([one for one in outcomes if one.boundary]),
        _MOMENTS: _moments([one for one in outcomes if not one.boundary]),
    }
    sections = [_section(title, lines) if lines else _found(title, before) for title, lines in made.items()]
    return "\n".join([_HEAD, *(section for section in sections if section)])


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"## {title}", "", _TEXTS[title], "", *lines]) + "\n"


def _found(title: str, before: str) -> str:
    """Return a section of the page as it was."""
    for section in before.split("\n## ")[1:]:
        if section.partition("\n")[0] == title:
            return f"## {section.rstrip()}\n"
    return ""


def _boundaries(outcomes: Sequence[Outcome]) -> list[str]:
    """Render a row for each boundary, a column for each workflow."""
    names = [name for name in _TITLES if any(one.workflow == name for one in outcomes)]
    if not names:
        return []
    columns = [[one for one in outcomes if one.workflow == name] for name in names]
    told = [
        f"{_TITLES[name]}: {_counted(column)}{_left(column)}, taken {_days(column)}" for name, column in zip(names, columns, strict=True)
    ]
    lines = [f"| killed where | {' | '.join(told)} |", "|" + "---|" * (len(names) + 1)]
    for boundary in dict.fromkeys(one.boundary for one in outcomes):
        cells = [[one for one in column if one.boundary == boundary] for column in columns]
        lines.append(f"| {boundary} | {' | '.join(map(_ended, cells))} |")
    return [*lines, *_failures(outcomes)]


def _left(outcomes: Sequence[Outcome]) -> str:
    """Tell of a run that was interrupted how many of the boundaries it did not come to."""
    left = outcomes[-1].count - len({one.index for one in outcomes})
    return f", {left} not tried yet" if left else ""


def _ended(outcomes: Sequence[Outcome]) -> str:
    """Tell whether the kill came there, and how the same command again ended."""
    return (
        ", ".join(f"{'killed there' if one.killed else 'not killed there'}, {'failed' if one.error else 'ok'}" for one in outcomes) or "-"
    )


def _moments(outcomes: Sequence[Outcome]) -> list[str]:
    """Render a row for each workflow, a column for each part of a run."""
    columns = [f"{100 * part // _PARTS} to {100 * (part + 1) // _PARTS} %" for part in range(_PARTS)]
    lines = [f"| | moments | {' | '.join(columns)} | undisturbed | taken | seed |", "|" + "---|" * (_PARTS + 5)]
    for name, title in _TITLES.items():
        mine = [one for one in outcomes if one.workflow == name]
        if mine:
            lines.append(_row(title, mine))
    return [*lines, *_failures(outcomes)] if outcomes else []


def _failures(outcomes: Sequence[Outcome]) -> list[str]:
    places = [(f"where {one.boundary}" if one.boundary else f"after {one.moment} s", one) for one in outcomes if one.error]
    told = [f"- {_TITLES[one.workflow]} {place}: {one.error}" for place, one in places]
    return ["", "What failed:", "", *told] if told else []


def _row(title: str, outcomes: Sequence[Outcome]) -> str:
    parts = [[one for one in outcomes if one.part == part] for part in range(_PARTS)]
    seeds = ", ".join(sorted({str(one.seed) for one in outcomes}))
    undisturbed = f"{max(one.undisturbed for one in outcomes):.1f} s"
    return f"| {title} | {_counted(outcomes)} | {' | '.join(map(_counted, parts))} | {undisturbed} | {_days(outcomes)} | {seeds} |"


def _days(outcomes: Sequence[Outcome]) -> str:
    taken = sorted({one.ended[:10] for one in outcomes})
    return taken[0] if len(taken) == 1 else f"{taken[0]} to {taken[-1]}"


def _counted(outcomes: Sequence[Outcome]) -> str:
    """Tell how many ended well, of how many; and how many were through before the kill came."""
    well = sum(not one.error for one in outcomes)
    through = sum(not one.killed and not one.error for one in outcomes)
    told = f"{well} of {len(outcomes)} ok" if outcomes else "-"
    return f"{told} ({through} through before)" if through else told
