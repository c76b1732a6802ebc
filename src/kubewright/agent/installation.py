"""The agent as a service of its machine: installing its unit, and leaving the cluster for good.

Every function is idempotent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.agent import leases
from kubewright.agent.certificates.store import CLIENT, OWN_FILES, SERVING
from kubewright.agent.status_file import path_of
from kubewright.apis.machine import Layout
from kubewright.base.change import Change
from kubewright.base.errors import CheckFailed
from kubewright.base.records import replace
from kubewright.host.desired import File, Service
from kubewright.host.seam import Host
from kubewright.kube.api import KubeAPI
from kubewright.kube.objects import remove_object
from kubewright.kube.resources import CSI_NODE, LEASE, NODE
from kubewright.manifests import units

SERVICE: Final = "kubewright-agent"
UNIT: Final = PurePosixPath(f"/etc/systemd/system/{SERVICE}.service")
KUBELET: Final = "kubelet"
_UNIT: Final = """\
# Installed by `kubewright agent install`. `kubewright agent leave` removes it.
[Unit]
Description=kubewright agent: this machine as a node of Kubernetes, without a kubelet
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
ExecStart={program} {arguments}
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=10
WatchdogSec=60
LimitCORE=0

[Install]
WantedBy=multi-user.target
"""


def unit(command: Sequence[str]) -> str:
    """Return the unit that runs a command. Raises HostError for a program path that a unit cannot name."""
    return _UNIT.format(program=units.program(PurePosixPath(command[0])), arguments=units.arguments(*command[1:]))


def install(host: Host, command: Sequence[str]) -> list[Change]:
    """Make the machine run a command as its agent, now and after each boot.

    Raises CheckFailed if a kubelet runs: a machine has only one node.
    """
    kubelet = host.service(KUBELET)
    if kubelet is not None and kubelet.running:
        raise CheckFailed(
            "a kubelet runs on this machine",
            remedy="stop and disable it first: `systemctl disable --now kubelet`; its pods keep running running",
        )
    content = unit(command).encode()
    return [host.ensure(Service(name=SERVICE, enabled=True, units=(File(path=UNIT, content=content, mode=0o644),)))]


def stop(host: Host) -> list[Change]:
    """Stop the service and remove its unit."""
    found = host.service(SERVICE)
    ended = [host.ensure(Service(name=SERVICE, running=False))] if found is not None and found.running else []
    return [*ended, host.remove_units(SERVICE, units=[UNIT])]


def remove_objects(api: KubeAPI, name: str, *, node: bool, uid: str = "") -> Iterator[Change]:
    """Delete a node's objects from its cluster.

    `node`: also the Node, which a node has no right to delete itself. Raises APIError.

    `uid` is that of the Node as seen before the agent was stopped, '' if there was none: the agent may have registered
    since.
    """
    yield remove_object(api, LEASE, name, leases.NAMESPACE)
    yield remove_object(api, CSI_NODE, name)
    if node:
        yield remove_object(api, NODE, name, uid=uid)


def own_layout(status: Mapping[str, Any], root: PurePosixPath) -> Layout:
    """Return the paths of an agent's own files, from its status."""
    return replace(Layout(), kubelet=root, pki=PurePosixPath(status["pki"]), kubernetes=PurePosixPath(status["kubeconfig"]).parent)


def remove_files(host: Host, status: Mapping[str, Any], root: PurePosixPath) -> Iterator[Change]:
    """Remove certificates, keys, kubeconfig and status, so that the agent cannot come back.

    The machine has the layout of `own_layout`. The files of a serving certificate that the agent did not create stay.
    """
    pki = PurePosixPath(status["pki"])
    pairs = [path for path in host.entries(pki) if path.name.startswith((CLIENT, SERVING)) or path.name in OWN_FILES]
    for path in (*pairs, PurePosixPath(status["kubeconfig"]), path_of(root)):
        yield host.remove(path)
