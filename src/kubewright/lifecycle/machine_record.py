"""What a machine was made of, kept on it between runs: so that a run with the same configuration goes on, and another one is refused.

What is ours is decided by looking; the record only says with which configuration we began. It holds no token and no key.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.apis.kubeadm import codec
from kubewright.apis.kubeadm.node_types import JoinConfiguration
from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.machine import Detected
from kubewright.base import yaml
from kubewright.base.change import unified_diff
from kubewright.base.errors import ConfigurationChanged, DocumentError, HostError
from kubewright.base.masking import mask
from kubewright.base.records import dataclass, replace
from kubewright.host.desired import File
from kubewright.host.seam import Host

_FORMAT: Final = 1
_NOT_KEPT: Final = ("bootstrapTokens", "certificateKey", "dryRun", "skipPhases", "timeouts")
"""Fields of an InitConfiguration, or a JoinConfiguration, that are secret, or say how one run goes and not what comes of it."""
_NOT_KEPT_BELOW: Final = frozenset(
    {"token", "tlsBootstrapToken", "certificateKey", "ignorePreflightErrors", "imagePullPolicy", "imagePullSerial"}
)
"""The same at any depth: another run may bring another token, and ignore other checks."""


@dataclass(frozen=True, kw_only=True)
class MachineRecord:
    """`workflow` is `init` or `join`; `configuration` the documents as YAML; `finished` whether a run has come to its end."""

    workflow: str
    configuration: str
    finished: bool = False


def path(host: Host) -> PurePosixPath:
    """Return where the record of a machine lies."""
    return host.layout.machine_record


def of_init(configuration: Configuration) -> MachineRecord:
    """Return the record of an `init` that begins."""
    init = _kept({name: value for name, value in codec.init_document(configuration.init).items() if name not in _NOT_KEPT})
    documents: list[Any] = [
        init,
        codec.cluster_document(configuration.cluster),
        dict(configuration.kubelet.document),
        dict(configuration.kube_proxy.document),
    ]
    return MachineRecord(workflow="init", configuration=yaml.dump_all(documents))


def of_join(configuration: JoinConfiguration) -> MachineRecord:
    """Return the record of a `join` that begins."""
    join = {name: value for name, value in codec.join_document(configuration).items() if name not in _NOT_KEPT}
    return MachineRecord(workflow="join", configuration=yaml.dump(_kept(join)))


def _kept(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _kept(one) for name, one in value.items() if name not in _NOT_KEPT_BELOW}
    return value


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


def current(host: Host) -> MachineRecord | None:
    """Read the record of a machine; None also where another tool has reset it since: a finished machine of which nothing is left.

    Raises as `load` does.
    """
    found, layout = load(host), host.layout
    made = (layout.kubeconfig("kubelet"), layout.kubelet_config, layout.certificate("ca"))
    reset = found is not None and found.finished and all(host.state(path) is None for path in made)
    return None if reset else found


def with_runtime(detected: Detected, host: Host) -> Detected:
    """Return what a machine tells; where it shows no container runtime, the one of the record is there: it only does not listen yet.

    The default would be another configuration than the one that the machine was begun with.
    """
    found = None
    with suppress(HostError):  # who needs the record tells what is wrong with it
        found = current(host) if not detected.cri_sockets else None
    socket = _cri_socket(found.configuration) if found is not None else None
    return replace(detected, cri_sockets=(socket,)) if socket else detected


def _cri_socket(text: str) -> str | None:
    for value in _values(text):
        registration = value.get("nodeRegistration") if isinstance(value, dict) else None
        socket = registration.get("criSocket") if isinstance(registration, dict) else None
        if isinstance(socket, str):
            return socket
    return None


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
        detail=mask(unified_diff(found.configuration, wanted.configuration, name="configuration")),
        remedy="run the same command with the configuration it was made with; or make the machine anew: `kubewright reset`",
    )


def _values(text: str) -> list[object]:
    try:
        return [document.value for document in yaml.load_all(text)]
    except DocumentError:
        return [text]
