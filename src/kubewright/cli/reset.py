"""The `reset` command and its phases: flags and configuration are read and checked, the machine is left alone in this release."""

from __future__ import annotations

from kubewright.cli import machine_calls
from kubewright.cli.machine_calls import given_names, given_switch, given_text
from kubewright.cli.parser import Parsed
from kubewright.lifecycle.reset.phases import RESET
from kubewright.lifecycle.reset.request import ResetFlags, ResetRequest, configure


def reset(parsed: Parsed) -> int:
    """Check what reset is asked for; resetting comes with a later release."""
    return _call(parsed, only=())


def phase(parsed: Parsed) -> int:
    """Check what a phase of reset is asked for; running it comes with a later release."""
    return _call(parsed, only=machine_calls.phase_of(parsed, RESET))


def request_of(parsed: Parsed, *, only: tuple[str, ...]) -> ResetRequest:
    """Turn the flags into a request. Raises UsageError for flags beside --config, DocumentError for the file."""
    return ResetRequest(
        documents=machine_calls.documents(parsed),
        from_file=bool(given_text(parsed, "config")),
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
    )


def _call(parsed: Parsed, *, only: tuple[str, ...]) -> int:
    request = request_of(parsed, only=only)
    loaded = configure(request, detected=machine_calls.detected())
    machine_calls.warn(loaded.warnings)
    RESET.select(only=request.only, skip=loaded.configuration.skip_phases)
    machine_calls.later(parsed)
