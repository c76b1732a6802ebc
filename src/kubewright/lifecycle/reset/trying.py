"""Going on whatever fails: a reset that stops half-way leaves keys on a machine that somebody is about to give away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from kubewright.base.change import Change
from kubewright.base.errors import HostError, KubewrightError
from kubewright.base.events import Event, Reporter
from kubewright.host.failures import BUG, expected


def every(acts: Iterable[Callable[[], Change]], *, what: str, remedy: str = "") -> Iterator[Change]:
    """Do all of a step, whatever becomes of its parts, and yield the changes. Then raises HostError, saying `what`, for those that failed."""
    failed = list[KubewrightError]()
    for act in acts:
        try:
            change = act()
        except Exception as error:
            failed.append(expected(error))
        else:
            yield change
    if failed:
        raise together(failed, what=what, remedy=remedy or failed[0].remedy)


def together(failed: Sequence[KubewrightError], *, what: str, remedy: str, names: Sequence[str] = ()) -> HostError:
    """Return one error for several, by the names of what failed; where one of them is a bug of ours, its remedy says so too."""
    told_of = [f"{name}: {error}" for name, error in zip(names, failed, strict=True)] if names else list(map(str, failed))
    remedies = dict.fromkeys([remedy, *(error.remedy for error in failed if error.remedy == BUG)])
    told = HostError(what, detail="\n".join(told_of), remedy="; ".join(filter(None, remedies)))
    told.__cause__ = failed[0] if len(failed) == 1 else ExceptionGroup(what, failed)
    return told


class Undisturbed:
    """A reporter that is not there any more, or whose disk is full, does not end what is told to it."""

    def __init__(self, inner: Reporter) -> None:
        self._inner = inner

    def emit(self, event: Event, /) -> None:
        with suppress(OSError, ValueError):  # ValueError: its stream is closed
            self._inner.emit(event)


def looked(look: Callable[[], str]) -> str:
    """Return what a look at the machine tells, or why it tells nothing."""
    try:
        return look()
    except Exception as error:
        return f"not known: {expected(error)}"
