"""What all components of one machine share, and how a component's process is started."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from kubewright.base.clock import Clock
from kubewright.base.errors import HostError
from kubewright.base.events import Event
from kubewright.base.records import dataclass
from kubewright.host.trees import remove_tree
from kubewright.local.supervisor.health import Attempts
from kubewright.local.supervisor.hostpaths import ensure_host_path
from kubewright.local.supervisor.identities import COMPONENT, LAUNCH, MACHINE, MANIFEST, Mark
from kubewright.local.supervisor.model import NodeFacts
from kubewright.local.supervisor.process import Process
from kubewright.local.supervisor.records import Records, slug
from kubewright.local.supervisor.translation import Launch

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """The machine's directories and seams. `changed` is called after every change of a component's state."""

    run: Path
    logs: Path
    node: NodeFacts
    mark: Mark
    clock: Clock
    prober: Attempts
    records: Records
    emit: Callable[[Event], None]
    changed: Callable[[], None]
    may_start: Callable[[str], Awaitable[None]]
    """Returns once the pods are ready that a pod has to come after."""

    def log(self, component: str) -> Path:
        """Return a component's log file."""
        return self.logs / f"{slug(component)}.log"

    def directory(self, component: str) -> Path:
        """Return the directory in which a component runs; its temporary files go there too."""
        return self.run / slug(component)

    def spawn(self, component: str, launch: Launch, *, manifest: str) -> Process:
        """Start a component's process. Raises OSError or HostError."""
        directory = self.directory(component)
        directory.mkdir(mode=0o700, exist_ok=True)  # not its parents: where they were removed, nothing is to come back
        for mount in launch.mounts:
            ensure_host_path(mount)
        return Process.spawn(
            launch.argv,
            env=self._environment(component, launch, manifest, str(directory)),
            cwd=launch.working_dir or str(directory),
            log=self.log(component),
        )

    def _environment(self, component: str, launch: Launch, manifest: str, directory: str) -> dict[str, str]:
        # TZ: klog writes local time without a zone; containers have no /etc/localtime, so UTC is what everybody reads there.
        return {
            "PATH": PATH,
            "HOME": directory,
            "TMPDIR": directory,
            "TZ": "UTC",
            **launch.env,
            **self.mark.variables,
            MACHINE: self.node.name,
            COMPONENT: component,
            MANIFEST: manifest,
            LAUNCH: launch.digest,
        }

    def forget(self, component: str) -> None:
        """Remove a stopped component's record and directory; its log stays."""
        self.records.remove(component)
        with suppress(HostError):  # what stays goes with the cluster
            remove_tree(PurePosixPath(self.directory(component)))
