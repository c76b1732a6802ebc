"""The kubelet's files. Pure.

These are flags for its unit, this machine's part of its configuration, and the configuration itself (kubeadm v1.36:
phases/kubelet), and its systemd unit and drop-in for machines on which no package has installed them, equivalent to
those of Kubernetes' packages. Unit files begin with a line by which `reset` recognizes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.apis import kubelet
from kubewright.apis.kubeadm import features
from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.machine import Detected, Layout
from kubewright.base import yaml
from kubewright.base.plain_text import require_one_line_each
from kubewright.manifests import units

ENVIRONMENT: Final = "KUBELET_KUBEADM_ARGS"
_ESCAPES: Final = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"'}


Patch = Callable[[Mapping[str, Any]], Mapping[str, Any]]

UNIT: Final = PurePosixPath("/etc/systemd/system/kubelet.service")
DROP_IN: Final = PurePosixPath("/etc/systemd/system/kubelet.service.d/10-kubeadm.conf")
UNIT_FILES: Final = (UNIT, DROP_IN)
JOINED_DROP_IN: Final = PurePosixPath("/etc/systemd/system/kubelet.service.d/90-kubewright-hub.conf")
"""Read after kubeadm's, which a package may have installed in either place: neither is changed."""
OWN_FILES: Final = (*UNIT_FILES, JOINED_DROP_IN)
"""All files that may be ours."""
UNIT_HEADER: Final = "# Installed by kubewright, because no package had brought a unit for the kubelet. `kubewright reset` removes it."
JOINED_HEADER: Final = (
    "# Installed by kubewright for a node that has joined through a hub. `kubewright node leave` and `kubewright reset` remove it."
)
_UNIT: Final = """\
{header}
[Unit]
Description=kubelet: the node agent of Kubernetes
Documentation=https://kubernetes.io/docs/
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={program}
Restart=always
RestartSec=10
StartLimitInterval=0

[Install]
WantedBy=multi-user.target
"""
# kubeadm-flags.env comes from kubeadm or kubewright, /etc/default/kubelet from administrators, whose values take
# precedence.
_DROP_IN: Final = """\
{header}
[Service]
Environment={kubeconfigs}
Environment={config}
EnvironmentFile=-{flags}
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart={program} $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""
_JOINED_DROP_IN: Final = """\
{header}
[Service]
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart={program} {arguments} $KUBELET_EXTRA_ARGS
"""


def files(
    configuration: Configuration, layout: Layout, detected: Detected, *, patch: Patch = dict, worker: bool = False
) -> dict[PurePosixPath, str]:
    """Return the kubelet's files by path, in kubeadm's order. `patch` applies the user's changes to the configuration.

    A `worker` registers with its taints; those of a control plane are added to its Node later. With the feature gate
    NodeLocalCRISocket off there is no instance-config.yaml, and the socket is a flag.
    """
    found = {layout.kubelet_flags: flags_file(configuration, detected, worker=worker)}
    if features.enabled(configuration.cluster, features.NODE_LOCAL_CRI_SOCKET):
        found[layout.kubelet_instance_config] = instance_config(configuration)
    return {**found, layout.kubelet_config: yaml.dump(config(configuration, detected, patch=patch))}


def flags_file(configuration: Configuration, detected: Detected, *, worker: bool = False) -> str:
    """Return kubeadm-flags.env: one variable, quoted as Go does.

    Arguments are joined by spaces; nothing is quoted for a shell.
    """
    return f"{ENVIRONMENT}={go_quoted(' '.join(arguments(configuration, detected, worker=worker)))}\n"


def arguments(configuration: Configuration, detected: Detected, *, worker: bool = False) -> list[str]:
    """Return the kubelet's flags: kubeadm's by name, then the user's in their order, which replace those of the same name."""
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
    """Format a taint as kubectl does: `key=value:Effect`, without `=` if it has no value."""
    key, value, effect = (str(found.get(name) or "") for name in ("key", "value", "effect"))
    if not effect:
        return f"{key}={value}:" if value else key
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def instance_config(configuration: Configuration) -> str:
    """Return instance-config.yaml: the part of the kubelet's configuration that is specific to this machine."""
    return f"containerRuntimeEndpoint: {go_quoted(configuration.init.node_registration.cri_socket)}\n"


def config(configuration: Configuration, detected: Detected, *, patch: Patch = dict) -> dict[str, Any]:
    """Return the KubeletConfiguration of this machine: the cluster's, its resolver, the user's patches, and instance-config.yaml merged in.

    Raises UnsafeText for a value with control characters.
    """
    document = dict(patch(kubelet.for_machine(configuration.kubelet.document, systemd_resolved=detected.systemd_resolved)))
    if features.enabled(configuration.cluster, features.NODE_LOCAL_CRI_SOCKET):
        document["containerRuntimeEndpoint"] = configuration.init.node_registration.cri_socket
    require_one_line_each(document, what=kubelet.KIND)
    return document


def go_quoted(text: str) -> str:
    """Quote a text as Go's `%q` does."""
    return '"' + "".join(_ESCAPES.get(char) or (char if char.isprintable() else _escaped(ord(char))) for char in text) + '"'


def _escaped(code: int) -> str:
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def unit_files(program: PurePosixPath, layout: Layout) -> Mapping[PurePosixPath, str]:
    """Return the unit and its drop-in, by path, for the kubelet at `program`.

    Raises HostError for a path that a unit cannot contain.
    """
    command = units.program(program)
    drop_in = _DROP_IN.format(
        header=UNIT_HEADER,
        program=command,
        kubeconfigs=units.variable(
            "KUBELET_KUBECONFIG_ARGS",
            f"--bootstrap-kubeconfig={layout.kubeconfig('bootstrap-kubelet')}",
            f"--kubeconfig={layout.kubeconfig('kubelet')}",
        ),
        config=units.variable("KUBELET_CONFIG_ARGS", f"--config={layout.kubelet_config}"),
        flags=units.pattern(layout.kubelet_flags),
    )
    return {UNIT: _UNIT.format(header=UNIT_HEADER, program=command), DROP_IN: drop_in}


def joined_unit_files(
    program: PurePosixPath, *, kubeconfig: PurePosixPath, config: PurePosixPath, node: str, addresses: Sequence[str] = ()
) -> Mapping[PurePosixPath, str]:
    """Return the unit and drop-in, by path, of a kubelet that got its certificates from a hub; it reports `addresses`.

    The drop-in contains all required settings, so that it also works with a unit from a package. Raises HostError as
    `unit_files` does.
    """
    command = units.program(program)
    reported = (f"--node-ip={','.join(addresses)}",) if addresses else ()
    given = (f"--kubeconfig={kubeconfig}", f"--config={config}", f"--hostname-override={node}", *reported)
    arguments = units.arguments(*given)
    drop_in = _JOINED_DROP_IN.format(header=JOINED_HEADER, program=command, arguments=arguments)
    return {UNIT: _UNIT.format(header=UNIT_HEADER, program=command), JOINED_DROP_IN: drop_in}


def is_ours(content: bytes | None) -> bool:
    """Return whether kubewright created a file."""
    return content is not None and content.startswith((UNIT_HEADER.encode(), JOINED_HEADER.encode()))
