"""The options of the controllers: those of kube-controller-manager that concern the controllers implemented here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import UsageError
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass, field
from kubewright.controllers.serving.locations import PolicyLocation
from kubewright.kube.daemons.electing import Election

APPROVING: Final = "certificatesigningrequest-approving-controller"
SIGNING: Final = "certificatesigningrequest-signing-controller"
CLEANING: Final = "certificatesigningrequest-cleaner-controller"
BOOTSTRAP_SIGNING: Final = "bootstrap-signer-controller"
TOKEN_CLEANING: Final = "token-cleaner-controller"  # noqa: S105 (no password: a name)
SERVING_APPROVING: Final = "kubelet-serving-approving-controller"

NO_FILES: Final = ("", "")


@dataclass(frozen=True, kw_only=True)
class ControllerName:
    """One controller: its name, the alias that flags accept for it, and whether `*` includes it."""

    name: str
    alias: str
    by_default: bool = True


CONTROLLERS: Final = (
    ControllerName(name=APPROVING, alias="csrapproving"),
    ControllerName(name=SIGNING, alias="csrsigning"),
    ControllerName(name=CLEANING, alias="csrcleaner"),
    ControllerName(name=BOOTSTRAP_SIGNING, alias="bootstrapsigner", by_default=False),
    ControllerName(name=TOKEN_CLEANING, alias="tokencleaner", by_default=False),
    ControllerName(name=SERVING_APPROVING, alias="servingapproving", by_default=False),
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of one run.

    `files` are the certificate and key of each signer's CA, by the signer's word in flags; a signer without files is
    off.
    """

    controllers: frozenset[str]
    files: Mapping[str, tuple[PurePosixPath, PurePosixPath]] = field(default_factory=dict)
    longest: timedelta = timedelta(hours=8760)
    election: Election | None = None
    """None if this process is the only one."""
    qps: float = 20.0
    burst: int = 30
    node_policy: PolicyLocation | None = None
    """Where the NodeApprovalPolicy is; needed by the approver of serving certificates."""


def selected(words: Iterable[str]) -> frozenset[str]:
    """Return the controllers that `--controllers` selects.

    Entries are names, aliases, `*` for all that are on by default, and `-name`; the first matching entry decides.
    Raises UsageError for an unknown name.
    """
    given = list(words)
    names = {word: row.name for row in CONTROLLERS for word in (row.name, row.alias)}
    for word in given:
        if word != "*" and word.removeprefix("-") not in names:
            raise UsageError(
                f"there is no controller {quoted(word.removeprefix('-'))} here",
                detail=f"kubewright has {', '.join(row.alias for row in CONTROLLERS)}",
                remedy="leave the others to kube-controller-manager",
            )
    return frozenset(row.name for row in CONTROLLERS if _enabled(row, given))


def _enabled(row: ControllerName, given: list[str]) -> bool:
    for word in given:
        if word.removeprefix("-") in {row.name, row.alias}:
            return not word.startswith("-")
    return "*" in given and row.by_default


def authority_files(shared: tuple[str, str], own: Mapping[str, tuple[str, str]]) -> dict[str, tuple[PurePosixPath, PurePosixPath]]:
    """Return the files of each signer: one pair for all, or one for each configured signer.

    Raises UsageError if both ways are mixed, or if half a pair is given.
    """
    given = {name: pair for name, pair in own.items() if pair != NO_FILES}
    if given and shared != NO_FILES:
        raise UsageError(
            "--cluster-signing-cert-file and --cluster-signing-key-file cannot be combined with those of single signers",
            detail=", ".join(f"--cluster-signing-{name}-*" for name in given),
            remedy="specify one pair for all signers, or a pair for each",
        )
    pairs = dict.fromkeys(own, shared) if shared != NO_FILES else given
    for name, (certificate, key) in pairs.items():
        if not certificate or not key:
            flag = "--cluster-signing" if shared != NO_FILES else f"--cluster-signing-{name}"
            raise UsageError(f"{flag}-cert-file and {flag}-key-file go together", remedy="name both")
    return {name: (PurePosixPath(certificate), PurePosixPath(key)) for name, (certificate, key) in pairs.items()}
