"""What stands for the kubelet and the container runtime on a local machine: static pod manifests run as supervised processes.

It knows nothing of the API server: `kubewright.local.pods` turns what it reports into mirror pods. It runs on the event loop of the
cluster's daemon and imports nothing heavy, because etcd's start waits for it.
"""

from kubewright.local.supervisor.lastwords import readable
from kubewright.local.supervisor.leftovers import sweep
from kubewright.local.supervisor.model import ComponentPhase, ComponentState, LastExit, NodeFacts, ProbeIdentity
from kubewright.local.supervisor.stopping import DOWN, ORDERLY, Stage
from kubewright.local.supervisor.supervisor import Supervisor

__all__ = [
    "DOWN",
    "ORDERLY",
    "ComponentPhase",
    "ComponentState",
    "LastExit",
    "NodeFacts",
    "ProbeIdentity",
    "Stage",
    "Supervisor",
    "readable",
    "sweep",
]
