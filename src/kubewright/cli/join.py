"""What the flags of `join` and of its phases ask for."""

from __future__ import annotations

from typing import Final

from kubewright.cli import machine_calls
from kubewright.cli.machine_calls import given_names, given_secret, given_switch, given_text
from kubewright.cli.parser import Parsed
from kubewright.lifecycle.join.request import JoinFlags, JoinRequest

_OURS: Final = frozenset({"plan", "adopt"})
"""Flags that kubeadm does not have; they may stand beside --config."""


def request_of(parsed: Parsed, *, only: tuple[str, ...]) -> JoinRequest:
    """Turn the flags into a request. Raises UsageError for flags beside --config, DocumentError for the file."""
    documents = machine_calls.documents(parsed, ours=_OURS)
    return JoinRequest(
        documents=documents,
        from_file=bool(given_text(parsed, "config")),
        flags=_flags(parsed),
        only=only,
        adopt=given_switch(parsed, "adopt") or False,
        looks_for_runtime=machine_calls.has(parsed, "cri-socket"),
        discovers=machine_calls.has(parsed, "discovery-file"),
    )


def _flags(parsed: Parsed) -> JoinFlags:
    endpoint = parsed.text("api-server-endpoint") if parsed.command.argument else ""
    port = parsed.number("apiserver-bind-port") if "apiserver-bind-port" in parsed.given else None
    return JoinFlags(
        endpoint=endpoint,
        discovery_file=given_text(parsed, "discovery-file"),
        discovery_token=given_secret(parsed, "discovery-token"),
        tls_bootstrap_token=given_secret(parsed, "tls-bootstrap-token"),
        token=given_secret(parsed, "token"),
        ca_cert_hashes=given_names(parsed, "discovery-token-ca-cert-hash"),
        unsafe_skip_ca_verification=given_switch(parsed, "discovery-token-unsafe-skip-ca-verification") or False,
        control_plane=given_switch(parsed, "control-plane") or False,
        advertise_address=given_text(parsed, "apiserver-advertise-address"),
        bind_port=JoinFlags.bind_port if port is None else port,
        certificate_key=given_secret(parsed, "certificate-key"),
        node_name=given_text(parsed, "node-name"),
        cri_socket=given_text(parsed, "cri-socket"),
        patches=machine_calls.absolute(given_text(parsed, "patches")),
        dry_run=given_switch(parsed, "dry-run"),
        skip_phases=given_names(parsed, "skip-phases"),
        ignore_preflight_errors=given_names(parsed, "ignore-preflight-errors"),
    )
