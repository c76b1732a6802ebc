"""Converts a decoded manifest to a `StaticPod`.

Pure. Settings that a plain process cannot have are refused with their field path, never ignored.

Settings without a meaning for a process of the machine's own user are skipped: resources, security contexts,
priorities, the image.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubewright.base.errors import ValidationError
from kubewright.base.fields import FieldError, FieldErrorType, FieldPath
from kubewright.local.supervisor.pod import DEFAULT_GRACE, Container, HttpTarget, Mount, Probe, StaticPod, TcpTarget, Variable

ROOT: Final = FieldPath()
FIELDS: Final = frozenset(
    {
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    }
)
"""The pod fields for environment variables; `runtime.translate` has their values."""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_VARIABLE: Final = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*", re.ASCII)
_HOST_PATH_TYPES: Final = ("", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")

_API_OBJECTS: Final = "a static pod may not refer to API objects"
_REFUSED_IN_SPEC: Final = {
    "initContainers": "a local machine runs no init containers",
    "ephemeralContainers": _API_OBJECTS,
    "serviceAccountName": _API_OBJECTS,
    "resourceClaims": _API_OBJECTS,
}
_REFUSED_IN_CONTAINER: Final = {
    "envFrom": _API_OBJECTS,
    "lifecycle": "a local machine runs no lifecycle hooks",
    "volumeDevices": "a process has no block devices of its own",
}
_REFUSED_IN_MOUNT: Final = {
    "subPath": "put the whole path into the volume's hostPath",
    "subPathExpr": "put the whole path into the volume's hostPath",
}
_SCHEMES: Final = {"": False, "HTTP": False, "HTTPS": True}


class FieldReader:
    """Reads maps and lists. A wrong type is recorded with its path and treated as absent."""

    def __init__(self, source: str) -> None:
        self.errors: list[FieldError] = []
        self._source = source

    def refuse(self, path: FieldPath, reason: str, *, type: FieldErrorType = FieldErrorType.INVALID, value: object = None) -> None:
        """Record an error."""
        self.errors.append(FieldError(path=path, type=type, reason=reason, value=value, source=self._source))

    def required(self, path: FieldPath, reason: str) -> None:
        """Record that a field is missing."""
        self.refuse(path, reason, type=FieldErrorType.REQUIRED)

    def forbidden(self, path: FieldPath, reason: str) -> None:
        """Record that a field must not be set."""
        self.refuse(path, reason, type=FieldErrorType.FORBIDDEN)

    def mapping(self, parent: Mapping[str, Any], name: str, path: FieldPath) -> Mapping[str, Any]:
        """Read a map; empty if absent."""
        value = self._typed(parent, name, path, dict, "an object")
        return value if value is not None else {}

    def items(self, parent: Mapping[str, Any], name: str, path: FieldPath) -> Iterator[tuple[FieldPath, Mapping[str, Any]]]:
        """Yield the maps of a list with their paths."""
        for index, item in enumerate(self._typed(parent, name, path, list, "a list") or ()):
            where = (path / name)[index]
            if isinstance(item, Mapping):
                yield where, item
            else:
                self.refuse(where, "must be an object", type=FieldErrorType.TYPE, value=item)

    def texts(self, parent: Mapping[str, Any], name: str, path: FieldPath) -> tuple[str, ...]:
        """Read a list of strings."""
        found = []
        for index, item in enumerate(self._typed(parent, name, path, list, "a list") or ()):
            if isinstance(item, str):
                found.append(item)
            else:
                self.refuse((path / name)[index], "must be a string", type=FieldErrorType.TYPE, value=item)
        return tuple(found)

    def text(self, parent: Mapping[str, Any], name: str, path: FieldPath, default: str = "") -> str:
        """Read a string."""
        value = self._typed(parent, name, path, str, "a string")
        return default if value is None else str(value)

    def number(self, parent: Mapping[str, Any], name: str, path: FieldPath, default: int, *, least: int) -> int:
        """Read a whole number that is at least `least`."""
        value = self._typed(parent, name, path, int, "a whole number")
        if value is None:
            return default
        if value < least:
            self.refuse(path / name, f"must be at least {least}", value=value)
        return int(value)

    def flag(self, parent: Mapping[str, Any], name: str, path: FieldPath) -> bool:
        """Read a boolean; false if absent."""
        return bool(self._typed(parent, name, path, bool, "true or false"))

    def _typed(self, parent: Mapping[str, Any], name: str, path: FieldPath, kind: type, said: str) -> Any:
        value = parent.get(name)
        if value is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
            return value
        self.refuse(path / name, f"must be {said}", type=FieldErrorType.TYPE, value=value)
        return None


def read_pod(document: object, *, source: str, node: str) -> StaticPod:
    """Read one decoded manifest. Raises ValidationError with every field error."""
    reader = FieldReader(source)
    body: Mapping[str, Any] = document if isinstance(document, Mapping) else {}
    if not isinstance(document, Mapping):
        reader.refuse(ROOT, "must be a Pod object", type=FieldErrorType.TYPE, value=type(document).__name__)
    else:
        _kind(reader, body)
    meta = reader.mapping(body, "metadata", ROOT)
    spec = reader.mapping(body, "spec", ROOT)
    pod = StaticPod(
        name=_name(reader, meta, ROOT / "metadata"),
        namespace=reader.text(meta, "namespace", ROOT / "metadata", "default"),
        hash=digest(body, node=node),
        containers=_containers(reader, spec, ROOT / "spec"),
        grace=float(reader.number(spec, "terminationGracePeriodSeconds", ROOT / "spec", int(DEFAULT_GRACE), least=0)),
        source=source,
        body=body,
    )
    if reader.errors:
        raise ValidationError(f"the static pod manifest {source} cannot be used", reader.errors, remedy=f"correct {source}")
    return pod


def digest(body: Mapping[str, Any], *, node: str) -> str:
    """Return 32 hexadecimal digits that identify a manifest's meaning on a node.

    The kubelet's pod UID has the same form.
    """
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(f"{node}\0{text}".encode()).hexdigest()[:32]


def _kind(reader: FieldReader, body: Mapping[str, Any]) -> None:
    for field, wanted in (("apiVersion", "v1"), ("kind", "Pod")):
        if body.get(field) != wanted:
            reader.refuse(ROOT / field, f"must be {wanted}", value=body.get(field))


def _name(reader: FieldReader, meta: Mapping[str, Any], path: FieldPath) -> str:
    name = reader.text(meta, "name", path)
    if not name:
        reader.required(path / "name", "a pod needs a name")
    elif len(name) > 253 or not _NAME.fullmatch(name):
        reader.refuse(path / "name", "must be a DNS name of lower-case letters, digits, '-' and '.'", value=name)
    return name


def _containers(reader: FieldReader, spec: Mapping[str, Any], path: FieldPath) -> tuple[Container, ...]:
    _refuse(reader, spec, path, _REFUSED_IN_SPEC)
    if not reader.flag(spec, "hostNetwork", path):
        reader.refuse(path / "hostNetwork", "must be true: a process has the machine's network", value=spec.get("hostNetwork"))
    if spec.get("restartPolicy") not in {None, "", "Always"}:
        reader.refuse(path / "restartPolicy", "must be Always for a static pod", value=spec["restartPolicy"])
    volumes = {reader.text(row, "name", where): (where, row) for where, row in reader.items(spec, "volumes", path)}
    found = tuple(_container(reader, row, where, volumes) for where, row in reader.items(spec, "containers", path))
    if not found:
        reader.required(path / "containers", "a pod needs at least one container")
    for index, container in enumerate(found):
        if container.name in {other.name for other in found[:index]}:
            reader.refuse(container.path / "name", "", type=FieldErrorType.DUPLICATE, value=container.name)
    return found


def _container(
    reader: FieldReader, row: Mapping[str, Any], path: FieldPath, volumes: Mapping[str, tuple[FieldPath, Mapping[str, Any]]]
) -> Container:
    _refuse(reader, row, path, _REFUSED_IN_CONTAINER)
    command = reader.texts(row, "command", path)
    if not command:
        reader.required(path / "command", "a local machine has no image with a default command")
    ports = _ports(reader, row, path)
    return Container(
        name=_name(reader, row, path),
        command=command,
        args=reader.texts(row, "args", path),
        env=tuple(_variable(reader, item, where) for where, item in reader.items(row, "env", path)),
        mounts=tuple(
            mount for where, item in reader.items(row, "volumeMounts", path) if (mount := _mount(reader, item, where, volumes)) is not None
        ),
        working_dir=reader.text(row, "workingDir", path),
        startup=_probe(reader, row, "startupProbe", path, ports),
        liveness=_probe(reader, row, "livenessProbe", path, ports),
        readiness=_probe(reader, row, "readinessProbe", path, ports),
        path=path,
    )


def _ports(reader: FieldReader, row: Mapping[str, Any], path: FieldPath) -> dict[str, int]:
    return {
        reader.text(item, "name", where): reader.number(item, "containerPort", where, 0, least=1)
        for where, item in reader.items(row, "ports", path)
    }


def _variable(reader: FieldReader, item: Mapping[str, Any], path: FieldPath) -> Variable:
    name = reader.text(item, "name", path)
    if not _VARIABLE.fullmatch(name):
        reader.refuse(path / "name", "is not a name for an environment variable", value=name)
    source = reader.mapping(item, "valueFrom", path)
    field = reader.text(reader.mapping(source, "fieldRef", path / "valueFrom"), "fieldPath", path / "valueFrom" / "fieldRef")
    if source and not field:
        reader.forbidden(path / "valueFrom", f"only fieldRef can be resolved: {_API_OBJECTS}")
    if field and field not in FIELDS:
        reader.refuse(
            path / "valueFrom" / "fieldRef" / "fieldPath",
            f"supported: {', '.join(sorted(FIELDS))}",
            type=FieldErrorType.UNSUPPORTED,
            value=field,
        )
    return Variable(name=name, value=reader.text(item, "value", path), field=field, path=path)


def _mount(
    reader: FieldReader, item: Mapping[str, Any], path: FieldPath, volumes: Mapping[str, tuple[FieldPath, Mapping[str, Any]]]
) -> Mount | None:
    _refuse(reader, item, path, _REFUSED_IN_MOUNT)
    name = reader.text(item, "name", path)
    if name not in volumes:
        reader.refuse(path / "name", "the volume does not exist", value=name)
        return None
    where, volume = volumes[name]
    host = reader.mapping(volume, "hostPath", where)
    if not host:
        reader.forbidden(where, "a process can have only hostPath volumes")
        return None
    kind = reader.text(host, "type", where / "hostPath")
    if kind not in _HOST_PATH_TYPES:
        reader.refuse(where / "hostPath" / "type", "", type=FieldErrorType.UNSUPPORTED, value=kind)
    return Mount(
        mount_path=_absolute(reader, item, "mountPath", path),
        host_path=_absolute(reader, host, "path", where / "hostPath"),
        type=kind,
        path=path,
    )


def _absolute(reader: FieldReader, parent: Mapping[str, Any], name: str, path: FieldPath) -> str:
    value = reader.text(parent, name, path)
    if not value.startswith("/") or ".." in value.split("/") or not value.strip("/"):
        reader.refuse(path / name, "must be an absolute path below /, without '..'", value=value)
    return "/" + "/".join(part for part in value.split("/") if part not in {"", "."})


def _refuse(reader: FieldReader, row: Mapping[str, Any], path: FieldPath, table: Mapping[str, str]) -> None:
    for field, reason in table.items():
        if row.get(field):
            reader.forbidden(path / field, reason)


def _probe(reader: FieldReader, container: Mapping[str, Any], name: str, parent: FieldPath, ports: Mapping[str, int]) -> Probe | None:
    """Read a probe; None if there is none, or if its target cannot be used, which is recorded as an error."""
    row, path = reader.mapping(container, name, parent), parent / name
    if not row:
        return None
    target = _target(reader, row, path, ports)
    if target is None:
        return None
    return Probe(
        target=target,
        initial_delay=reader.number(row, "initialDelaySeconds", path, 0, least=0),
        period=reader.number(row, "periodSeconds", path, 10, least=0) or 10,
        timeout=reader.number(row, "timeoutSeconds", path, 1, least=0) or 1,
        success_threshold=reader.number(row, "successThreshold", path, 1, least=0) or 1,
        failure_threshold=reader.number(row, "failureThreshold", path, 3, least=0) or 3,
        grace=reader.number(row, "terminationGracePeriodSeconds", path, 0, least=1) or None,
    )


def _target(reader: FieldReader, row: Mapping[str, Any], path: FieldPath, ports: Mapping[str, int]) -> HttpTarget | TcpTarget | None:
    if http := reader.mapping(row, "httpGet", path):
        return _http(reader, http, path / "httpGet", ports)
    if tcp := reader.mapping(row, "tcpSocket", path):
        where = path / "tcpSocket"
        return TcpTarget(port=_port(reader, tcp, where, ports), host=reader.text(tcp, "host", where))
    reader.refuse(path, "only httpGet and tcpSocket", type=FieldErrorType.UNSUPPORTED, value=sorted(row))
    return None


def _http(reader: FieldReader, row: Mapping[str, Any], path: FieldPath, ports: Mapping[str, int]) -> HttpTarget:
    scheme = reader.text(row, "scheme", path).upper()
    if scheme not in _SCHEMES:
        reader.refuse(path / "scheme", "supported: HTTP, HTTPS", type=FieldErrorType.UNSUPPORTED, value=row.get("scheme"))
    headers = [
        (where, reader.text(item, "name", where), reader.text(item, "value", where))
        for where, item in reader.items(row, "httpHeaders", path)
    ]
    texts = [(path / "path", reader.text(row, "path", path)), (path / "host", reader.text(row, "host", path))]
    texts += [(where, name + value) for where, name, value in headers]
    for where, text in texts:
        if not text.isprintable():
            reader.refuse(where, "must not contain control characters", value=text)
    target = reader.text(row, "path", path)
    return HttpTarget(
        port=_port(reader, row, path, ports),
        path=target if target.startswith("/") else f"/{target}",
        host=reader.text(row, "host", path),
        secure=_SCHEMES.get(scheme, False),
        headers=tuple((name, value) for _, name, value in headers),
    )


def _port(reader: FieldReader, row: Mapping[str, Any], path: FieldPath, ports: Mapping[str, int]) -> int:
    value = row.get("port")
    if isinstance(value, str) and not value.isdigit():
        if value not in ports:
            reader.refuse(path / "port", "no port of the container has this name", value=value)
        return ports.get(value, 0)
    try:
        number = int(value)  # type: ignore[arg-type]  # None and odd types end in the error below
    except (TypeError, ValueError, OverflowError):
        number = 0
    if not 0 < number < 65536 or isinstance(value, bool):
        reader.refuse(path / "port", "must be a port number, 1 to 65535, or the name of a port", value=value)
    return number
