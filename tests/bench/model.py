"""The results of benchmarks: figures with their samples and targets, and their JSON form."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

SECONDS: Final = "s"
RATIO: Final = "x"
MEBIBYTES: Final = "MiB"
RATE: Final = "/s"

MEDIAN: Final = "median"
MOST: Final = "max"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One quantity, measured once per round. `target` is the maximum; a figure without one is informational.

    A ratio contains the ratios of the pairs, never the ratio of two medians: whatever slows the machine down for a
    while slows both halves of a pair.
    """

    name: str
    unit: str
    samples: tuple[float, ...]
    target: float | None = None
    statistic: str = MEDIAN

    @property
    def value(self) -> float:
        """The number that represents the samples."""
        return max(self.samples) if self.statistic == MOST else statistics.median(self.samples)

    @property
    def share(self) -> float | None:
        """The value relative to the target."""
        return None if self.target is None else self.value / self.target

    @property
    def met(self) -> bool:
        """Whether the target is met; true for figures without one."""
        return self.target is None or self.value <= self.target


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of one benchmark. `raw` has one map per round, with everything that was measured; `extra` is for pictures.

    `commit` identifies what was measured: a commit, with a note if the sources differed from it.
    """

    benchmark: str
    taken: str
    commit: str
    machine: Mapping[str, Any]
    figures: tuple[Figure, ...]
    raw: Sequence[Mapping[str, Any]]
    extra: Mapping[str, Any] = field(default_factory=dict)

    def as_map(self) -> dict[str, Any]:
        """Return the JSON form; it contains the values of the figures for readers, and reading computes them again."""
        figures = [{**asdict(figure), "value": figure.value, "met": figure.met} for figure in self.figures]
        return {**asdict(self), "figures": figures, "rounds": len(self.raw)}

    @classmethod
    def from_map(cls, found: Mapping[str, Any]) -> Self:
        """Read the output of `as_map`. Raises KeyError or TypeError for anything else."""
        wanted = ("name", "unit", "target", "statistic")
        figures = tuple(Figure(samples=tuple(row["samples"]), **{name: row[name] for name in wanted}) for row in found["figures"])
        names = ("benchmark", "taken", "commit", "machine", "raw", "extra")
        return cls(figures=figures, **{name: found[name] for name in names})


def figure(
    name: str, rows: Sequence[Mapping[str, Any]], key: str, *, unit: str = SECONDS, target: float | None = None, statistic: str = MEDIAN
) -> Figure:
    """Collect one key of all rounds."""
    return Figure(name=name, unit=unit, samples=tuple(round(row[key], 4) for row in rows), target=target, statistic=statistic)


def ratios(name: str, rows: Sequence[Mapping[str, Any]], ours: str, theirs: str, *, target: float | None = None) -> Figure:
    """Divide one key by another, pair by pair."""
    samples = tuple(round(row[ours] / row[theirs], 4) for row in rows)
    return Figure(name=name, unit=RATIO, samples=samples, target=target)
