"""Checks before a change: a check is a row (a name and a function that yields findings), and one runner runs them all.

The tables are next to their subjects: `preflight/lists` (machines), `local/cluster/preflight`,
`enrollment/node/preflight`, `lifecycle/upgrade/planning/health`, `lifecycle/reset/operation`. A check only reads;
only the Job of `upgrade plan` writes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Generic, TypeVar

from kubewright.base.errors import KubewrightError, PreflightFailed
from kubewright.base.records import dataclass

ALL: Final = "all"
PRIVILEGED: Final = "IsPrivilegedUser"
"""The name of the check that requires root."""
_WORKERS: Final = 8

Subject_contra = TypeVar("Subject_contra", contravariant=True)


class Severity(enum.Enum):
    """The effect of a finding on the command: errors stop it unless their check is ignored."""

    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One problem that a check found, and how to fix it."""

    text: str
    remedy: str = ""
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.text, self.remedy)))


@dataclass(frozen=True, kw_only=True)
class Check(Generic[Subject_contra]):
    """One check of a subject."""

    name: str
    """The name that users pass to --ignore-preflight-errors. Several rows may share one."""
    find: Callable[[Subject_contra], Iterable[Finding]]
    comes_first: bool = False
    """Whether it runs alone before the others, which do not run if it finds an error."""
    passes_errors_on: bool = False
    """Whether the runner raises an exception of this check. Otherwise it becomes a finding, and does not hide those of other checks."""
    evidence: Callable[[Subject_contra], str] | None = None
    """Returns everything that the check has looked at, for people. Called if it finds an error."""


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The findings of one check. `ignored` means that its errors count as warnings. `evidence` is that of the check."""

    name: str
    findings: Sequence[Finding]
    ignored: bool = False
    evidence: str = ""

    @property
    def errors(self) -> list[Finding]:
        """The findings that stop the command."""
        return [] if self.ignored else [found for found in self.findings if found.severity is Severity.ERROR]

    @property
    def warnings(self) -> list[Finding]:
        """The findings that do not stop the command."""
        return [found for found in self.findings if self.ignored or found.severity is Severity.WARNING]

    def as_map(self) -> dict[str, object]:
        """Return the JSON form."""
        rows = [{"severity": found.severity.value, "text": found.text, "remedy": found.remedy} for found in self.findings]
        return {"name": self.name, "ignored": self.ignored, "passed": not self.errors, "findings": rows}


@dataclass(frozen=True, kw_only=True)
class Report:
    """The results of all checks, in the order of the table."""

    results: Sequence[CheckResult]

    @property
    def errors(self) -> list[tuple[str, Finding]]:
        """The errors that stop the command, each with the name of its check."""
        return [(result.name, found) for result in self.results for found in result.errors]

    def require_passed(self) -> None:
        """Raise PreflightFailed if anything stops the command, with every error and its remedy."""
        if self.errors:
            raise PreflightFailed(
                "preflight checks failed",
                detail="\n".join(f"[ERROR {name}]: {found}" for name, found in self.errors),
                remedy="fix the listed problems; if you know what you are doing, make a check non-fatal with `--ignore-preflight-errors=...`",
            )


def warning(text: str, *, remedy: str) -> Finding:
    """Return a finding that does not stop the command."""
    return Finding(text=text, remedy=remedy, severity=Severity.WARNING)


def run_checks(
    checks: Sequence[Check[Subject_contra]], subject: Subject_contra, *, ignored: Iterable[str] = (), in_order: bool = False
) -> Report:
    """Run checks, concurrently unless `in_order`. `ignored` contains names in any case, or `all`."""
    names = {name.lower() for name in ignored}

    def result(check: Check[Subject_contra]) -> CheckResult:
        found, ignored = _findings(check, subject), ALL in names or check.name.lower() in names
        return CheckResult(name=check.name, findings=found, ignored=ignored, evidence=_evidence(check, subject, found))

    first = [result(check) for check in checks if check.comes_first]
    if any(one.errors for one in first):
        return Report(results=first)
    rest = [check for check in checks if not check.comes_first]
    if in_order:
        return Report(results=[*first, *map(result, rest)])
    with ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="preflight") as pool:
        return Report(results=[*first, *pool.map(result, rest)])


def _evidence(check: Check[Subject_contra], subject: Subject_contra, found: Sequence[Finding]) -> str:
    if check.evidence is None or all(one.severity is not Severity.ERROR for one in found):
        return ""
    with suppress(KubewrightError):  # a finding says what cannot be read
        return check.evidence(subject)
    return ""


def _findings(check: Check[Subject_contra], subject: Subject_contra) -> list[Finding]:
    try:
        return list(check.find(subject))
    except KubewrightError as error:
        if check.passes_errors_on:
            raise
        return [Finding(text=str(error), remedy=error.remedy or "see why this cannot be read, then run the same command again")]
