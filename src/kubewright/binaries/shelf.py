"""Where binaries are found without fetching anything: the user's directory, then the cache."""

from __future__ import annotations

from collections.abc import Mapping

from kubewright.base.records import dataclass, field
from kubewright.binaries.cache import Cache
from kubewright.binaries.directory import Directory
from kubewright.binaries.settings import Sources
from kubewright.binaries.wanted import Binary, Refusal, Wanted


@dataclass(frozen=True, kw_only=True)
class Located:
    """What is there, by name, and what is missing with the reason of each place that was looked at."""

    found: Mapping[str, Binary] = field(default_factory=dict)
    missing: Mapping[str, tuple[Refusal, ...]] = field(default_factory=dict)


class Shelf:
    """The two places that hold finished binaries."""

    def __init__(self, sources: Sources) -> None:
        self.cache = Cache(sources.cache)
        self._directory = Directory(sources.directory, cache_root=sources.cache) if sources.directory is not None else None

    def find(self, wanted: Wanted) -> Binary | tuple[Refusal, ...]:
        """Look one program up. Raises BinariesError where the user's directory holds it, unfit."""
        refusals: list[Refusal] = []
        for place in (self._directory, self.cache):
            if place is None:
                continue
            found = place.find(wanted)
            if isinstance(found, Binary):
                return found
            refusals.append(found)
        return tuple(refusals)

    def locate(self, wanted: tuple[Wanted, ...]) -> Located:
        """Look several programs up. Raises as `find` does."""
        found: dict[str, Binary] = {}
        missing: dict[str, tuple[Refusal, ...]] = {}
        for one in wanted:
            answer = self.find(one)
            if isinstance(answer, Binary):
                found[one.name] = answer
            else:
                missing[one.name] = answer
        return Located(found=found, missing=missing)
