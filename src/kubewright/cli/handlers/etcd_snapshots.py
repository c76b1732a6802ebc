"""`etcd snapshot`: saving the data of etcd to a file, and verifying such a file."""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.clock import SystemClock
from kubewright.base.errors import HostError
from kubewright.base.messages import one_line
from kubewright.cli.handlers import machine
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import write_output
from kubewright.cli.printers.progress import progress
from kubewright.etcd.snapshots import Snapshot
from kubewright.host.desired import File
from kubewright.host.filesystem.files import Files
from kubewright.host.programs.commands import RealCommands, find
from kubewright.lifecycle.etcd import access, saving, verifying
from kubewright.lifecycle.etcd.access import EtcdFlags
from kubewright.lifecycle.etcd.verifying import Verified

_PRIVATE: Final = 0o600


def save(parsed: Parsed) -> int:
    """Save a snapshot to a file, with its description next to it; or write it to stdout."""
    target, form, host, clock = inputs.file_argument(parsed), parsed.text("output"), machine.host(), SystemClock()
    streamed = inputs.is_stdout(parsed.text("file"), what="a snapshot")
    found = access.find(host, inputs.record(parsed, EtcdFlags))
    with closing(access.connect(host, found, clock=clock)) as etcd, progress("etcd snapshot save", form=form) as reporter:
        source = saving.choose(etcd, local=found.endpoints[0] if parsed.flag("local") else "")
        if streamed:
            saving.save(etcd, source, sys.stdout.buffer.write, name="stdout", clock=clock, reporter=reporter)
            sys.stdout.buffer.flush()
            return 0
        path, files = PurePosixPath(target), Files()
        description = path.with_name(path.name + saving.SUFFIX)
        with files.replacing(path, mode=_PRIVATE) as file:
            snapshot = saving.save(etcd, source, file.write, name=str(path), clock=clock, reporter=reporter)
        described = saving.describe(host, etcd, source, snapshot, pki=found.pki, clock=clock)
        files.write(File(path=description, content=(json.dumps(described, indent=2) + "\n").encode(), mode=_PRIVATE))
    if encrypts := saving.encryption_configuration(host)[0]:
        inputs.warn(
            [f"encrypted objects in the snapshot can only be read with {encrypts}: keep that file, too, or use `kubewright backup create`"]
        )
    member = source.member
    saved = f"Saved {path}: {_size(snapshot)} of member {member.name}, at revision {member.status.revision} or later\n"
    write_output({"file": str(path), "description": described}, saved, form=form)
    return 0


def verify(parsed: Parsed) -> int:
    """Verify a snapshot file."""
    path, files, form = PurePosixPath(inputs.file_argument(parsed)), Files(), parsed.text("output")
    with progress("etcd snapshot verify", form=form) as reporter:
        pieces = verifying.reading(path, task="etcd snapshot verify", clock=SystemClock(), reporter=reporter)
        snapshot = verifying.check(pieces, name=str(path))
    program = parsed.text("etcdutl") or _on_path()
    contents = verifying.read_with(program, path, commands=RealCommands(environment=os.environ)) if program else None
    description = path.with_name(path.name + saving.SUFFIX)
    found = verifying.compare(snapshot, files.read(description), name=str(description), contents=contents)
    inputs.warn([*found.warnings, *([] if program else ["etcdutl is not on PATH, so the keys were not counted"])])
    write_output({"file": str(path), **found.as_map()}, "".join(f"{line}\n" for line in _lines(path, found)), form=form)
    return 0


def _on_path() -> str:
    """Return the path of etcdutl; '' if there is no executable one."""
    try:
        return str(find(verifying.ETCDUTL, environment=os.environ) or "")
    except HostError as error:
        inputs.warn([str(error)])
        return ""


def _size(snapshot: Snapshot) -> str:
    return f"{snapshot.size / 1e6:.1f} MB"


def _lines(path: PurePosixPath, found: Verified) -> list[str]:
    shown = found.as_map()
    rows = (
        ("SHA-256", "sha256"),
        ("revision", "revision"),
        ("keys", "keys"),
        ("saved", "time"),
        ("cluster ID", "clusterID"),
        ("etcd", "etcdVersion"),
        ("Kubernetes", "kubernetesVersion"),
    )
    known = [(label, shown[key]) for label, key in rows if shown[key] not in (None, "")]
    lines = (f"{path} is a complete snapshot of {_size(found.snapshot)}", *(f"  {label:<10}  {value}" for label, value in known))
    return [one_line(line) for line in lines]
