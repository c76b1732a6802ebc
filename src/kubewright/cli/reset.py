"""What the flags of `reset` and of its phases ask for."""

from __future__ import annotations

import functools
import sys
from typing import Final

from kubewright.apis.kubeadm.overrides import refuse_beside_config
from kubewright.cli import machine_calls
from kubewright.cli.machine_calls import given_names, given_switch, given_text
from kubewright.cli.parser import Parsed
from kubewright.lifecycle.configuration import read_documents
from kubewright.lifecycle.reset.request import ResetFlags, ResetRequest

_OURS: Final = frozenset({"plan", "cleanup-cni", "cleanup-packet-filter", "delete-node"})
"""Flags that kubeadm does not have; they may stand beside --config."""


def request_of(parsed: Parsed, *, only: tuple[str, ...]) -> ResetRequest:
    """Turn the flags into a request. Raises UsageError for flags beside --config, DocumentError for the file."""
    path = given_text(parsed, "config")
    if path:
        refuse_beside_config(sorted(parsed.given - _OURS))
    return ResetRequest(
        documents=read_documents(path) if path else [],
        from_file=bool(path),
        flags=ResetFlags(
            cert_dir=given_text(parsed, "cert-dir"),
            cri_socket=given_text(parsed, "cri-socket"),
            cleanup_tmp_dir=given_switch(parsed, "cleanup-tmp-dir"),
            dry_run=given_switch(parsed, "dry-run"),
            force=given_switch(parsed, "force"),
            skip_phases=given_names(parsed, "skip-phases"),
            ignore_preflight_errors=given_names(parsed, "ignore-preflight-errors"),
        ),
        only=only,
        looks_for_runtime=machine_calls.has(parsed, "cri-socket"),
        kubeconfig=machine_calls.absolute(given_text(parsed, "kubeconfig")),
        cleanup_cni=given_switch(parsed, "cleanup-cni") or False,
        cleanup_packet_filter=given_switch(parsed, "cleanup-packet-filter") or False,
        delete_node=given_switch(parsed, "delete-node") or False,
        ask=functools.partial(_ask, form=parsed.text("output")),
    )


def _ask(question: str, *, form: str) -> str:
    stream = sys.stdout if form == "text" else sys.stderr
    stream.write(question)
    stream.flush()
    return sys.stdin.readline()
