"""The agent of a node as a library: like `agent run`, but with your own pods, and without flags and files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from kubewright.agent.certificates.bootstrap import KubeconfigBootstrap
from kubewright.agent.certificates.store import FileCredentialStore, PendingKey
from kubewright.agent.configuration import options, reading
from kubewright.agent.configuration.options import Own
from kubewright.agent.dependencies import Seams
from kubewright.agent.node import NodeAgent
from kubewright.agent.observation.observer import MachineObserver, ObservedMachine
from kubewright.agent.pods.provider import PodProvider
from kubewright.agent.status.facts import check_labels
from kubewright.agent.status.snapshot import Snapshot, SnapshotSource, Unchanging
from kubewright.apis.machine import Layout
from kubewright.base.records import replace
from kubewright.host.network.interfaces import look_up
from kubewright.host.real import RealHost


def node_agent(
    name: str, directory: Path, bootstrap: PurePosixPath, *, pods: PodProvider | None, address: str, labels: Mapping[str, str]
) -> NodeAgent:
    """Make the agent of this machine; see `kubewright.node_agent`, its public form."""
    check_labels(dict(labels))
    host, place, seams = RealHost(layout=Layout()), directory.absolute(), Seams()
    own = Own(
        kubeconfig=str(place / "kubelet.conf"),
        root_dir=str(place),
        hostname_override=name,
        node_ips=(address,) if address else (),
        node_labels=tuple(f"{key}={value}" for key, value in labels.items()),
    )
    chosen = options.options_of(reading.read(None, {"rotate-certificates": True}), own, host_name=name)
    place.mkdir(parents=True, exist_ok=True)
    storage = host.files.space(PurePosixPath(place)).capacity
    known = replace(chosen.facts(host.facts.machine, storage=storage), taints=(), addresses=(address,) if address else ())
    asking = KubeconfigBootstrap(bootstrap, read=host.read)
    machine = ObservedMachine(files=host.files, network=host.network, look_up=look_up, root=chosen.root)
    source: SnapshotSource = Unchanging(Snapshot(addresses=(address,))) if address else MachineObserver(machine, chosen.observation)
    return NodeAgent(
        known,
        store=FileCredentialStore(Path(chosen.pki), Path(chosen.kubeconfig), clock=seams.clock),
        seams=seams,
        bootstrap=asking,
        closing=asking.close,
        timings=chosen.timings,
        pods=pods,
        source=source,
        duties=chosen.duties,
        pending=PendingKey(Path(chosen.pki)),
    )
