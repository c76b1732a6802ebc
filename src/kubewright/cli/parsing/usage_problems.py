"""Collects invalid values, so that all of them are reported together."""

from __future__ import annotations

from types import TracebackType

from kubewright.base.errors import UsageError


class UsageProblems:
    """A context for each value, as often as needed; call `require` before the values are used.

    problems = UsageProblems()
    with problems:
        rate = rate_of(parsed)
    with problems:
        pair = pair_of(parsed)
    problems.require()
    """

    def __init__(self) -> None:
        self._found: list[UsageError] = []

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> bool:
        if isinstance(error, UsageError):
            self._found.append(error)
            return True
        return False

    def require(self) -> None:
        """Raise UsageError for the collected problems; several become one that names them all."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            rows = [f"{error}; {error.remedy}" if error.remedy else str(error) for error in self._found]
            raise UsageError(f"{len(rows)} values are wrong", detail="\n".join(rows), remedy="correct each of them")
