"""The record of a machine's configuration, kept between runs: a run with the same configuration resumes.

Another configuration is refused once something of the first one is in permanent use: a component has served, or the
cluster knows the machine. Before that, it replaces the first one, and `withdrawal` removes the leftovers. Ownership of
files is determined by observation; the record contains only the configuration of the first run, and the paths that did
not exist then. It contains no token and no key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.apis.kubeadm import codec
from kubewright.apis.kubeadm.node_types import JoinConfiguration
from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.machine import Detected, Layout
from kubewright.base import yaml
from kubewright.base.change import unified_diff
from kubewright.base.errors import ConfigurationChanged, DocumentError, HostError
from kubewright.base.masking import mask
from kubewright.base.records import dataclass, replace
from kubewright.host.desired import File
from kubewright.host.seam import Host

MEMBER: Final = "member"
"""The directory that etcd creates in its data directory."""
_FORMAT: Final = 1
_VERSION: Final = "kubernetesVersion"
_NOT_KEPT: Final = ("bootstrapTokens", "certificateKey", "dryRun", "skipPhases", "timeouts")
"""Fields of an InitConfiguration or a JoinConfiguration that are secret, or affect only one run and not its result."""
_NOT_KEPT_BELOW: Final = frozenset(
    {"token", "tlsBootstrapToken", "certificateKey", "ignorePreflightErrors", "imagePullPolicy", "imagePullSerial"}
)
"""The same at any depth: another run may use another token, and ignore other checks."""


@dataclass(frozen=True, kw_only=True)
class MachineRecord:
    """`workflow` is `init` or `join`; `configuration` the documents as YAML; `finished` whether a run was completed.

    - `established`: the result is permanent, according to the run that created it; `lasts` also observes the machine.
    - `free` are the paths that did not exist when the first run began, and that runs may create. For a file that users
      may also provide, the value is the digest of a failed run's file, '' if it left none, None while a run is in
      progress or was killed. None for a record of an earlier version.
    - `directories` are the directories that did not exist then, the deepest first.
    """

    workflow: str
    configuration: str
    finished: bool = False
    established: bool = False
    free: Mapping[str, str | None] | None = None
    directories: tuple[str, ...] = ()


def path(host: Host) -> PurePosixPath:
    """Return the path of a machine's record."""
    return host.layout.machine_record


def of_init(configuration: Configuration) -> MachineRecord:
    """Return the record of a new `init`."""
    init = _kept({name: value for name, value in codec.init_document(configuration.init).items() if name not in _NOT_KEPT})
    documents: list[Any] = [
        init,
        codec.cluster_document(configuration.cluster),
        dict(configuration.kubelet.document),
        dict(configuration.kube_proxy.document),
    ]
    return MachineRecord(workflow="init", configuration=yaml.dump_all(documents))


def of_join(configuration: JoinConfiguration) -> MachineRecord:
    """Return the record of a new `join`."""
    join = {name: value for name, value in codec.join_document(configuration).items() if name not in _NOT_KEPT}
    return MachineRecord(workflow="join", configuration=yaml.dump(_kept(join)))


def _kept(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _kept(one) for name, one in value.items() if name not in _NOT_KEPT_BELOW}
    return value


def load(host: Host) -> MachineRecord | None:
    """Read the record; None if there is none. Raises HostError, naming the file, if it is not one."""
    content = host.read(path(host))
    if content is None:
        return None
    try:
        return _read(content)
    except (ValueError, KeyError, TypeError) as error:
        raise HostError(
            f"{path(host)} does not describe the configuration of this machine",
            detail=str(error),
            remedy="move it away; the machine then counts as one that kubewright did not make",
        ) from error


def current(host: Host) -> MachineRecord | None:
    """Read the record of a machine; None also if another tool has reset it since: a finished machine whose files are gone.

    Raises as `load` does.
    """
    found, layout = load(host), host.layout
    made = (layout.kubeconfig("kubelet"), layout.kubelet_config, layout.certificate("ca"))
    reset = found is not None and found.finished and all(host.state(path) is None for path in made)
    return None if reset else found


def with_runtime(detected: Detected, host: Host) -> Detected:
    """Return the facts of a machine.

    If no container runtime is detected, that of the record is used: it may just not be listening yet. The default would
    differ from the configuration with which the machine was begun.
    """
    found = None
    with suppress(HostError):  # code that needs the record reports what is wrong with it
        found = current(host) if not detected.cri_sockets else None
    socket = field(found, "nodeRegistration", "criSocket") if found is not None else ""
    return replace(detected, cri_sockets=(socket,)) if socket else detected


def runtime_socket(record: MachineRecord) -> str:
    """Return the container runtime's socket in a record's configuration, '' if it has none."""
    return field(record, "nodeRegistration", "criSocket") or field(record, "containerRuntimeEndpoint")


def field(record: MachineRecord, *names: str) -> str:
    """Return the text at a path of names in the first document of a record's configuration that has one, '' if none has."""
    return next((found for found in _values_at(record, names) if isinstance(found, str)), "")


def _values_at(record: MachineRecord, names: Iterable[str]) -> Iterator[object]:
    """Yield the values at a path of names in the documents of a record's configuration."""
    for document in _values(record.configuration):
        found = document
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        yield found


