"""What the flags of `node join`, `node leave` and `node rotate-vpn-key` ask for."""

from __future__ import annotations

from pathlib import PurePosixPath

from kubewright.base.durations import Duration
from kubewright.base.errors import UsageError
from kubewright.cli.inputs import absolute, given_names, given_secret, given_text, is_on
from kubewright.cli.parser import Parsed
from kubewright.enrollment.node.leaving import NodeLeaveRequest
from kubewright.enrollment.node.request import NodeJoinRequest
from kubewright.enrollment.node.rotating import NodeRotateRequest
from kubewright.host.files import Files

_NEEDED = ("apiserver-endpoint", "apiserver-ca-cert-file", "join-token")


def join_request(parsed: Parsed, *, only: tuple[str, ...]) -> NodeJoinRequest:
    """Turn the flags into a request. Raises UsageError for those that are missing."""
    missing = [f"--{name}" for name in _NEEDED if not given_text(parsed, name)]
    if missing:
        raise UsageError(
            f"{', '.join(missing)} must be given", remedy="`kubewright hub token create CLUSTER -o json` on the hub shows what to give"
        )
    path = absolute(given_text(parsed, "apiserver-ca-cert-file"))
    ca_pem = Files().read(PurePosixPath(path))
    if ca_pem is None:
        raise UsageError(f"{path} does not exist", remedy="check --apiserver-ca-cert-file")
    return NodeJoinRequest(
        node=given_text(parsed, "nodename"),
        server=given_text(parsed, "apiserver-endpoint"),
        ca_pem=ca_pem,
        token=given_secret(parsed, "join-token"),
        runtime_endpoint=given_text(parsed, "container-runtime-endpoint"),
        image_endpoint=given_text(parsed, "image-service-endpoint"),
        sans=given_names(parsed, "extra-san"),
        fingerprint=given_text(parsed, "join-key-fingerprint"),
        accepted=given_names(parsed, "accept-kubelet-fields"),
        only=only,
        skip=given_names(parsed, "skip-phases"),
        ignored=given_names(parsed, "ignore-preflight-errors"),
    )


def leave_request(parsed: Parsed, *, only: tuple[str, ...]) -> NodeLeaveRequest:
    """Turn the flags into a request."""
    within = Duration.parse(parsed.text("drain-timeout")).seconds if is_on(parsed, "drain") else None
    return NodeLeaveRequest(drain=within, only=only, skip=given_names(parsed, "skip-phases"))


def rotate_request(parsed: Parsed, *, only: tuple[str, ...]) -> NodeRotateRequest:
    """Turn the flags into a request."""
    return NodeRotateRequest(hub_key=given_text(parsed, "hub-key"), only=only, skip=given_names(parsed, "skip-phases"))
