"""What the flags of `init` and of its phases ask for, and the manifests of add-ons."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from kubewright.apis.kubeadm.overrides import InitOverrides, refuse_beside_config
from kubewright.base import yaml
from kubewright.base.durations import Duration
from kubewright.cli import machine_calls, operations, secret_input
from kubewright.cli.machine_calls import absolute
from kubewright.cli.output import write_documents
from kubewright.cli.parser import Parsed
from kubewright.lifecycle.configuration import read_documents
from kubewright.lifecycle.init import request
from kubewright.lifecycle.init.request import InitRequest

_OURS: Final = frozenset({"plan", "adopt"})
"""Flags that kubeadm does not have; they may stand beside --config."""

_EXTRA_ARGUMENTS: Final = "-extra-args"

_TEXTS: Final[Mapping[str, str]] = {
    "kubernetes-version": "kubernetes_version",
    "node-name": "node_name",
    "apiserver-advertise-address": "advertise_address",
    "cert-dir": "cert_dir",
    "control-plane-endpoint": "control_plane_endpoint",
    "cri-socket": "cri_socket",
    "image-repository": "image_repository",
    "pod-network-cidr": "pod_network_cidr",
    "service-cidr": "service_cidr",
    "service-dns-domain": "service_dns_domain",
    "patches": "patches",
}
_SECRETS: Final[Mapping[str, str]] = {"token": "token", "certificate-key": "certificate_key"}
_LISTS: Final[Mapping[str, str]] = {
    "apiserver-cert-extra-sans": "cert_sans",
    "skip-phases": "skip_phases",
    "ignore-preflight-errors": "ignore_preflight_errors",
}


def phase(parsed: Parsed) -> int:
    """Run the phase of an add-on, or print what it consists of."""
    if not _given(parsed, "print-manifest"):
        return operations.run(parsed)
    from kubewright.lifecycle.init import printing
    from kubewright.lifecycle.init.operation import INIT, prepare

    only = machine_calls.phase_of(parsed, INIT.phases)
    prepared = prepare(request_of(parsed, only=only), operations.this_machine())
    machine_calls.warn(prepared.warnings)
    return _manifest(printing.manifest(prepared, only[0]), form=parsed.text("output"))


def request_of(parsed: Parsed, *, only: tuple[str, ...]) -> InitRequest:
    """Turn the flags that were given into a request. Raises UsageError for flags that exclude each other, DocumentError for the file."""
    config = _text(parsed, "config")
    if "config" in parsed.given:  # an empty one too, as with kubeadm
        refuse_beside_config(sorted(parsed.given - _OURS))
    flags = {name.removesuffix(_EXTRA_ARGUMENTS): parsed.strings(name) for name in parsed.given if name.endswith(_EXTRA_ARGUMENTS)}
    return InitRequest(
        documents=read_documents(config) if config else request.extra_arguments(flags),
        from_file=bool(config),
        overrides=_overrides(parsed),
        only=only,
        upload_certs=_given(parsed, "upload-certs"),
        adopt=_given(parsed, "adopt"),
        show_token=not _given(parsed, "skip-token-print"),
        show_certificate_key=not _given(parsed, "skip-certificate-key-print"),
        looks_for_runtime=any(flag.name == "cri-socket" for flag in parsed.command.flags),
        kubeconfig_directory=absolute(_chosen(parsed, "kubeconfig-dir")),
        kubeconfig=absolute(_chosen(parsed, "kubeconfig")),
    )


def _overrides(parsed: Parsed) -> InitOverrides:
    given: dict[str, object] = {field: parsed.text(name) for name, field in _TEXTS.items() if name in parsed.given}
    given |= {field: secret_input.secret(parsed.text(name)) for name, field in _SECRETS.items() if name in parsed.given}
    given |= {field: parsed.strings(name) for name, field in _LISTS.items() if name in parsed.given}
    if "apiserver-bind-port" in parsed.given:
        given["bind_port"] = parsed.number("apiserver-bind-port")
    if "token-ttl" in parsed.given:
        given["token_ttl"] = Duration.parse(parsed.text("token-ttl"))
    if "feature-gates" in parsed.given:
        given["feature_gates"] = request.feature_gates(parsed.text("feature-gates"))
    if "dry-run" in parsed.given:
        given["dry_run"] = parsed.flag("dry-run")
    return InitOverrides(**given)  # type: ignore[arg-type]  # the tables above pair names and types; a test goes through all of them


def _given(parsed: Parsed, name: str) -> bool:
    """Whether a boolean flag is set; a command that does not have it has it not set."""
    return name in parsed.given and parsed.flag(name)


def _text(parsed: Parsed, name: str) -> str:
    return parsed.text(name) if any(flag.name == name for flag in parsed.command.flags) else ""


def _chosen(parsed: Parsed, name: str) -> str:
    return parsed.text(name) if name in parsed.given else ""


def _manifest(text: str, *, form: str) -> int:
    if form == "json":
        write_documents([one.value for one in yaml.load_all(text) if isinstance(one.value, Mapping)], form=form)
    else:
        sys.stdout.write(text)
    return 0