_FIELDS: Final = {"workflow": str, "configuration": str, "finished": bool}
_OPTIONAL: Final[Mapping[str, tuple[type, ...]]] = {"established": (bool,), "free": (dict, type(None)), "directories": (list,)}


def _read(content: bytes) -> MachineRecord:
    """Read a record, every field of its type. Raises ValueError, KeyError, TypeError."""
    found = json.loads(content)
    wrong = [name for name, kind in _FIELDS.items() if type(found[name]) is not kind]
    wrong += [name for name, kinds in _OPTIONAL.items() if name in found and not isinstance(found[name], kinds)]
    if wrong or found["format"] != _FORMAT:
        raise ValueError(f"format {found['format']}, wrong: {', '.join(wrong)}")
    more = {name: found[name] for name in _OPTIONAL if name in found}
    free = more.get("free") or {}
    texts = [*free, *(digest for digest in free.values() if digest is not None), *more.get("directories", ())]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("paths and digests that are not texts")
    return MachineRecord(**{name: found[name] for name in _FIELDS}, **{**more, "directories": tuple(more.get("directories", ()))})


def save(host: Host, record: MachineRecord) -> None:
    """Replace the record atomically, readable by root only."""
    rest = {name: getattr(record, name) for name in _OPTIONAL if getattr(record, name)}
    content = {"format": _FORMAT, **{name: getattr(record, name) for name in _FIELDS}, **rest}
    host.ensure(File(path=path(host), content=(json.dumps(content, indent=1) + "\n").encode(), mode=0o600, directory_mode=0o700))


_IDENTITIES: Final[Mapping[str, Callable[[Layout], PurePosixPath]]] = {
    "join": lambda layout: layout.kubeconfig("kubelet"),
    "node join": lambda layout: layout.oneinfra / "kubelet.conf",
}
"""The file that a machine has once its cluster knows it, by workflow."""
_ENDPOINTS: Final = (("localAPIEndpoint",), ("controlPlane", "localAPIEndpoint"))
_API_SERVER: Final = "kube-apiserver"
_STORED: Final = (b"k8s\x00", b"/registry/")
"""The prefix of an API server's values (apimachinery, runtime/serializer/protobuf), and by default of its keys."""


def lasts(host: Host, record: MachineRecord) -> bool:
    """Return whether something of a record's configuration is in permanent use, according to a run or by observation.

    It does not matter which tool created it. A kubelet.conf that names the kubelet's own certificate was written after
    an API server had issued that; the one that init writes embeds a certificate.
    """
    if record.finished or record.established or record.free is None:
        return True
    identity = _IDENTITIES.get(record.workflow)
    return (
        (identity is not None and host.state(identity(host.layout)) is not None)
        or host.layout.kubelet_client_current.name.encode() in (host.read(host.layout.kubeconfig("kubelet")) or b"")
        or any(_has_objects(host, path) for path in map(PurePosixPath, record.free) if path.name == MEMBER)
        or any(_serves(host, endpoint) for names in _ENDPOINTS for endpoint in _values_at(record, names))
    )


def was_there_before(host: Host, found: PurePosixPath) -> bool:
    """Return whether a path existed before the first run in the machine's record. Raises HostError as `load` does."""
    record = load(host)
    return record is not None and record.free is not None and str(found) not in record.free


def _serves(host: Host, endpoint: object) -> bool:
    """Whether an API server listens at the endpoint of this machine."""
    address, port = (endpoint.get("advertiseAddress"), endpoint.get("bindPort")) if isinstance(endpoint, dict) else (None, None)
    if not isinstance(address, str) or not isinstance(port, int):
        return False
    owner = host.network.owner_of_port(address, port)
    return owner is not None and owner.program == _API_SERVER


def _has_objects(host: Host, member: PurePosixPath) -> bool:
    """Return whether an API server has written to an etcd, by its files.

    One that is too large to be read belongs to a used cluster.
    """
    try:
        contents = (host.read(path) or b"" for part in ("wal", "snap") for path in host.entries(member / part))
        return any(mark in content for content in contents for mark in _STORED)
    except HostError:
        return True


def same(found: MachineRecord, wanted: MachineRecord) -> bool:
    """Whether two records are of the same workflow and configuration."""
    return found.workflow == wanted.workflow and _values(found.configuration) == _values(wanted.configuration)


def require_same(found: MachineRecord, wanted: MachineRecord) -> None:
    """Refuse another configuration than that of the machine. Raises ConfigurationChanged with the difference."""
    if same(found, wanted):
        return
    raise ConfigurationChanged(
        "this machine was created with another configuration",
        detail=mask(unified_diff(found.configuration, wanted.configuration, name="configuration")),
        remedy="run the same command with the original configuration; or start over with `kubewright reset`",
    )


def follow(host: Host, *, version: str) -> None:
    """Store the new version of Kubernetes of a machine, if its record has a version: that of `init`."""
    found = current(host)
    if found is None or found.workflow != "init":
        return
    documents = [_at_version(value, version) for value in _values(found.configuration)]
    wanted = replace(found, configuration=yaml.dump_all(documents))
    if not same(found, wanted):
        save(host, wanted)


def _at_version(document: object, version: str) -> object:
    return {**document, _VERSION: version} if isinstance(document, dict) and _VERSION in document else document


def _values(text: str) -> list[object]:
    try:
        return [document.value for document in yaml.load_all(text)]
    except DocumentError:
        return [text]
