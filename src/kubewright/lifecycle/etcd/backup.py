"""Backups of a control plane: the files that belong to one, and writing and reading backup files, sealed or plain.

A cluster that is restored serves its pods and users only with the same CAs, the same keys for service account tokens
and the same configuration for encryption, so a backup contains them in addition to etcd's data. The sealed form is that
of `pki.encryption.sealed_files` around the archive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from kubewright.apis.kubeconfig import EmbeddedCertificate, kubeconfig_document
from kubewright.base import yaml
from kubewright.base.clock import Clock, rfc3339
from kubewright.base.errors import HostError, KubewrightError, TrustError, UsageError
from kubewright.base.records import dataclass
from kubewright.host.states import Kind
from kubewright.kube.credentials import ClientCertificate
from kubewright.kube.kubeconfigs import load_access
from kubewright.lifecycle.etcd import archive, saving
from kubewright.lifecycle.etcd.archive import Archive, ArchiveWriter, StoredFile
from kubewright.lifecycle.steps.detected_cluster import DetectedCluster
from kubewright.pki.encryption import sealed_files
from kubewright.pki.encryption.sealed_files import SealedWriter

if TYPE_CHECKING:
    from kubewright.apis.machine import Layout
    from kubewright.base.events import Reporter
    from kubewright.base.randomness import Random
    from kubewright.etcd.api import Etcd
    from kubewright.host.seam import Host
    from kubewright.lifecycle.etcd.saving import Source
    from kubewright.lifecycle.etcd.this_member import ThisMember

FIRST_LINE: Final = b"kubewright backup 1\n"
"""The beginning of a sealed backup."""
_LEFT_OUT: Final = ("tmp",)
"""Directories below /etc/kubernetes that are not part of a backup: kubeadm's copies of files that it has replaced."""
_NAMED: Final = (
    "encryption-provider-config",
    "audit-policy-file",
    "admission-control-config-file",
    "authentication-config",
    "authorization-config",
)
"""Flags of kube-apiserver that name a configuration file."""
_NEEDED: Final = {"ca.key": "certificates", "sa.key": "service account tokens", "etcd/ca.key": "etcd's certificates"}


@dataclass(frozen=True, kw_only=True)
class Collected:
    """The files of a machine that belong to its backup, and warnings about missing ones."""

    files: tuple[StoredFile, ...]
    warnings: tuple[str, ...]


def collect(host: Host, member: ThisMember) -> Collected:
    """Read the files of a control plane that belong to a backup."""
    layout = member.layout
    places = [layout.kubernetes, layout.pki, layout.patches]
    single = [layout.kubelet_config, layout.kubelet_flags, layout.kubelet_instance_config, layout.machine_record, layout.patches_list]
    left_out = tuple(layout.kubernetes / name for name in _LEFT_OUT)
    found = dict.fromkeys(chain(single, *(_below(host, place, left_out) for place in places)))
    own = layout.kubeconfig("kubelet")
    read = {path: _stored(host, path) for path in found if path not in (own, *places)}
    kept = [one for one in read.values() if isinstance(one, StoredFile)]
    _require_readable(kept)
    kubelet = _with_certificate(host, own, node=member.name)
    paths = {one.path for one in kept}
    lacking = [(layout.pki / name, what) for name, what in _NEEDED.items() if layout.pki / name not in paths]
    warnings = [f"there is no {path}: a restored control plane cannot make {what}" for path, what in lacking]
    warnings += [f"{path} {reason}: it is not part of the backup" for path, reason in read.items() if isinstance(reason, str)]
    return Collected(files=(*kept, *([kubelet] if kubelet else [])), warnings=(*warnings, *_elsewhere(host, layout, paths)))


def _require_readable(files: Sequence[StoredFile]) -> None:
    """Raise HostError for more files than an archive may have that is read."""
    size = sum(len(one.content) for one in files)
    if size > archive.TOTAL:
        largest = sorted(files, key=lambda one: len(one.content), reverse=True)[:5]
        raise HostError(
            f"the files of this control plane are too large for a backup: {size >> 20} MiB instead of at most {archive.TOTAL >> 20}",
            detail="\n".join(f"{one.path} has {len(one.content) >> 20} MiB" for one in largest),
            remedy="move files that do not belong to the control plane to another directory",
        )


def roots(layout: Layout) -> tuple[PurePosixPath, ...]:
    """Return the directories that the files of a backup are in."""
    return (layout.kubernetes, layout.pki, layout.kubelet, layout.state)


def _below(host: Host, place: PurePosixPath, left_out: Sequence[PurePosixPath]) -> Iterator[PurePosixPath]:
    for path in host.entries(place):
        state = host.state(path)
        if path in left_out or state is None:
            continue
        if state.kind is Kind.DIRECTORY:
            yield from _below(host, path, left_out)
        elif state.kind in (Kind.FILE, Kind.LINK):
            yield path


