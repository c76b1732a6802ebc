"""The options of the upgrade commands, and the configuration that they result in (kubeadm v1.36: cmd/upgrade)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kubewright.apis.kubeadm import rules
from kubewright.apis.kubeadm.loading import LoadedKind, load_upgrade
from kubewright.apis.kubeadm.node_types import UpgradeConfiguration
from kubewright.apis.kubeadm.types import Patches
from kubewright.base.errors import UsageError
from kubewright.base.records import dataclass, field, replace
from kubewright.base.yaml import Document

APPLY: Final = "apply"
"""The section of `upgrade apply`."""
_NAMED: Final = "skip_phases", "ignore_preflight_errors"


@dataclass(frozen=True, kw_only=True)
class UpgradeOptions:
    """One call of an upgrade command or of one of its phases.

    `section` is its part of the UpgradeConfiguration: apply, node, plan or diff. `flags` are the values given on the
    command line, by the attribute of that part (`patches` is an absolute path). They override the file; the names of
    ignored checks are added to those of the file. `kubeconfig` is '' for the machine's own. `kubelet` is the path of a
    program that replaces the machine's kubelet, '' for none; `drain`: the machine is drained before that. `skip_dead`
    are control planes that add-ons do not wait for, because they are dead. `keep_changes`: manual changes of static
    pods become patches. `ask` asks
    the user a question and returns the answer; it is not called if `yes` is set.
    """

    section: str
    documents: Sequence[Document] = ()
    from_file: bool = False
    flags: Mapping[str, Any] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    only: tuple[str, ...] = ()
    kubeconfig: str = ""
    kubelet: str = ""
    drain: bool = False
    skip_dead: tuple[str, ...] = ()
    keep_changes: bool = False
    yes: bool = False
    ask: Callable[[str], str] | None = None


@dataclass(frozen=True, kw_only=True)
class RollbackOptions:
    """One call of `upgrade rollback`.

    `ask` asks the user a question and returns the answer; it is not called if `yes` is set.
    """

    only: tuple[str, ...] = ()
    yes: bool = False
    ask: Callable[[str], str] | None = None


def configure(request: UpgradeOptions) -> LoadedKind[UpgradeConfiguration]:
    """Load the configuration; unknown fields are warnings.

    Raises as `load_upgrade` does, and UsageError if `all` is combined with names of checks.
    """
    loaded = load_upgrade(request.documents, change=lambda given: _changed(given, request), from_file=request.from_file)
    section = getattr(loaded.configuration, request.section)
    for reason, _ in rules.all_or_some(getattr(section, "ignore_preflight_errors", ())):
        raise UsageError(f"--ignore-preflight-errors: {reason}", remedy="list checks by name, or use `all` alone")
    return loaded


def target(request: UpgradeOptions, configuration: UpgradeConfiguration) -> str:
    """Return the version to upgrade to: the argument if there is exactly one, otherwise that of the file.

    Raises UsageError if there is neither.
    """
    named = configuration.apply.kubernetes_version
    if len(request.arguments) == 1:
        return request.arguments[0]
    if named:
        return named
    problem = "too many arguments" if request.arguments else "missing one or more required arguments"
    raise UsageError(
        f"{problem}. Required arguments: [version]",
        remedy="pass the version as the only argument, or set apply.kubernetesVersion in the file",
    )


def _changed(given: UpgradeConfiguration, request: UpgradeOptions) -> UpgradeConfiguration:
    section = getattr(given, request.section)
    values = {name: value for name, value in request.flags.items() if name not in _NAMED}
    if "patches" in values:
        values["patches"] = Patches(directory=values["patches"])
    if request.flags.get("skip_phases"):
        values["skip_phases"] = tuple(request.flags["skip_phases"])
    if hasattr(section, "ignore_preflight_errors"):
        ignored = (*section.ignore_preflight_errors, *request.flags.get("ignore_preflight_errors", ()))
        values["ignore_preflight_errors"] = tuple(dict.fromkeys(ignored))
    return replace(given, **{request.section: replace(section, **values)})
