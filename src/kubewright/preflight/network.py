"""Checks of the network: ports, firewalld, proxies that would be used for the cluster's own addresses, an external etcd."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.apis import formats
from kubewright.apis.kubeadm.types import ExternalEtcd
from kubewright.apis.machine import url
from kubewright.base.checks import Finding, warning
from kubewright.base.clock import Clock, SystemClock
from kubewright.base.errors import APIError, KubewrightError, UsageError
from kubewright.base.versions import Version
from kubewright.http.messages import Response
from kubewright.http.proxies import Proxies
from kubewright.preflight.checks import Check, Subject

if TYPE_CHECKING:
    from ssl import SSLContext

_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - as kubeadm looks: nobody may listen on that port at any address
_UNPROXIED: Final = "add it to NO_PROXY, or unset the proxy for this command"
_FIREWALL: Final = "firewalld"
_NAME: Final = 15

OLDEST: Final = Version.parse("3.5.24-0")
_TRIES: Final = 4
_PAUSE: Final = 5.0
_PATIENCE: Final = 10.0
_REMEDY: Final = "make sure that it answers there, and that the certificate files of etcd.external are correct"

Ask = Callable[[str, ExternalEtcd, Subject], Response]
"""Requests `/version` of one endpoint. Raises KubewrightError if it does not answer."""


def port(number: int, *, ours: str = "") -> Check:
    """No program may listen on the port, except that of `ours` if an earlier run has started it."""

    def find(subject: Subject) -> Iterable[Finding]:
        owner = subject.host.network.owner_of_port(_EVERYWHERE, number)
        if owner is not None and not _same_program(owner.program or "", ours):
            stop = f"stop it (`kill {owner.pid}`)" if owner.pid is not None else "find it with `ss -ltnp` and stop it"
            yield Finding(text=f"Port {number} is in use by {owner}", remedy=stop)

    return Check(name=f"Port-{number}", find=find)


def _same_program(program: str, ours: str) -> bool:
    """Compare names of programs as the kernel reports them: 15 characters."""
    return bool(ours) and program == ours[:_NAME]


def firewall(subject: Subject) -> Iterable[Finding]:
    """firewalld closes the ports that a cluster needs."""
    found = subject.host.service(_FIREWALL)
    if found is not None and found.running:
        ports = f"{subject.addresses.ports.api_server} {subject.addresses.ports.kubelet}"
        yield warning(
            f"firewalld is active, please ensure ports [{ports}] are open or your cluster may not function correctly",
            remedy=f"open them: `firewall-cmd --add-port={{{ports.replace(' ', ',')}}}/tcp --permanent`, then `firewall-cmd --reload`",
        )


def _proxy(subject: Subject, target: str) -> str:
    """Describe the proxy for a URL; '' if there is none. One of a kind that we do not support may still be that of other programs."""
    try:
        found = Proxies.from_environment(subject.host.facts.detected.proxy_environment).for_url(target)
    except UsageError as error:
        return f"a proxy that kubewright does not support: {error.what}"
    return f'proxy "{found.url}"' if found is not None else ""


def proxied_host(host: str) -> Check:
    """No proxy in the environment should be used for the API server."""

    def find(subject: Subject) -> Iterable[Finding]:
        if proxy := _proxy(subject, url(host, 443)):
            yield warning(f'Connection to "{host}" uses {proxy}. If that is not intended, adjust your proxy settings', remedy=_UNPROXIED)

    return Check(name="HTTPProxy", find=find)


def proxied_range(subnet: str) -> Check:
    """No proxy in the environment should be used for services or pods."""

    def find(subject: Subject) -> Iterable[Finding]:
        first = formats.address_at(formats.subnets(subnet)[0], 1)
        if proxy := _proxy(subject, url(str(first), 1234)):
            yield warning(
                f'connection to "{subnet}" uses {proxy}. This may lead to malfunctional cluster setup. Make sure that Pod and'
                " Services IP ranges specified correctly as exceptions in proxy configuration",
                remedy=_UNPROXIED,
            )

    return Check(name="HTTPProxyCIDR", find=find)


def external_version(external: ExternalEtcd, *, ask: Ask | None = None, clock: Clock | None = None) -> Check:
    """Every endpoint must report a version that is new enough. A server with a temporary error is retried after 5 s."""

    def find(subject: Subject) -> Iterable[Finding]:
        for endpoint in external.http_endpoints or external.endpoints:
            try:
                answer = _retry(endpoint, external, subject, ask or _ask, clock or SystemClock())
                reported = json.loads(answer.body).get("etcdserver", "") if answer.status == 200 else None
            except (KubewrightError, ValueError, AttributeError) as error:
                yield Finding(text=f"couldn't get the version of external etcd at {endpoint}: {error}", remedy=_REMEDY)
                continue
            yield from _version_findings(endpoint, reported, answer.status)

    return Check(name="ExternalEtcdVersion", find=find)


def _version_findings(endpoint: str, reported: object, status: int) -> Iterable[Finding]:
    try:
        version = Version.parse(reported) if isinstance(reported, str) else None
    except ValueError:
        version = None
    if version is None:
        said = f"status code {status}" if reported is None else f"it says {json.dumps(reported)}"
        yield Finding(text=f"external etcd at {endpoint} does not report its version ({said})", remedy=_REMEDY)
    elif version < OLDEST:
        yield Finding(
            text=f"only external etcd version >= {str(OLDEST).lstrip('v')} is supported. Current version at {endpoint}: {version}",
            remedy="upgrade it first",
        )


def _retry(endpoint: str, external: ExternalEtcd, subject: Subject, ask: Ask, clock: Clock) -> Response:
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


def _context(endpoint: str, external: ExternalEtcd, read: Callable[[PurePosixPath], bytes | None]) -> SSLContext | None:
    """Return the TLS context for an endpoint: None for http://, and the machine's CA certificates without a CA file.

    kube-apiserver uses these fields in the same way, and so does kubeadm v1.36.3 (cmd/kubeadm/app/preflight/checks.go).
    """
    from kubewright.http import tls

    def content(path: str) -> bytes | None:
        return read(PurePosixPath(path)) if path else None

    if endpoint.lower().startswith("http://"):
        return None
    certificate, key = content(external.cert_file), content(external.key_file)
    if external.ca_file:
        return tls.client_context(content(external.ca_file), certificate, key)
    context = tls.host_context()
    if certificate is not None and key is not None:
        tls.identify(context, certificate, key)
    return context


def _ask(endpoint: str, external: ExternalEtcd, subject: Subject) -> Response:
    from kubewright.http.sync import Transport  # a machine without an external etcd needs no client

    transport = Transport(endpoint.rstrip("/"), context=_context(endpoint, external, subject.host.read))
    try:
        return transport.request("GET", "/version", timeout=_PATIENCE)
    finally:
        transport.close()
