"""The part of `up` that makes and checks things: init's phases on the local machine, then the nodes.

Loaded while the daemon starts. The order is that of `init` but for one thing: nodes join as soon as the rights for it are there.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kubewright.apis import kubeconfig
from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, ComponentFailed
from kubewright.base.events import Line, Reporter, State, Warned
from kubewright.base.randomness import Random
from kubewright.base.waiting import Condition, Waiter
from kubewright.host.desired import File
from kubewright.host.files import Files
from kubewright.host.real import RealHost
from kubewright.kube.api import KubeAPI
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import access_from_kubeconfig
from kubewright.lifecycle.init.context import InitContext
from kubewright.local import configuration, flags
from kubewright.local.machine import Daemon, local_machine
from kubewright.local.places import Places
from kubewright.local.record import ClusterRecord
from kubewright.local.tree import LOCAL_INIT
from kubewright.pki.keys import KeyPool
from kubewright.workflow import runner
from kubewright.workflow.journal import FileJournal


@dataclass(frozen=True, kw_only=True)
class Work:
    """One `up`: what is to be brought up, and the means."""

    places: Places
    cluster: ClusterRecord
    programs: Mapping[str, Path]
    daemon: Daemon
    clock: Clock
    random: Random
    reporter: Reporter
    waiter: Waiter
    within: float
    start: float

    @functools.cached_property
    def host(self) -> RealHost:
        """The control plane's machine."""
        return local_machine(self.places, self.cluster.control_plane.name, programs=self.programs, daemon=self.daemon)

    def elapsed(self) -> float:
        """Seconds since `up` began."""
        return self.clock.monotonic() - self.start

    def connect(self, name: str) -> KubeAPI:
        """Make a client from a kubeconfig of the machine."""
        path = self.host.layout.kubeconfig(name)
        content = self.host.read(path) or b""
        parsed = kubeconfig.parse(yaml.load(content, source=str(path)), source=str(path))
        return KubeClient(access_from_kubeconfig(parsed), clock=self.clock)
