"""What a soak found: an outcome for each moment, kept as JSON lines, and the page that is made of them."""

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
# Soak: runs that are killed at random moments

Made by `make soak` ([tests/soak](../tests/soak)); not by hand. A machine that was never used for each moment; kubewright is killed by SIGKILL so
many seconds after it began; then the same command runs again and must end in the state of a run that nothing disturbed: every file with mode,
owner and content (of certificates what they are for and who signed them), every object that kubewright makes, the members of etcd, and an empty
`--plan`. The moments are random, one in each of as many equal parts of an undisturbed run as there are moments. `make test` does the same at every
boundary between two phases, at 8 random moments, with SIGINT, and with power cuts.

"""


@dataclass(frozen=True)
class Outcome:
    """One moment. `killed` is false where the command was through before; `error` is empty where everything was as it should be."""

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


def page(outcomes: Sequence[Outcome]) -> str:
    """Render the page: a row for each workflow, a column for each part of a run."""
    columns = [f"{100 * part // _PARTS} to {100 * (part + 1) // _PARTS} %" for part in range(_PARTS)]
    lines = [f"| | moments | {' | '.join(columns)} | undisturbed | taken | seed |", "|" + "---|" * (_PARTS + 5)]
    for name, title in _TITLES.items():
        mine = [one for one in outcomes if one.workflow == name]
        if mine:
            lines.append(_row(title, mine))
    failures = [f"- {_TITLES[one.workflow]} after {one.moment} s: {one.error}" for one in outcomes if one.error]
    told = ["", "What failed:", "", *failures] if failures else []
    return _HEAD + "\n".join([*lines, *told]) + "\n"


def _row(title: str, outcomes: Sequence[Outcome]) -> str:
    parts = [[one for one in outcomes if one.part == part] for part in range(_PARTS)]
    taken = sorted({one.ended[:10] for one in outcomes})
    days = taken[0] if len(taken) == 1 else f"{taken[0]} to {taken[-1]}"
    seeds = ", ".join(sorted({str(one.seed) for one in outcomes}))
    undisturbed = f"{max(one.undisturbed for one in outcomes):.1f} s"
    return f"| {title} | {_counted(outcomes)} | {' | '.join(map(_counted, parts))} | {undisturbed} | {days} | {seeds} |"


def _counted(outcomes: Sequence[Outcome]) -> str:
    """Tell how many ended well, of how many; and how many were through before the kill came."""
    well = sum(not one.error for one in outcomes)
    through = sum(not one.killed and not one.error for one in outcomes)
    told = f"{well} of {len(outcomes)} ok" if outcomes else "-"
    return f"{told} ({through} through before)" if through else told
