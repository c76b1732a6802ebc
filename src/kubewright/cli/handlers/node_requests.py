"""The options of `node join`, `node leave` and `node rotate-vpn-key`, from their flags."""

from __future__ import annotations

from pathlib import PurePosixPath

from kubewright.base.durations import Duration
from kubewright.base.errors import UsageError
from kubewright.cli.parsing.inputs import absolute, given_text, is_on, record
from kubewright.cli.parsing.parser import Parsed
from kubewright.enrollment.node.leaving import NodeLeaveOptions
from kubewright.enrollment.node.request import NodeJoinOptions
from kubewright.enrollment.node.rotating import NodeRotateOptions
from kubewright.host.filesystem.files import Files

_NEEDED = ("apiserver-endpoint", "apiserver-ca-cert-file", "join-token")


def join_request(parsed: Parsed, *, only: tuple[str, ...]) -> NodeJoinOptions:
    """Return the options from the flags. Raises UsageError for missing ones."""
    missing = [f"--{name}" for name in _NEEDED if not given_text(parsed, name)]
    if missing:
        raise UsageError(
            f"{', '.join(missing)} must be given", remedy="`kubewright hub token create CLUSTER -o json` on the hub shows the values"
        )
    path = absolute(given_text(parsed, "apiserver-ca-cert-file"))
    ca_pem = Files().read(PurePosixPath(path))
    if ca_pem is None:
        raise UsageError(f"{path} does not exist", remedy="check --apiserver-ca-cert-file")
    return record(parsed, NodeJoinOptions, ca_pem=ca_pem, only=only)


def leave_request(parsed: Parsed, *, only: tuple[str, ...]) -> NodeLeaveOptions:
    """Return the options from the flags."""
    within = Duration.parse(parsed.text("drain-timeout")).seconds if is_on(parsed, "drain") else None
    return record(parsed, NodeLeaveOptions, drain=within, only=only)


def rotate_request(parsed: Parsed, *, only: tuple[str, ...]) -> NodeRotateOptions:
    """Return the options from the flags."""
    return record(parsed, NodeRotateOptions, only=only)
