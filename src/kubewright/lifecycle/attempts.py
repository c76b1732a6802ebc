"""The record of the files that a run creates, so that `withdrawal` can remove them as long as none of them is in permanent use.

It contains the paths that did not exist when the first run began. Users may also provide certificates, keys and
kubeconfigs, and replace those of a failed run: therefore the digests of these files are recorded.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.machine import Layout
from kubewright.base.errors import HostError
from kubewright.base.records import replace
from kubewright.host.desired import Directory
from kubewright.host.seam import Host
from kubewright.lifecycle import adoption, machine_record
from kubewright.lifecycle.machine_record import MEMBER, MachineRecord
from kubewright.lifecycle.steps.inventory import KUBECONFIGS

PRIVATE: Final = 0o700
PODS: Final = ("etcd-learner", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_HUB_FILES: Final = ("kubelet.conf", "kubelet.crt", "kubelet.key", "kubelet-client-ca.crt", "wg.key")
_KUBELET: Final = (
    *("config.yaml", "instance-config.yaml", "kubeadm-flags.env"),
    *("actuated_pods_state", "allocated_pods_state", "checkpoints", "cpu_manager_state", "device-plugins", "dra_manager_state"),
    *("graceful_node_shutdown_state", "image_manager", "memory_manager_state", "pki", "plugins", "plugins_registry", "pod-resources"),
    *("pods", "pods-api"),
)
"""Files that runs and the kubelet write to the kubelet's directory (v1.36.3, pkg/kubelet).

Users may keep others in it, such as config.json.
"""


def provided(layout: Layout) -> Iterator[PurePosixPath]:
    """Yield the files that users may also provide: certificates, keys and kubeconfigs."""
    from kubewright.pki import table

    yield from (layout.pki / name for row in table.CERTIFICATES for name in row.files)
    yield from map(layout.kubeconfig, KUBECONFIGS)


def made(layout: Layout) -> Iterator[PurePosixPath]:
    """Yield the files that only runs, and the components that they start, create."""
    yield from map(layout.manifest, PODS)
    yield from (layout.kubelet / name for name in _KUBELET)
    yield layout.etcd_data / MEMBER
    yield from (layout.oneinfra / name for name in _HUB_FILES)


def directories(layout: Layout) -> tuple[PurePosixPath, ...]:
    """Return the directories that runs may create, children before their parents."""
    made = (layout.pki / "etcd", layout.manifests, layout.kubelet, layout.etcd_data, layout.oneinfra)
    found = {path for directory in made for path in (directory, *directory.parents)}
    return tuple(sorted(found, key=lambda path: (-len(path.parts), path)))


class Attempt:
    """The record of a machine during a run.

    `found` is the record of an earlier run with the same configuration, which this run resumes.

        created ── begin() ──> stored on the machine ── settle() ──> permanent ── finish()
                                   └── fail() ──> the leftovers are recorded

    Nothing is stored before `begin`. Safe to use from several threads. If a phase runs `alone`, files that users may
    provide count as theirs, because other phases create them.
    """

    def __init__(self, host: Host, wanted: MachineRecord, *, found: MachineRecord | None, lasts: bool = False, alone: bool = False) -> None:
        self._host = host
        self._wanted = replace(wanted, established=lasts)
        self._found = found
        self._alone = alone
        self._kept: MachineRecord | None = None
        self._provided: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def begin(self, layout: Layout, *more: PurePosixPath) -> None:
        """Store the record, once, after the machine has passed its checks.

        `layout` has the run's paths, `more` further files that it may write.
        """
        if self._kept is not None:
            return
        host = self._host
        self._provided = frozenset(map(str, (*provided(layout), *more)))
        if self._found is None:
            paths = [*(() if self._alone else provided(layout)), *more, *made(layout)]
            free = {str(path): None for path in dict.fromkeys(paths) if host.state(path) is None}
            missing = tuple(str(path) for path in directories(layout) if host.state(path) is None)
            host.ensure(Directory(path=host.layout.state, mode=PRIVATE))
            self._keep(replace(self._wanted, free=free, directories=missing))
            return
        known = self._found
        self._keep(known if known.free is None else replace(known, free=_still_free(host, known.free)))

    def settle(self, lasts: bool) -> None:
        """Store whether something that was created is in permanent use."""
        with self._lock:
            if self._kept is not None and self._kept.established is not lasts:
                self._keep(replace(self._kept, established=lasts))

    def fail(self) -> None:
        """Record the leftovers of a failed run among the files that users may also provide."""
        kept = self._kept
        if kept is None or kept.free is None or machine_record.lasts(self._host, kept):
            return
        self._keep(replace(kept, free={path: digest(self._host, path) if path in self._provided else None for path in kept.free}))

    def finish(self) -> None:
        """Store that the run was completed."""
        machine_record.save(self._host, replace(self._wanted, finished=True, established=False))

    def _keep(self, record: MachineRecord) -> None:
        machine_record.save(self._host, record)
        self._kept = record


def begin_alone(host: Host, wanted: MachineRecord, layout: Layout, *more: PurePosixPath) -> None:
    """Store the record for a single phase that starts the kubelet: the whole command resumes from it, and `reset` uses it.

    A record of another configuration stays if something of it is in permanent use, and a machine that another tool
    created gets none.
    """
    if adoption.traces(host):
        return
    found = machine_record.current(host)
    if found is None:
        Attempt(host, wanted, found=None, alone=True).begin(layout, *more)
    elif not machine_record.same(found, wanted) and not machine_record.lasts(host, found):
        Attempt(host, wanted, found=replace(wanted, free=found.free, directories=found.directories)).begin(layout, *more)


def digest(host: Host, path: str) -> str:
    """Return the digest of a file, '' if there is none."""
    content = None
    with suppress(HostError):  # not a regular file: no run has created it
        content = host.read(PurePosixPath(path))
    return "" if content is None else hashlib.sha256(content).hexdigest()


def _still_free(host: Host, free: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the paths of a resumed attempt, without those where users have created something since it failed."""
    return {path: None for path, left in free.items() if left is None or digest(host, path) in {"", left}}
