"""The kubelet's unit and drop-in for systemd, for machines where no package brought them; in meaning what Kubernetes' own packages have.

Pure. The files begin with a line by which `reset` knows that they are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.layout import Layout

UNIT: Final = PurePosixPath("/etc/systemd/system/kubelet.service")
DROP_IN: Final = PurePosixPath("/etc/systemd/system/kubelet.service.d/10-kubeadm.conf")
FILES: Final = (UNIT, DROP_IN)
HEADER: Final = "# Installed by kubewright, because no package had brought a unit for the kubelet. `kubewright reset` removes it."

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
# kubeadm-flags.env comes from kubeadm or kubewright, /etc/default/kubelet from people: the last word is theirs.
_DROP_IN: Final = """\
{header}
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig={bootstrap} --kubeconfig={kubeconfig}"
Environment="KUBELET_CONFIG_ARGS=--config={config}"
EnvironmentFile=-{flags}
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart={program} $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""


def files(program: PurePosixPath, layout: Layout) -> Mapping[PurePosixPath, str]:
    """Return the unit and its drop-in, by path, for the kubelet at `program`."""
    drop_in = _DROP_IN.format(
        header=HEADER,
        program=program,
        bootstrap=layout.kubeconfig("bootstrap-kubelet"),
        kubeconfig=layout.kubeconfig("kubelet"),
        config=layout.kubelet_config,
        flags=layout.kubelet_flags,
    )
    return {UNIT: _UNIT.format(header=HEADER, program=program), DROP_IN: drop_in}


def is_ours(content: bytes | None) -> bool:
    """Tell whether a file was made by us."""
    return content is not None and content.startswith(HEADER.encode())
