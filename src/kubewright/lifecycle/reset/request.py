"""The options of `reset`, and the resulting configuration (kubeadm v1.36: cmd/reset.go)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kubewright.apis.kubeadm.loading import LoadedKind, load_reset
from kubewright.apis.kubeadm.node_types import ResetConfiguration
from kubewright.apis.kubeadm.overrides import as_flags
from kubewright.apis.machine import Detected
from kubewright.base.errors import ValidationError
from kubewright.base.records import dataclass, replace
from kubewright.base.yaml import Document


@dataclass(frozen=True, kw_only=True)
class ResetFlags:
    """The values of the command line. None, and an empty text or list, mean that a flag was not given."""

    cert_dir: str = ""
    cri_socket: str = ""
    cleanup_tmp_dir: bool | None = None
    dry_run: bool | None = None
    force: bool | None = None
    skip_phases: Sequence[str] = ()
    ignore_preflight_errors: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class ResetOptions:
    """The options of `reset` or of one of its phases; `looks_for_runtime` as for `join`.

    `kubeconfig` is '' if none was named. The others are ours: also remove files of CNI, packet filter rules, the Node
    object. `ask` takes a question, and returns the answer.
    """

    documents: Sequence[Document] = ()
    from_file: bool = False
    flags: ResetFlags = ResetFlags()
    only: tuple[str, ...] = ()
    looks_for_runtime: bool = True
    kubeconfig: str = ""
    cleanup_cni: bool = False
    cleanup_packet_filter: bool = False
    delete_node: bool = False
    ask: Callable[[str], str] | None = None


def configure(request: ResetOptions, *, detected: Detected) -> LoadedKind[ResetConfiguration]:
    """Load the configuration from file, flags and the machine's facts.

    Unknown fields are warnings. Raises what `load_reset` raises.
    """
    try:
        return load_reset(
            request.documents,
            detected=detected if request.looks_for_runtime else replace(detected, cri_sockets=()),
            change=lambda given: _changed(given, request.flags),
            from_file=request.from_file,
        )
    except ValidationError as error:
        raise as_flags(error, {field: flag for field, (name, flag) in _FLAGS.items() if getattr(request.flags, name)}) from error


_FLAGS: Final = {
    "certificatesDir": ("cert_dir", "--cert-dir"),
    "criSocket": ("cri_socket", "--cri-socket"),
    "ignorePreflightErrors": ("ignore_preflight_errors", "--ignore-preflight-errors"),
}
"""What sets a field: the attribute of `ResetFlags`, and what it is on the command line."""


def _changed(given: ResetConfiguration, flags: ResetFlags) -> ResetConfiguration:
    values = {
        "certificates_dir": flags.cert_dir,
        "cri_socket": flags.cri_socket,
        "cleanup_tmp_dir": flags.cleanup_tmp_dir,
        "dry_run": flags.dry_run,
        "force": flags.force,
        "skip_phases": tuple(flags.skip_phases),
    }
    ignored = tuple(dict.fromkeys((*given.ignore_preflight_errors, *flags.ignore_preflight_errors)))
    typed = {name: value for name, value in values.items() if value not in {None, "", ()}}
    return replace(given, **typed, ignore_preflight_errors=ignored)
