"""The one error tree of kubewright.

    KubewrightError                1   anything a user can meet
    ├── UsageError                 2   the command line is wrong
    ├── DocumentError              3   a document cannot be read at all (not YAML, no kind, wrong version)
    ├── ValidationError            3   a document was read and breaks rules; carries every field error
    ├── UnsafeText                 3   a value with control characters, which would change what it is written into
    ├── CheckFailed                4   a check the user asked for did not pass (preflight, expiry threshold)
    │   └── PreflightFailed            the checks before a change found errors
    ├── TryAgain                  75  another process is running; try the same command later
    │   └── Locked
    ├── Interrupted              130  Ctrl-C; 143 SIGTERM, 129 SIGHUP; nothing is left half-written
    ├── WaitTimeout                1   a condition did not become true in time; carries the diagnosis
    ├── ConfigurationChanged       1   the machine or cluster was created with another configuration
    ├── TrustError                 1   what was received cannot be trusted (pin, signature, CA, digest)
    ├── CertificateError           1   a key, certificate, CSR or kubeconfig on disk is unusable
    │   └── CertificateMismatch        it is readable, and is not what the specification asks for
    ├── HostError                  1   a file, port, process or directory of this machine
    │   ├── DiskFull
    │   ├── PortInUse
    │   ├── RuntimeUnavailable         no container runtime answers
    │   │   └── RuntimeSilent              one is there, and gives no answer in time
    │   └── ComponentFailed            a process of ours died or never became healthy
    ├── BinariesError              1   a component binary cannot be had
    └── APIError                   1   the Kubernetes API (or etcd) refused or did not answer
        ├── Unreachable                no usable answer: connection, TLS, timeout, truncated body
        ├── Flooded                    more objects than the caller keeps
        └── StatusError                an answer with a status code >= 400
            ├── Unauthorized (401), Forbidden (403), NotFound (404), Gone (410),
            ├── Conflict (409), AlreadyExists (409), Invalid (422), TooManyRequests (429)
            └── ServerError (5xx)

The number is the exit code of kubewright's own commands; kubeadm's commands exit 1 on every one of them (the command's row decides).
An exception outside the tree reaches the user as exit code 70 and is a bug.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kubewright.base.fields import FieldError

_NAMED: Final = (signal.SIGHUP, signal.SIGTERM)
"""Signals that messages name; the other one is Ctrl-C."""


class KubewrightError(Exception):
    """Say what happened, to which object, and what to do next.

    `what` is one line and names the object; `detail` is the evidence (possibly several lines); `remedy` is an
    instruction. None of them may contain a secret.
    """

    exit_code: int = 1

    def __init__(self, what: str, *, detail: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.detail = detail
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}: {self.detail}" if self.detail else self.what

    def as_map(self) -> dict[str, object]:
        """Return the machine-readable form that `-o json` prints."""
        return {"error": type(self).__name__, "what": self.what, "detail": self.detail, "remedy": self.remedy}


class UsageError(KubewrightError):
    """The command line is wrong: unknown flag, surplus argument, flags that exclude each other."""

    exit_code = 2


class DocumentError(KubewrightError):
    """A document cannot be read at all: not YAML, no kind, an unknown version."""

    exit_code = 3


class ValidationError(KubewrightError):
    """A document breaks rules. `errors` contains all of them, in document order, unless `is_cut`: there were too many."""

    exit_code = 3

    def __init__(self, what: str, errors: Sequence[FieldError], *, remedy: str = "", is_cut: bool = False) -> None:
        self.errors = tuple(errors)
        self.is_cut = is_cut
        lines = [*map(str, self.errors), *(["... and more"] if is_cut else [])]
        super().__init__(what, detail="\n".join(lines), remedy=remedy)

    def as_map(self) -> dict[str, object]:
        return {**super().as_map(), "fields": [error.as_map() for error in self.errors]}


class UnsafeText(KubewrightError):
    """A value contains control characters: in a unit, a kubeconfig or a command it could become a separate line or word."""

    exit_code = 3


class CheckFailed(KubewrightError):
    """A check that the user asked for did not pass."""

    exit_code = 4


class PreflightFailed(CheckFailed):
    """Checks before a change found errors. `detail` has a line `[ERROR NAME]: text` for each, and further lines that are indented."""


class TryAgain(KubewrightError):
    """Another process is running; the same command may succeed later (EX_TEMPFAIL of sysexits.h)."""

    exit_code = 75


class Locked(TryAgain):
    """Another kubewright holds the lock of this machine, cluster or build."""


class Interrupted(KubewrightError):
    """The user or the system asked us to stop, with the signal `number`; nothing is left half-written."""

    def __init__(self, what: str, *, detail: str = "", remedy: str = "", number: int = 2) -> None:
        super().__init__(what, detail=detail, remedy=remedy)
        self.exit_code = 128 + number


class WaitTimeout(KubewrightError):
    """A condition did not become true in time. `detail` is the last reason and the diagnosis."""


class ConfigurationChanged(KubewrightError):
    """The machine or cluster was created with another configuration. `detail` is the difference, a unified diff."""


class TrustError(KubewrightError):
    """Received data cannot be trusted: a pin, signature, CA or digest does not match."""


class CertificateError(KubewrightError):
    """A key, certificate, request or kubeconfig on disk is missing or unusable."""


class CertificateMismatch(CertificateError):
    """A readable certificate or kubeconfig does not match its specification; the error names the first difference."""


class HostError(KubewrightError):
    """This machine refused something: a file, a directory, a port, a process."""


class DiskFull(HostError):
    """No space is left where we have to write (ENOSPC, EDQUOT)."""


class PortInUse(HostError):
    """A port that we need is in use; the error names the process that uses it, if that can be determined."""


class RuntimeUnavailable(HostError):
    """No container runtime answers at its socket; trying again at once does not help."""


class RuntimeSilent(RuntimeUnavailable):
    """The runtime accepts connections but does not answer: it is slow, hangs, or has just stopped.

    The same call may work a moment later; pods may be running.
    """


class ComponentFailed(HostError):
    """A process of ours died or never became healthy; `detail` is its last output."""


class BinariesError(KubewrightError):
    """A component binary is not available; `detail` gives the reason for each source."""


class APIError(KubewrightError):
    """The Kubernetes API or etcd refused or did not answer."""


class Unreachable(APIError):
    """No usable answer: connection refused or lost, TLS, timeout, a truncated or oversized body."""


class Flooded(APIError):
    """A server has sent more objects than the caller keeps. Asking again does not help."""


class StatusError(APIError):
    """An answer with a status code of 400 or more. `reason` is the machine-readable reason of the Status object, or ''."""

    code: int
    reason: str
    status: Mapping[str, object]
    retry_after: float | None

    def __init__(
        self,
        what: str,
        *,
        code: int,
        reason: str = "",
        status: Mapping[str, object] | None = None,
        retry_after: float | None = None,
        detail: str = "",
        remedy: str = "",
    ) -> None:
        super().__init__(what, detail=detail, remedy=remedy)
        self.code = code
        self.reason = reason
        self.status = status or {}
        self.retry_after = retry_after


class Unauthorized(StatusError):
    """401: the credential is missing, unknown or expired."""


class Forbidden(StatusError):
    """403: the identity may not do this."""


class NotFound(StatusError):
    """404: no such object, or no such kind."""


class Gone(StatusError):
    """410: the resourceVersion is too old; list again."""


class Conflict(StatusError):
    """409 with reason Conflict: the object changed since it was read."""


class AlreadyExists(StatusError):
    """409 with reason AlreadyExists."""


class Invalid(StatusError):
    """422: the object breaks the API's rules."""


class TooManyRequests(StatusError):
    """429: flow control or a disruption budget; `retry_after` is the delay in seconds that the server asks for."""


class ServerError(StatusError):
    """5xx: the server failed or is not ready."""


class Stopped(KeyboardInterrupt):
    """This process received the signal `number`, which asks it to terminate."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def interruption(stop: KeyboardInterrupt, *, remedy: str, phase: str | None = None) -> Interrupted:
    """Return the error of a command that was stopped in a phase, or outside of any."""
    number = stop.number if isinstance(stop, Stopped) else signal.SIGINT
    by = f" by {signal.Signals(number).name}" if number in _NAMED else ""
    where = f" in phase {phase}" if phase else ""
    return Interrupted(f"interrupted{by}{where}", remedy=remedy, number=number)
