"""The kubelet's files: flags for its unit, this machine's part of its configuration, and the configuration itself (spec/kubeadm.md 7.8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.apis import kubelet
from kubewright.apis.detected import Detected
from kubewright.apis.kubeadm import features
from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.layout import Layout
from kubewright.base import yaml

ENVIRONMENT: Final = "KUBELET_KUBEADM_ARGS"
_ESCAPES: Final = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"'}


Patch = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def files(
    configuration: Configuration, layout: Layout, detected: Detected, *, patch: Patch = dict, worker: bool = False
) -> dict[PurePosixPath, str]:
    """Return the kubelet's files by path, in kubeadm's order. `patch` makes the user's changes to the configuration.

    A `worker` registers with its taints; those of a control plane are written to its Node later.

    With the feature gate NodeLocalCRISocket off there is no instance-config.yaml, and the socket is a flag.
    """
    found = {layout.kubelet_flags: flags_file(configuration, detected, worker=worker)}
    if features.enabled(configuration.cluster, features.NODE_LOCAL_CRI_SOCKET):
        found[layout.kubelet_instance_config] = instance_config(configuration)
    return {**found, layout.kubelet_config: yaml.dump(config(configuration, detected, patch=patch))}


def flags_file(configuration: Configuration, detected: Detected, *, worker: bool = False) -> str:
    """Return kubeadm-flags.env: one variable, quoted as Go does. Arguments are joined by blanks; nothing is quoted for a shell."""
    return f"{ENVIRONMENT}={go_quoted(' '.join(arguments(configuration, detected, worker=worker)))}\n"


def arguments(configuration: Configuration, detected: Detected, *, worker: bool = False) -> list[str]:
    """Return the kubelet's flags: kubeadm's by name, then the user's in their order; the user's replace those of equal name."""
    node = configuration.init.node_registration
    mine = {}
    if not features.enabled(configuration.cluster, features.NODE_LOCAL_CRI_SOCKET):
        mine["container-runtime-endpoint"] = node.cri_socket
    if node.name != detected.host_name.strip().lower():
        mine["hostname-override"] = node.name
    if worker and node.taints:
        mine["register-with-taints"] = ",".join(map(taint, node.taints))
    given = {arg.name for arg in node.kubelet_extra_args}
    defaults = [f"--{name}={mine[name]}" for name in sorted(mine) if name not in given]
    return [*defaults, *(f"--{arg.name}={arg.value}" for arg in node.kubelet_extra_args)]


def taint(found: Mapping[str, object]) -> str:
    """Write a taint as kubectl does: `key=value:Effect`, without `=` where it has no value."""
    key, value, effect = (str(found.get(name) or "") for name in ("key", "value", "effect"))
    if not effect:
        return f"{key}={value}:" if value else key
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def instance_config(configuration: Configuration) -> str:
    """Return instance-config.yaml: what of the kubelet's configuration belongs to this machine alone."""
    return f"containerRuntimeEndpoint: {go_quoted(configuration.init.node_registration.cri_socket)}\n"


def config(configuration: Configuration, detected: Detected, *, patch: Patch = dict) -> dict[str, Any]:
    """Return the KubeletConfiguration of this machine: the cluster's, its resolver, the user's patches, and instance-config.yaml merged in."""
    document = patch(kubelet.for_machine(configuration.kubelet.document, systemd_resolved=detected.systemd_resolved))
    if not features.enabled(configuration.cluster, features.NODE_LOCAL_CRI_SOCKET):
        return dict(document)
    return {**document, "containerRuntimeEndpoint": configuration.init.node_registration.cri_socket}


def go_quoted(text: str) -> str:
    """Quote a text as Go's `%q` does."""
    return '"' + "".join(_ESCAPES.get(char) or (char if char.isprintable() else _escaped(ord(char))) for char in text) + '"'


def _escaped(code: int) -> str:
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
