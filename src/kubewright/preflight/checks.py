"""The shape of a check (a name that can be ignored, and a function that yields what it found), and running checks at the same time."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.kubeadm.types import ClusterConfiguration, NodeRegistration
from kubewright.apis.machine import Addresses
from kubewright.base.errors import CheckFailed, KubewrightError
from kubewright.base.records import dataclass
from kubewright.host.seam import Host

ALL: Final = "all"
PRIVILEGED: Final = "IsPrivilegedUser"
_WORKERS: Final = 8


class Severity(enum.Enum):
    """What a finding does to the command: errors stop it unless their check is ignored."""

    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is not as it should be, and how to fix it."""

    text: str
    remedy: str
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What checks look at: the machine, and what is to become of it.

    `cluster` is None where it is not known before the machine is checked: on join.
    """

    host: Host
    node: NodeRegistration
    addresses: Addresses
    cluster: ClusterConfiguration | None = None
    user: int = 0
    """The effective user id of the command."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check. The name is kubeadm's, as users write it into --ignore-preflight-errors; several rows may share one."""

    name: str
    find: Callable[[Subject], Iterable[Finding]]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one check found. `ignored` means that its errors count as warnings."""

    name: str
    findings: Sequence[Finding]
    ignored: bool = False

    @property
    def errors(self) -> list[Finding]:
        """The findings that stop the command."""
        return [] if self.ignored else [found for found in self.findings if found.severity is Severity.ERROR]

    @property
    def warnings(self) -> list[Finding]:
        """The findings that are only told."""
        return [found for found in self.findings if self.ignored or found.severity is Severity.WARNING]

    def as_map(self) -> dict[str, object]:
        """Return the JSON form."""
        rows = [{"severity": found.severity.value, "text": found.text, "remedy": found.remedy} for found in self.findings]
        return {"name": self.name, "ignored": self.ignored, "passed": not self.errors, "findings": rows}


@dataclass(frozen=True, kw_only=True)
class Report:
    """What all checks found, in the order of the list."""

    results: Sequence[Result]

    def require_passed(self) -> None:
        """Raise CheckFailed if anything stops the command, naming every error and how to fix it."""
        failed = [(result.name, found) for result in self.results for found in result.errors]
        if failed:
            raise CheckFailed(
                "preflight checks failed",
                detail="\n".join(f"[ERROR {name}]: {found.text}; {found.remedy}" for name, found in failed),
                remedy="fix the listed problems; if you know what you are doing, make a check non-fatal with `--ignore-preflight-errors=...`",
            )


def path_name(kind: str, path: PurePosixPath) -> str:
    """Return kubeadm's name of a check about a path: `FileAvailable--etc-kubernetes-kubelet.conf`."""
    return f"{kind}-{str(path).replace('/', '-')}"


def warning(text: str, *, remedy: str) -> Finding:
    """Make a finding that is only told."""
    return Finding(text=text, remedy=remedy, severity=Severity.WARNING)


def run_checks(checks: Sequence[Check], subject: Subject, *, ignored: Iterable[str] = ()) -> Report:
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