def _stored(host: Host, path: PurePosixPath) -> StoredFile | str | None:
    """Return a file; None if there is none, or the reason why it cannot be part of a backup."""
    state = host.state(path)
    if state is None:
        return None
    if state.kind is Kind.LINK:
        content = None
        with suppress(HostError):  # it may lead to a directory
            content = host.read(path)
        if content is None:
            return f"is a link to {state.target}, and not to a file"
        mode, size = 0o600, len(content)
    else:
        mode, size = state.mode, state.size
        content = host.read(path) if size <= archive.LARGEST else None
    if size > archive.LARGEST:
        return f"has more than {archive.LARGEST >> 20} MiB"
    return None if content is None else StoredFile(path=path, content=content, mode=mode)


def _with_certificate(host: Host, path: PurePosixPath, *, node: str) -> StoredFile | None:
    """Return the kubelet's kubeconfig with its certificate embedded: the kubelet replaces the files that it names."""
    stored = _stored(host, path)
    with suppress(KubewrightError):
        access = load_access(path, read=host.read)
        if stored is not None and isinstance(access.identity, ClientCertificate):
            credentials = EmbeddedCertificate(certificate_pem=access.identity.cert_pem, key_pem=access.identity.key_pem)
            document = kubeconfig_document(
                server=access.server, ca_pem=access.ca_pem, cluster_name="kubernetes", user=f"system:node:{node}", credentials=credentials
            )
            return StoredFile(path=path, content=yaml.dump(document).encode(), mode=0o600)
    return stored if isinstance(stored, StoredFile) else None


def _elsewhere(host: Host, layout: Layout, found: set[PurePosixPath]) -> Iterator[str]:
    """Yield warnings about configuration files of the API server that are not in the backup."""
    server = DetectedCluster(host).api_server
    for flag in _NAMED if server else ():
        text = server.argument(flag) if server else ""
        if text and PurePosixPath(text) not in found:
            yield f"{text} (--{flag}) is not below {layout.kubernetes}, so it is not part of the backup: save it in another way"


def describe(host: Host, member: ThisMember, *, clock: Clock) -> dict[str, Any]:
    """Return the description of a machine for its backup."""
    layout = member.layout
    return {
        "time": rfc3339(clock.now()),
        "node": member.name,
        "hostName": host.facts.detected.host_name,
        "peerURL": member.peer_url,
        "kubernetesVersion": member.kubernetes,
        "etcdVersion": member.version,
        "certificateAuthorities": saving.authorities(host, layout.pki),
        "directories": {"kubernetes": str(layout.kubernetes), "pki": str(layout.pki), "etcdData": str(layout.etcd_data)},
    }


def write(
    host: Host,
    member: ThisMember,
    etcd: Etcd,
    source: Source,
    out: Callable[[bytes], object],
    *,
    name: str,
    key: bytes | None,
    clock: Clock,
    random: Random,
    reporter: Reporter,
) -> Collected:
    """Write a backup, sealed with a key, or plain without one. Raises as `saving.save` does."""
    collected = collect(host, member)
    sealed = None if key is None else SealedWriter(out, key, first_line=FIRST_LINE, random=random)
    made = ArchiveWriter(out if sealed is None else sealed.write)
    made.begin(describe(host, member, clock=clock), collected.files)
    snapshot = saving.save(etcd, source, made.database, name=name, clock=clock, reporter=reporter)
    made.finish(saving.describe(host, etcd, source, snapshot, pki=member.layout.pki, clock=clock))
    if sealed is not None:
        sealed.finish()
    return collected


def read(pieces: Callable[[], Iterable[bytes]], *, name: str, key: bytes | None) -> Archive:
    """Read a backup to its end and check it.

    Raises UsageError if the key is missing, TrustError, and DocumentError as `archive.read` does.
    """
    return archive.read(_content(pieces, name=name, key=key), name=name)


def database(pieces: Callable[[], Iterable[bytes]], *, name: str, key: bytes | None) -> Iterator[bytes]:
    """Yield the snapshot in a backup that was checked before. Raises as `read` does."""
    return archive.database(_content(pieces, name=name, key=key), name=name)


def _content(pieces: Callable[[], Iterable[bytes]], *, name: str, key: bytes | None) -> Iterable[bytes]:
    """Return the archive, decrypted if it is sealed."""
    begins = next(iter(pieces()), b"").startswith(FIRST_LINE)
    if begins and key is None:
        raise UsageError(f"{name} is sealed", remedy="pass the key with --key-file")
    if not begins and key is not None:
        raise TrustError(
            f"{name} is not sealed, although a key was given",
            detail="it may have been replaced, or is a plain backup",
            remedy="if you trust the file, leave out --key-file",
        )
    if key is None:
        return pieces()
    return sealed_files.opened(pieces(), key, first_line=FIRST_LINE, name=name, remedy="use another backup")
