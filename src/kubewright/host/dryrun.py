"""kubeadm's dry-run directory: where each file of a machine goes when all of them land flat in one directory (spec/kubeadm.md 2.5)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from kubewright.apis.layout import Layout
from kubewright.base.change import Change
from kubewright.base.records import replace
from kubewright.host.desired import Directory, File, Show
from kubewright.host.found import Kind
from kubewright.host.overlay import OverlayHost
from kubewright.host.seam import Host


def flat_name(layout: Layout, path: PurePosixPath) -> PurePosixPath | None:
    """Return the name below the dry-run directory, or None for a file that has no place there.

    Certificates keep their path below the PKI, so that those of etcd are in `etcd/`; all other files stand beside them.
    """
    if path.is_relative_to(layout.pki):
        return path.relative_to(layout.pki)
    flat = {layout.kubernetes, layout.manifests, layout.kubelet}
    return PurePosixPath(path.name) if path.parent in flat else None


def materialise(overlay: OverlayHost, directory: PurePosixPath, *, writer: Host, copies: Iterable[PurePosixPath] = ()) -> list[Change]:
    """Write the files of an overlay into a dry-run directory, which is made (0700) if it is not there.

    `copies` are existing files that belong with them, such as a CA that was reused. Returns one Change for each file, without its
    content; a file that has no place there is left out. All of them belong to whoever writes them.
    """
    writer.ensure(Directory(path=directory, mode=0o700))
    layout = overlay.layout
    wanted = [*(copy for path in copies if (copy := _existing(overlay, path)) is not None), *overlay.files]
    placed = ((flat_name(layout, file.path), file) for file in wanted)
    return [
        writer.ensure(replace(file, path=directory / name, show=Show.SIZE, owner=None, group=None))
        for name, file in placed
        if name is not None
    ]


def _existing(overlay: OverlayHost, path: PurePosixPath) -> File | None:
    found, content = overlay.state(path), overlay.read(path)
    if found is None or found.kind is not Kind.FILE or content is None:
        return None
    return File(path=path, content=content, mode=found.mode)
