"""The options of `init`, the resulting configuration, and warnings about the arguments that it gives to components."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kubewright.apis.kubeadm import serving_certificates
from kubewright.apis.kubeadm.arguments import Given
from kubewright.apis.kubeadm.loading import Loaded, load_init
from kubewright.apis.kubeadm.overrides import InitOverrides, about_flags
from kubewright.apis.kubeadm.serving_certificates import SELF_SIGNED, STOCK, STRICT
from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.machine import Detected, Layout
from kubewright.base.errors import UsageError, ValidationError
from kubewright.base.messages import quoted
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, replace
from kubewright.base.yaml import Document
from kubewright.host.seam import Host

_NO_FLAGS: Final = InitOverrides()
_KUBEADM_LAYOUT: Final = Layout()
_ADD_ONS: Final = (("addon/coredns", "dns"), ("addon/kube-proxy", "proxy"))
"""The phase of an add-on, and the part of the ClusterConfiguration with the corresponding `disabled`."""
_ARGUMENTS: Final = {"apiserver": "apiServer", "controller-manager": "controllerManager", "scheduler": "scheduler"}
"""The deprecated flags `--NAME-extra-args`, and the part of the ClusterConfiguration that they set."""
_PHASES: Final = {
    "kube-apiserver": "control-plane/apiserver",
    "kube-controller-manager": "control-plane/controller-manager",
    "kube-scheduler": "control-plane/scheduler",
    "etcd": "etcd/local",
    "kubelet": "kubelet-start",
}
"""The phase that uses the arguments of a component."""


@dataclass(frozen=True, kw_only=True)
class InitOptions:
    """The options of `init` or of one of its phases.

    - `documents` are those of the configuration file, or derived from flags; `from_file` says which.
    - `only` names the phases to run (all if empty), `overrides.skip_phases` those to skip.
    - `looks_for_runtime`: a command without `--cri-socket` does not detect one (kubeadm v1.36: cmd/init.go).
    - `kubeconfig_directory` and `kubeconfig` are other paths than kubeadm's, '' if not given.
    - `adopt`: a machine of a cluster that another tool created is taken over.
    - `serving_certificates`: who signs the certificates of kubelets' own API; with `strict`, an approver with
      `controllers_image` decides about their requests. `node_cidrs` are networks of machines that join: any of them may
      have an address there that no other node has. With `client_certificates: strict` the approver also decides about
      client certificates of nodes.
    """

    documents: Sequence[Document] = ()
    from_file: bool = False
    overrides: InitOverrides = _NO_FLAGS
    only: tuple[str, ...] = ()
    upload_certs: bool = False
    skip_token_print: bool = False
    skip_certificate_key_print: bool = False
    looks_for_runtime: bool = True
    kubeconfig_directory: str = ""
    kubeconfig: str = ""
    adopt: bool = False
    serving_certificates: str = SELF_SIGNED
    controllers_image: str = ""
    node_cidrs: tuple[str, ...] = ()
    client_certificates: str = STOCK


def configure(request: InitOptions, *, detected: Detected, random: Random, layout: Layout = _KUBEADM_LAYOUT) -> Loaded:
    """Load the configuration from file, flags and the machine's facts, and select the phases that its add-ons need.

    An add-on whose phase is skipped is marked as disabled, so that upgrades leave it alone; the phase of a disabled one
    is skipped. Unknown fields are warnings, as in kubeadm. Raises what `load_init` raises, and UsageError for options that
    need an approver.
    """
    _require_approver(request)
    try:
        loaded = load_init(
            request.documents,
            overrides=request.overrides,
            detected=detected if request.looks_for_runtime else replace(detected, cri_sockets=()),
            random=random,
            strict=False,
            from_file=request.from_file,
            layout=layout,
        )
    except ValidationError as error:
        raise about_flags(error, request.overrides) from error
    configuration = _with_add_ons(loaded.configuration)
    if request.serving_certificates == STRICT:
        authority = layout.at(pki=configuration.cluster.certificates_dir, etcd_data=None).certificate("ca")
        configuration = serving_certificates.strict(configuration, authority=authority)
    return replace(loaded, configuration=configuration)


def _require_approver(request: InitOptions) -> None:
    if request.serving_certificates == STRICT:
        return
    given = {"--client-certificates strict": request.client_certificates == STRICT, "--node-cidrs": bool(request.node_cidrs)}
    for flag in (flag for flag, is_given in given.items() if is_given):
        raise UsageError(f"{flag} needs the approver of certificates", remedy="add --serving-certificates strict")


def extra_arguments(given: Mapping[str, Sequence[str]]) -> list[Document]:
    """Return a document for the deprecated flags `--NAME-extra-args`: lists of `name=value` by NAME.

    Raises UsageError for other texts.
    """
    parts = {_ARGUMENTS[name]: {"extraArgs": [_argument(name, text) for text in texts]} for name, texts in given.items() if texts}
    head = {"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration"}
    return [Document(value={**head, **parts}, source="flags")] if parts else []


def _argument(flag: str, text: str) -> dict[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(
            f"--{flag}-extra-args: {quoted(text)} is not name=value", remedy="write it like v=4,audit-log-path=/var/log/audit.log"
        )
    return {"name": name, "value": value}


def _with_add_ons(configuration: Configuration) -> Configuration:
    skipped = tuple(configuration.init.skip_phases)
    parts = {part: getattr(configuration.cluster, part) for _, part in _ADD_ONS}
    for phase, part in _ADD_ONS:
        if _covered(phase, skipped):
            parts[part] = replace(parts[part], disabled=True)
        elif parts[part].disabled:
            skipped = (*skipped, phase)
    return replace(
        configuration,
        cluster=replace(configuration.cluster, **parts),
        init=replace(configuration.init, skip_phases=skipped),
    )


def _covered(phase: str, names: Iterable[str]) -> bool:
    return any(phase == name or phase.startswith(f"{name}/") for name in names)


def argument_warnings(given: Iterable[Given], *, configuration: Configuration, host: Host, phases: frozenset[str]) -> list[str]:
    """Return the warnings about the arguments that these phases use. Nothing is written."""
    from kubewright.lifecycle.steps import preflight  # most configurations have no arguments

    used = (one for one in given if _PHASES[one.component] in phases)
    return preflight.argument_warnings(used, configuration=configuration, layout=host.layout, host=host)
