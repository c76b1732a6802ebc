"""What the flags of `init`, `join` and `reset`, and of their phases, ask for; and the manifests of add-ons."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Final

from kubewright.apis.kubeadm.overrides import InitOverrides, refuse_beside_config
from kubewright.base import yaml
from kubewright.base.durations import Duration
from kubewright.cli import inputs, operations
from kubewright.cli.documents import read_documents
from kubewright.cli.inputs import absolute, given_names, given_secret, given_switch, given_text, is_on
from kubewright.cli.output import write_documents
from kubewright.cli.parser import Parsed
from kubewright.lifecycle.init import request
from kubewright.lifecycle.init.request import InitRequest
from kubewright.lifecycle.join.request import JoinFlags, JoinRequest
from kubewright.lifecycle.reset.request import ResetFlags, ResetRequest

_OURS: Final = frozenset({"plan", "adopt"})
_RESET_OURS: Final = frozenset({"plan", "cleanup-cni", "cleanup-packet-filter", "delete-node"})
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


def init_request(parsed: Parsed, *, only: tuple[str, ...]) -> InitRequest:
    """Turn the flags that were given into a request. Raises UsageError for flags that exclude each other, DocumentError for the file."""
    config = given_text(parsed, "config")
    if "config" in parsed.given:  # an empty one too, as with kubeadm
        refuse_beside_config(sorted(parsed.given - _OURS))
    flags = {name.removesuffix(_EXTRA_ARGUMENTS): parsed.strings(name) for name in parsed.given if name.endswith(_EXTRA_ARGUMENTS)}
    return InitRequest(
        documents=read_documents(config) if config else request.extra_arguments(flags),
        from_file=bool(config),
        overrides=_overrides(parsed),
        only=only,
        upload_certs=is_on(parsed, "upload-certs"),
        adopt=is_on(parsed, "adopt"),
        show_token=not is_on(parsed, "skip-token-print"),
        show_certificate_key=not is_on(parsed, "skip-certificate-key-print"),
        looks_for_runtime=inputs.has(parsed, "cri-socket"),
        kubeconfig_directory=absolute(given_text(parsed, "kubeconfig-dir")),
        kubeconfig=absolute(given_text(parsed, "kubeconfig")),
    )


def _overrides(parsed: Parsed) -> InitOverrides:
    given: dict[str, object] = {field: parsed.text(name) for name, field in _TEXTS.items() if name in parsed.given}
    given |= {field: inputs.secret(parsed.text(name)) for name, field in _SECRETS.items() if name in parsed.given}
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


def join_request(parsed: Parsed, *, only: tuple[str, ...]) -> JoinRequest:
    """Turn the flags into a request. Raises UsageError for flags beside --config, DocumentError for the file."""
    return JoinRequest(
        documents=inputs.documents(parsed, ours=_OURS),
        from_file=bool(given_text(parsed, "config")),
        flags=_join_flags(parsed),
        only=only,
        adopt=is_on(parsed, "adopt"),
        looks_for_runtime=inputs.has(parsed, "cri-socket"),
        discovers=inputs.has(parsed, "discovery-file"),
    )


def _join_flags(parsed: Parsed) -> JoinFlags:
    endpoint = parsed.text("api-server-endpoint") if parsed.command.argument else ""
    port = parsed.number("apiserver-bind-port") if "apiserver-bind-port" in parsed.given else None
    return JoinFlags(
        endpoint=endpoint,
        discovery_file=given_text(parsed, "discovery-file"),
        discovery_token=given_secret(parsed, "discovery-token"),
        tls_bootstrap_token=given_secret(parsed, "tls-bootstrap-token"),
        token=given_secret(parsed, "token"),
        ca_cert_hashes=given_names(parsed, "discovery-token-ca-cert-hash"),
        unsafe_skip_ca_verification=is_on(parsed, "discovery-token-unsafe-skip-ca-verification"),
        control_plane=is_on(parsed, "control-plane"),
        advertise_address=given_text(parsed, "apiserver-advertise-address"),
        bind_port=JoinFlags.bind_port if port is None else port,
        certificate_key=given_secret(parsed, "certificate-key"),
        node_name=given_text(parsed, "node-name"),
        cri_socket=given_text(parsed, "cri-socket"),
        patches=absolute(given_text(parsed, "patches")),
        dry_run=given_switch(parsed, "dry-run"),
        skip_phases=given_names(parsed, "skip-phases"),
        ignore_preflight_errors=given_names(parsed, "ignore-preflight-errors"),
    )


def reset_request(parsed: Parsed, *, only: tuple[str, ...]) -> ResetRequest:
    """Turn the flags into a request. Raises UsageError for flags beside --config, DocumentError for the file."""
    return ResetRequest(
        documents=inputs.documents(parsed, ours=_RESET_OURS),
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
        looks_for_runtime=inputs.has(parsed, "cri-socket"),
        kubeconfig=absolute(given_text(parsed, "kubeconfig")),
        cleanup_cni=is_on(parsed, "cleanup-cni"),
        cleanup_packet_filter=is_on(parsed, "cleanup-packet-filter"),
        delete_node=is_on(parsed, "delete-node"),
        ask=functools.partial(_ask, form=parsed.text("output")),
    )


def _ask(question: str, *, form: str) -> str:
    stream = sys.stdout if form == "text" else sys.stderr
    stream.write(question)
    stream.flush()
    return sys.stdin.readline()


def phase(parsed: Parsed) -> int:
    """Run the phase of an add-on, or print what it consists of."""
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
