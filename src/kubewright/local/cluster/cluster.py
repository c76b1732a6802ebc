"""A local cluster as an object, for programs and the pytest plugin."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Self

from kubewright import binaries
from kubewright.base.events import Reporter, SilentReporter
from kubewright.host.filesystem.files import Files
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access
from kubewright.kube.kubeconfigs import load_embedded_access
from kubewright.local.cluster import status
from kubewright.local.cluster.up import up
from kubewright.local.paths import ClusterPaths, cluster_paths
from kubewright.local.up_options import WITHIN, UpOptions


class LocalCluster:
    """One local cluster. The constructor does nothing; `up` starts, repairs or scales it, `down` removes it.

    As a context manager, it is up inside the block and removed afterwards. `owner` is the identity of a process that it
    must not outlive (`str` of `host.processes.Identity`), '' for none: the cluster is removed when that process ends in
    any way. With `machines`, it consists of whole machines, which need root. Not safe for several threads at a time.
    """

    def __init__(
        self,
        name: str = "default",
        *,
        nodes: int | None = None,
        control_planes: int | None = None,
        kubernetes_version: str | None = None,
        config: str | None = None,
        state_dir: str | Path = "",
        binaries_dir: str | Path = "",
        within: float = WITHIN,
        owner: str = "",
        machines: bool = False,
        reporter: Reporter | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._paths = cluster_paths(name, state_dir=str(state_dir))
        self._nodes = nodes
        self._control_planes = control_planes
        self._version = kubernetes_version
        self._config = config
        self._within = within
        self._owner = owner
        self._machines = machines
        self._reporter = reporter or SilentReporter()
        self._binaries_dir = binaries_dir
        self._environment = os.environ if environment is None else environment

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self._paths.name

    @property
    def paths(self) -> ClusterPaths:
        """Its files."""
        return self._paths

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, for kubectl or any client library.

        Raises UsageError before the first `up`.
        """
        return status.kubeconfig(self._paths, status.require(self._paths))

    @property
    def access(self) -> Access:
        """The cluster's location and the administrator's identity, for `kubewright.kube` clients."""
        return load_embedded_access(PurePosixPath(self.kubeconfig), read=Files().read)

    def client(self) -> KubeClient:
        """Return a client with the administrator's identity. The caller closes it."""
        return KubeClient(self.access)

    def up(self) -> Self:
        """Start, resume, repair or scale the cluster, and wait until all nodes are ready.

        Raises as `kubewright.local.cluster.up.up`.
        """
        wish = UpOptions(
            nodes=self._nodes,
            control_planes=self._control_planes,
            kubernetes_version=self._version,
            config=self._config,
            within=self._within,
            owner=self._owner,
            machines=self._machines,
        )
        sources = binaries.sources_from(self._environment, directory=self._binaries_dir or None)
        up(self._paths, wish, sources=sources, reporter=self._reporter)
        return self

    def down(self, *, keep_data: bool = False) -> None:
        """Stop the cluster and remove it."""
        from kubewright.local.cluster.down import down

        down(self._paths, keep_data=keep_data, reporter=self._reporter)

    def load(self, archive: Path) -> list[str]:
        """Load an archive of images into all machines that run; returns the names of the images.

        Raises UsageError if the cluster does not consist of machines, HostError if containerd refuses the archive.
        """
        from kubewright.local.whole import images, machines

        with images.archive(str(archive), standard_input=sys.stdin.buffer) as file:
            return images.load(machines.running(self._paths, status.require(self._paths)), file)

    def status(self) -> dict[str, Any]:
        """Return the data that `local status -o json` prints."""
        return status.status(self._paths)

    def __enter__(self) -> Self:
        try:
            return self.up()
        except BaseException:
            self.down()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.down()
