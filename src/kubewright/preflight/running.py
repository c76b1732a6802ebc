"""Running checks: all at the same time, told in the order of the list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from kubewright.base.errors import KubewrightError
from kubewright.preflight.model import Check, Finding, Report, Result, Subject

ALL: Final = "all"
PRIVILEGED: Final = "IsPrivilegedUser"
_WORKERS: Final = 8


def run(checks: Sequence[Check], subject: Subject, *, ignored: Iterable[str] = ()) -> Report:
    """Run checks. `ignored` holds names in any case, or `all`.

    Whether the command runs as root comes first and alone: without that the others would only find that they may not look.
    """
    names = {name.lower() for name in ignored}

    def result(check: Check) -> Result:
        return Result(name=check.name, findings=_findings(check, subject), ignored=ALL in names or check.name.lower() in names)

    first = [result(check) for check in checks if check.name == PRIVILEGED]
    if any(one.errors for one in first):
        return Report(results=first)
    rest = [check for check in checks if check.name != PRIVILEGED]
    with ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="preflight") as pool:
        return Report(results=[*first, *pool.map(result, rest)])


def _findings(check: Check, subject: Subject) -> list[Finding]:
    """A check that cannot be made found something too: that stops the command, and does not hide what the others found."""
    try:
        return list(check.find(subject))
    except KubewrightError as error:
        return [Finding(text=str(error), remedy=error.remedy or "see why this cannot be read, then run the same command again")]
