"""`backup create` and `backup show`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.clock import SystemClock
from kubewright.base.errors import UsageError
from kubewright.base.messages import one_line
from kubewright.base.randomness import SystemRandom
from kubewright.cli.handlers import machine
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import write_output
from kubewright.cli.printers.progress import progress
from kubewright.host.filesystem.files import Files
from kubewright.lifecycle.etcd import access, backup, saving, this_member, verifying
from kubewright.lifecycle.etcd.access import EtcdFlags
from kubewright.lifecycle.etcd.archive import Archive
from kubewright.lifecycle.etcd.request import BackupRestoreOptions
from kubewright.pki.encryption import sealing

_PRIVATE: Final = 0o600
_SHOWN: Final = (
    ("created", "time"),
    ("node", "node"),
    ("peer URL", "peerURL"),
    ("Kubernetes", "kubernetesVersion"),
    ("etcd", "etcdVersion"),
)


def create(parsed: Parsed) -> int:
    """Write a backup of this control plane to a file or to stdout."""
    key, target = _key_for_new(parsed), inputs.file_argument(parsed)
    streamed = inputs.is_stdout(parsed.text("file"), what="a backup")
    host, clock, path = machine.host(), SystemClock(), PurePosixPath(target)
    member = this_member.find(host)
    found = access.find(host, EtcdFlags())
    with closing(access.connect(host, found, clock=clock)) as etcd, progress("backup create", form=parsed.text("output")) as reporter:
        source = saving.choose(etcd, local=found.endpoints[0] if parsed.flag("local") else "")
        with nullcontext(sys.stdout.buffer) if streamed else Files().replacing(path, mode=_PRIVATE) as file:
            name, random = "stdout" if streamed else str(path), SystemRandom()
            collected = backup.write(
                host, member, etcd, source, file.write, name=name, key=key, clock=clock, random=random, reporter=reporter
            )
            file.flush()
    inputs.warn(collected.warnings)
    if streamed:
        return 0
    kind = "sealed" if key is not None else "not encrypted: anyone who gets it can read it"
    saved = f"Saved {path} ({kind}): {len(collected.files)} files and the data of etcd member {source.member.name}\n"
    rows = [str(one.path) for one in collected.files]
    data = {"file": str(path), "sealed": key is not None, "files": rows, "warnings": list(collected.warnings)}
    write_output(data, saved, form=parsed.text("output"))
    return 0


def show(parsed: Parsed) -> int:
    """Read a backup completely, and print its contents."""
    path, form = PurePosixPath(inputs.file_argument(parsed)), parsed.text("output")
    key = _key(parsed)
    with progress("backup show", form=form) as reporter:
        pieces = functools.partial(verifying.reading, path, task="backup show", clock=SystemClock(), reporter=reporter)
        found = backup.read(pieces, name=str(path), key=key)
    data = {"file": str(path), **found.description, "files": [str(one.path) for one in found.files], "etcd": dict(found.etcd)}
    write_output(data, "".join(f"{one_line(line)}\n" for line in _lines(path, found)), form=form)
    return 0


def _lines(path: PurePosixPath, found: Archive) -> Iterator[str]:
    yield f"{path} is a complete backup: {len(found.files)} files and {found.snapshot.size / 1e6:.1f} MB of etcd"
    known = [*((label, found.description.get(name)) for label, name in _SHOWN), ("revision", found.etcd.get("revision"))]
    yield from (f"  {label:<10}  {value}" for label, value in known if value not in (None, ""))
    yield from (f"  {one.path}" for one in found.files)


def restore_request(parsed: Parsed, *, only: tuple[str, ...]) -> BackupRestoreOptions:
    """Return the options from the flags of `backup restore`. Raises UsageError for an invalid key."""
    return inputs.record(
        parsed,
        BackupRestoreOptions,
        file=inputs.file_argument(parsed),
        key=_key(parsed),
        only=only,
        ask=functools.partial(inputs.ask, form=parsed.text("output")),
    )


def _key(parsed: Parsed) -> bytes | None:
    given = inputs.given_text(parsed, "key-file")
    return sealing.parse_key(inputs.read_file(given)) if given else None


def _key_for_new(parsed: Parsed) -> bytes | None:
    """Return the key for sealing, None for a plain backup, which must be requested explicitly. Raises UsageError."""
    key = _key(parsed)
    if (key is None) is not parsed.flag("plain"):
        raise UsageError(
            "a backup contains all private keys and Secrets of the cluster: pass either --key-file or --plain",
            remedy="make a key with `kubewright certs certificate-key > FILE`, and store it in a different place than the backups",
        )
    return key
