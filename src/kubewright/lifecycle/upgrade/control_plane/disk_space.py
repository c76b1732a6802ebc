"""The check DiskSpace: whether the file systems of this machine have space for what an upgrade writes to them.

These are the images that the container runtime does not have yet, and the snapshot of etcd. A full file system that
etcd or the kubelet uses as well would break the machine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.apis.kubeadm.versions import images
from kubewright.base.checks import Finding
from kubewright.base.errors import HostError
from kubewright.base.records import dataclass
from kubewright.host.cri.images_and_sandboxes import PullPolicy
from kubewright.lifecycle import stacked_etcd
from kubewright.lifecycle.upgrade.control_plane import etcd_backup

if TYPE_CHECKING:
    from kubewright.lifecycle.upgrade.context import UpgradeContext

IMAGE: Final = 100 << 20
"""Bytes of an image of a control plane, compressed and unpacked: containerd keeps both."""


@dataclass(frozen=True, kw_only=True)
class _Need:
    """What an upgrade writes below a directory, and its approximate number of bytes."""

    what: str
    directory: PurePosixPath
    size: int


def find(ctx: UpgradeContext, *, replaced: Collection[str]) -> Iterator[Finding]:
    """Find file systems that are too small. What is on the same file system is added up.

    `replaced` are the static pods that are going to be replaced: without any, no snapshot is saved.
    """
    needs: dict[int, list[_Need]] = {}
    available: dict[int, int] = {}
    for need in (*_images(ctx), *(_snapshot(ctx) if replaced else ())):
        try:
            space = ctx.host.space(need.directory)
        except HostError:  # nothing is known: the runtime may have another view of the machine's directories
            continue
        needs.setdefault(space.device, []).append(need)
        available[space.device] = space.available
    for device, together in needs.items():
        size = sum(need.size for need in together)
        if available[device] < size:
            yield Finding(
                text=f"the file system of {together[0].directory} has {_megabytes(available[device])} left, and about {_megabytes(size)} are"
                f" needed for {' and '.join(need.what for need in together)}",
                remedy="make space there",
            )


def _images(ctx: UpgradeContext) -> Iterator[_Need]:
    if ctx.task.init.node_registration.image_pull_policy == PullPolicy.NEVER.value:
        return
    with suppress(HostError):  # the pull reports a runtime that does not answer
        missing = [image for image in images(ctx.cluster) if not ctx.host.runtime.has_image(image)]
        for directory in ctx.host.runtime.image_directories()[:1]:
            if missing:
                yield _Need(what=f"{len(missing)} images", directory=directory, size=len(missing) * IMAGE)


def _snapshot(ctx: UpgradeContext) -> Iterator[_Need]:
    if not ctx.upgrades_etcd or ctx.cluster.etcd.external is not None:
        return
    kubernetes = ctx.host.layout.kubernetes
    directory = next(path for path in (kubernetes / "tmp", kubernetes) if ctx.host.state(path) is not None)
    size = ctx.etcd.status(stacked_etcd.client_url(ctx.addresses)).size
    yield _Need(what="the snapshot of etcd", directory=directory, size=size + etcd_backup.SPARE)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
