"""The `upgrade` commands and their phases. Those that change a machine check what they are asked for and leave it alone in this release."""

from __future__ import annotations

from typing import Any, Final

from kubewright.apis.kubeadm.node_types import UpgradeConfiguration
from kubewright.base.versions import Version
from kubewright.cli import machine_calls
from kubewright.cli.parser import Parsed
from kubewright.lifecycle.upgrade import policy
from kubewright.lifecycle.upgrade.phases import APPLY, NODE
from kubewright.lifecycle.upgrade.request import UpgradeRequest, configure, target

_ATTRIBUTES: Final = {
    "allow-experimental-upgrades": "allow_experimental_upgrades",
    "allow-release-candidate-upgrades": "allow_rc_upgrades",
    "certificate-renewal": "certificate_renewal",
    "context-lines": "context_lines",
    "dry-run": "dry_run",
    "etcd-upgrade": "etcd_upgrade",
    "force": "force_upgrade",
    "ignore-preflight-errors": "ignore_preflight_errors",
    "patches": "patches",
    "print-config": "print_config",
    "skip-phases": "skip_phases",
}
"""Flags, and the attribute of the command's part of the UpgradeConfiguration that each one sets."""


def plan(parsed: Parsed) -> int:
    """Show what the cluster can be upgraded to."""
    configuration = _loaded(_request(parsed, "plan"))
    from kubewright.cli import upgrade_plan

    return upgrade_plan.plan(parsed, configuration)


def diff(parsed: Parsed) -> int:
    """Show what an upgrade would change in the static pods of this machine."""
    configuration = _loaded(_request(parsed, "diff"))
    from kubewright.cli import upgrade_plan

    return upgrade_plan.diff(parsed, configuration)


def apply(parsed: Parsed) -> int:
    """Check what apply is asked for; upgrading comes with a later release."""
    return _apply(parsed, only=())


def apply_phase(parsed: Parsed) -> int:
    """Check what a phase of apply is asked for; running it comes with a later release."""
    return _apply(parsed, only=machine_calls.phase_of(parsed, APPLY))


def node(parsed: Parsed) -> int:
    """Check what node is asked for; upgrading comes with a later release."""
    return _node(parsed, only=())


def node_phase(parsed: Parsed) -> int:
    """Check what a phase of node is asked for; running it comes with a later release."""
    return _node(parsed, only=machine_calls.phase_of(parsed, NODE))


def _apply(parsed: Parsed, *, only: tuple[str, ...]) -> int:
    request = _request(parsed, "apply", only=only)
    configuration = _loaded(request)
    _check_version(target(request, configuration), configuration)
    APPLY.select(only=only, skip=configuration.apply.skip_phases)
    machine_calls.later(parsed)


def _node(parsed: Parsed, *, only: tuple[str, ...]) -> int:
    configuration = _loaded(_request(parsed, "node", only=only))
    NODE.select(only=only, skip=configuration.node.skip_phases)
    machine_calls.later(parsed)


def _request(parsed: Parsed, section: str, *, only: tuple[str, ...] = ()) -> UpgradeRequest:
    flags: dict[str, Any] = {attribute: parsed[name] for name, attribute in _ATTRIBUTES.items() if name in parsed.given}
    if "patches" in flags:
        flags["patches"] = machine_calls.absolute(flags["patches"])
    return UpgradeRequest(
        section=section,
        documents=machine_calls.documents(parsed, mixes=bool(only)),
        from_file=bool(machine_calls.given_text(parsed, "config")),
        flags=flags,
        arguments=parsed.strings("version") if parsed.command.argument else (),
        only=only,
    )


def _loaded(request: UpgradeRequest) -> UpgradeConfiguration:
    loaded = configure(request)
    machine_calls.warn(loaded.warnings)
    return loaded.configuration


def _check_version(text: str, configuration: UpgradeConfiguration) -> None:
    """Judge the version as far as that needs no cluster. A label such as stable is left alone: what it means is looked up later."""
    try:
        version = Version.parse(text)
    except ValueError:
        return
    asked = configuration.apply
    verdict = policy.judge_target(version, experimental=bool(asked.allow_experimental_upgrades), candidates=bool(asked.allow_rc_upgrades))
    machine_calls.warn([f"ignored: {reason}" for reason in verdict.require(str(version), force=bool(asked.force_upgrade))])
