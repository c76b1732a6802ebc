"""What a machine was made of, kept on it between runs: so that a run with the same configuration goes on, and another one is refused.

What is ours is decided by looking; the record only says with which configuration we began. It holds no token and no key.
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.apis.kubeadm import codec
from kubewright.apis.kubeadm.types import Configuration
from kubewright.base import yaml
from kubewright.base.change import unified_diff
from kubewright.base.errors import ConfigurationChanged, DocumentError, HostError
from kubewright.base.masking import mask
from kubewright.base.records import dataclass
from kubewright.host.desired import File
from kubewright.host.seam import Host

_FORMAT: Final = 1
_NOT_KEPT: Final = ("bootstrapTokens", "certificateKey", "dryRun", "skipPhases", "timeouts")
"""Fields of an InitConfiguration that are secret, or say how one run goes and not what comes of it."""


@dataclass(frozen=True, kw_only=True)
class MachineRecord:
    """`workflow` is `init`; `configuration` the documents as YAML; `finished` whether a run has come to its end."""

    workflow: str
    configuration: str
    finished: bool = False


def path(host: Host) -> PurePosixPath:
    """Return where the record of a machine lies."""
    return host.layout.machine_record


def of_init(configuration: Configuration) -> MachineRecord:
    """Return the record of an `init` that begins."""
    init = {name: value for name, value in codec.init_document(configuration.init).items() if name not in _NOT_KEPT}
    documents: list[Any] = [
        init,
        codec.cluster_document(configuration.cluster),
        dict(configuration.kubelet.document),
        dict(configuration.kube_proxy.document),
    ]
    return MachineRecord(workflow="init", configuration=yaml.dump_all(documents))


def load(host: Host) -> MachineRecord | None:
    """Read the record; None where there is none. Raises HostError, naming the file, if it is not one."""
    content = host.read(path(host))
    if content is None:
        return None
    try:
        return _read(content)
    except (ValueError, KeyError, TypeError) as error:
        raise HostError(
            f"{path(host)} does not say what this machine was made of",
            detail=str(error),
            remedy="move it away; the machine then counts as one that kubewright did not make",
        ) from error


_FIELDS: Final = {"workflow": str, "configuration": str, "finished": bool}


def _read(content: bytes) -> MachineRecord:
    """Read a record, every field of its type. Raises ValueError, KeyError, TypeError."""
    found = json.loads(content)
    wrong = [name for name, kind in _FIELDS.items() if type(found[name]) is not kind]
    if wrong or found["format"] != _FORMAT:
        raise ValueError(f"format {found['format']}, wrong: {', '.join(wrong)}")
    return MachineRecord(**{name: found[name] for name in _FIELDS})


def save(host: Host, record: MachineRecord) -> None:
    """Replace the record in one step, for root only."""
    content = {"format": _FORMAT, **{name: getattr(record, name) for name in _FIELDS}}
    host.ensure(File(path=path(host), content=(json.dumps(content, indent=1) + "\n").encode(), mode=0o600, directory_mode=0o700))


def require_same(found: MachineRecord, wanted: MachineRecord) -> None:
    """Refuse another configuration than the one that the machine was begun with. Raises ConfigurationChanged with the difference."""
    if found.workflow == wanted.workflow and _values(found.configuration) == _values(wanted.configuration):
        return
    raise ConfigurationChanged(
        "this machine was made with another configuration",
        detail=unified_diff(mask(found.configuration), mask(wanted.configuration), name="configuration"),
        remedy="run the same command with the configuration it was made with; a live cluster is changed by reconfiguring, not by init",
    )


def _values(text: str) -> list[object]:
    try:
        return [document.value for document in yaml.load_all(text)]
    except DocumentError:
        return [text]
