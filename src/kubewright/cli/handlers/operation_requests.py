"""The options of `init`, `join`, `reset` and `upgrade`, and of their phases, from their flags; and the manifests of add-ons."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Final

import kubewright
from kubewright.apis.kubeadm.node_types import UpgradeConfiguration
from kubewright.apis.kubeadm.overrides import InitOverrides, refuse_flags_with_config
from kubewright.base import yaml
from kubewright.cli.handlers import operations
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.inputs import given_text, is_on, read_documents
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import write_documents
from kubewright.lifecycle.init import request
from kubewright.lifecycle.init.request import InitOptions
from kubewright.lifecycle.join.request import JoinFlags, JoinOptions
from kubewright.lifecycle.reset.request import ResetFlags, ResetOptions
from kubewright.lifecycle.upgrade.request import RollbackOptions, UpgradeOptions

_OURS: Final = frozenset({"plan", "adopt", "serving-certificates", "controllers-image", "node-cidrs", "client-certificates"})
_RESET_OURS: Final = frozenset({"plan", "cleanup-cni", "cleanup-packet-filter", "delete-node"})
"""Flags that kubeadm does not have; they may be combined with --config."""

_UPGRADE_OURS: Final = frozenset({"plan", "kubelet", "drain", "skip-dead", "keep-changes"})

_EXTRA_ARGUMENTS: Final = "-extra-args"
_IMAGE: Final = f"localhost/kubewright:{kubewright.__version__}"
"""The image that `make image` builds."""


def init_request(parsed: Parsed, *, only: tuple[str, ...]) -> InitOptions:
    """Return the options from the given flags.

    Raises UsageError for mutually exclusive flags, DocumentError for the file.
    """
    config = given_text(parsed, "config")
    if "config" in parsed.given:  # even an empty one, as in kubeadm
        refuse_flags_with_config(sorted(parsed.given - _OURS))
    flags = {name.removesuffix(_EXTRA_ARGUMENTS): parsed.strings(name) for name in parsed.given if name.endswith(_EXTRA_ARGUMENTS)}
    return inputs.record(
        parsed,
        InitOptions,
        documents=read_documents(config) if config else request.extra_arguments(flags),
        from_file=bool(config),
        overrides=inputs.record(parsed, InitOverrides),
        only=only,
        looks_for_runtime=inputs.has(parsed, "cri-socket"),
        controllers_image=(parsed.text("controllers-image") or _IMAGE) if inputs.has(parsed, "controllers-image") else "",
    )


def join_request(parsed: Parsed, *, only: tuple[str, ...]) -> JoinOptions:
    """Return the options from the flags.

    Raises UsageError for flags that exclude --config, DocumentError for the file.
    """
    return inputs.record(
        parsed,
        JoinOptions,
        documents=inputs.documents(parsed, ours=_OURS),
        from_file=bool(given_text(parsed, "config")),
        flags=inputs.record(parsed, JoinFlags, endpoint=parsed.text("api-server-endpoint") if parsed.command.argument else ""),
        only=only,
        looks_for_runtime=inputs.has(parsed, "cri-socket"),
        discovers=inputs.has(parsed, "discovery-file"),
    )


def reset_request(parsed: Parsed, *, only: tuple[str, ...]) -> ResetOptions:
    """Return the options from the flags.

    Raises UsageError for flags that exclude --config, DocumentError for the file.
    """
    return inputs.record(
        parsed,
        ResetOptions,
        documents=inputs.documents(parsed, ours=_RESET_OURS),
        from_file=bool(given_text(parsed, "config")),
        flags=inputs.record(parsed, ResetFlags),
        only=only,
        looks_for_runtime=inputs.has(parsed, "cri-socket"),
        ask=functools.partial(inputs.ask, form=parsed.text("output")),
    )


def upgrade_apply_request(parsed: Parsed, *, only: tuple[str, ...]) -> UpgradeOptions:
    """Return the options from the flags of `upgrade apply`. Raises as `upgrade_request` does."""
    return upgrade_request(parsed, "apply", only=only)


def upgrade_node_request(parsed: Parsed, *, only: tuple[str, ...]) -> UpgradeOptions:
    """Return the options from the flags of `upgrade node`. Raises as `upgrade_request` does."""
    return upgrade_request(parsed, "node", only=only)


def upgrade_request(parsed: Parsed, section: str, *, only: tuple[str, ...] = ()) -> UpgradeOptions:
    """Return the options from the flags of an upgrade command.

    Raises UsageError for flags that exclude --config, DocumentError for the file.
    """
    return UpgradeOptions(
        section=section,
        documents=inputs.documents(parsed, mixes=bool(only), ours=_UPGRADE_OURS),
        from_file=bool(given_text(parsed, "config")),
        flags=inputs.given(parsed, type(getattr(UpgradeConfiguration(), section))),
        arguments=parsed.strings("version") if parsed.command.argument else (),
        only=only,
        kubeconfig=inputs.absolute(given_text(parsed, "kubeconfig")),
        kubelet=inputs.absolute(given_text(parsed, "kubelet")),
        drain=is_on(parsed, "drain"),
        skip_dead=parsed.strings("skip-dead") if inputs.has(parsed, "skip-dead") else (),
        keep_changes=is_on(parsed, "keep-changes"),
        yes=is_on(parsed, "yes"),
        ask=functools.partial(inputs.ask, form=parsed.text("output")) if inputs.has(parsed, "output") else None,
    )


def rollback_request(parsed: Parsed, *, only: tuple[str, ...]) -> RollbackOptions:
    """Return the options from the flags of `upgrade rollback`."""
    return RollbackOptions(only=only, yes=is_on(parsed, "yes"), ask=functools.partial(inputs.ask, form=parsed.text("output")))


def phase(parsed: Parsed) -> int:
    """Run the phase of an add-on, or print its objects."""
    if not is_on(parsed, "print-manifest"):
        return operations.run(parsed)
    from kubewright.lifecycle.init import addons
    from kubewright.lifecycle.init.operation import INIT, prepare

    only = inputs.phase_of(parsed, INIT.phases)
    prepared = prepare(init_request(parsed, only=only), operations.this_machine())
    inputs.warn(prepared.warnings)
    return _manifest(addons.manifest(prepared, only[0]), form=parsed.text("output"))


def _manifest(text: str, *, form: str) -> int:
    if form == "json":
        write_documents([one.value for one in yaml.load_all(text) if isinstance(one.value, Mapping)], form=form)
    else:
        sys.stdout.write(text)
    return 0
