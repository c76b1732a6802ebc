"""Checks of an etcd that somebody else runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.kubeadm.types import ExternalEtcd
from kubewright.base.clock import Clock, SystemClock
from kubewright.base.errors import APIError, KubewrightError
from kubewright.base.versions import Version
from kubewright.http.messages import Response
from kubewright.preflight.model import Check, Finding, Subject

OLDEST: Final = Version.parse("3.5.24-0")
_TRIES: Final = 4
_PAUSE: Final = 5.0
_PATIENCE: Final = 10.0
_REMEDY: Final = "see that it answers there, and that the three certificate files of etcd.external are the right ones"

Ask = Callable[[str, ExternalEtcd, Subject], Response]
"""GETs `/version` of one endpoint. Raises KubewrightError for no answer."""


def external_version(external: ExternalEtcd, *, ask: Ask | None = None, clock: Clock | None = None) -> Check:
    """Every endpoint must answer with a version that is not too old. A server that stumbles is asked again, 5 s apart."""

    def find(subject: Subject) -> Iterable[Finding]:
        for endpoint in external.http_endpoints or external.endpoints:
            try:
                answer = _patiently(endpoint, external, subject, ask or _ask, clock or SystemClock())
                told = json.loads(answer.body).get("etcdserver", "") if answer.status == 200 else None
            except (KubewrightError, ValueError, AttributeError) as error:
                yield Finding(text=f"couldn't get the version of external etcd at {endpoint}: {error}", remedy=_REMEDY)
                continue
            yield from _judge(endpoint, told, answer.status)

    return Check(name="ExternalEtcdVersion", find=find)


def _judge(endpoint: str, told: object, status: int) -> Iterable[Finding]:
    try:
        version = Version.parse(told) if isinstance(told, str) else None
    except ValueError:
        version = None
    if version is None:
        said = f"status code {status}" if told is None else f"it says {json.dumps(told)}"
        yield Finding(text=f"external etcd at {endpoint} does not tell its version ({said})", remedy=_REMEDY)
    elif version < OLDEST:
        yield Finding(
            text=f"this version of kubeadm only supports external etcd version >= {str(OLDEST).lstrip('v')}. Current version at {endpoint}: {version}",
            remedy="upgrade it first",
        )


def _patiently(endpoint: str, external: ExternalEtcd, subject: Subject, ask: Ask, clock: Clock) -> Response:
    for left in reversed(range(_TRIES)):
        try:
            answer = ask(endpoint, external, subject)
        except APIError:
            if not left:
                raise
        else:
            if answer.status < 500 or not left:
                return answer
        clock.sleep(_PAUSE)
    raise AssertionError


def _ask(endpoint: str, external: ExternalEtcd, subject: Subject) -> Response:
    from kubewright.http import tls  # a machine without an external etcd needs no client
    from kubewright.http.sync import Transport

    def content(path: str) -> bytes | None:
        return subject.host.read(PurePosixPath(path)) if path else None

    context = tls.client_context(content(external.ca_file), content(external.cert_file), content(external.key_file))
    transport = Transport(endpoint.rstrip("/"), context=context)
    try:
        return transport.request("GET", "/version", timeout=_PATIENCE)
    finally:
        transport.close()
