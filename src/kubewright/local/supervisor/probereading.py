"""Reading the three probes of a container."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubewright.base.fields import FieldErrorType, FieldPath
from kubewright.local.supervisor.fieldreader import FieldReader
from kubewright.local.supervisor.pod import HttpTarget, Probe, TcpTarget

_SCHEMES: Final = {"": False, "HTTP": False, "HTTPS": True}


def read_probe(reader: FieldReader, container: Mapping[str, Any], name: str, parent: FieldPath, ports: Mapping[str, int]) -> Probe | None:
    """Read a probe; None if there is none, or if its target cannot be used, which is noted as an error."""
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
            reader.refuse(where, "may not hold control characters", value=text)
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
        reader.refuse(path / "port", "has to be a port number, 1 to 65535, or the name of a port", value=value)
    return number
