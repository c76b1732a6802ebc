"""Checks of ports, of the packet filter's manager, and of proxies that would be asked for the cluster's own addresses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubewright.apis import subnets
from kubewright.apis.addresses import url
from kubewright.http.proxies import Proxies
from kubewright.preflight.model import Check, Finding, Subject, warning

_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - as kubeadm looks: nobody may listen on that port at any address
_UNPROXIED: Final = "add it to NO_PROXY, or unset the proxy for this command"
_FIREWALL: Final = "firewalld"
_NAME: Final = 15


def port(number: int, *, ours: str = "") -> Check:
    """Nobody may listen there, but for a program of `ours` that an earlier run has started."""

    def find(subject: Subject) -> Iterable[Finding]:
        owner = subject.host.network.owner_of_port(_EVERYWHERE, number)
        if owner is not None and not _is(owner.program or "", ours):
            stop = f"stop it (`kill {owner.pid}`)" if owner.pid is not None else "find it with `ss -ltnp` and stop it"
            yield Finding(text=f"Port {number} is in use by {owner}", remedy=stop)

    return Check(name=f"Port-{number}", find=find)


def _is(program: str, ours: str) -> bool:
    """Compare names of programs as the kernel tells them: 15 letters."""
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


def proxied_host(host: str) -> Check:
    """A proxy in the environment would be asked for the API server."""

    def find(subject: Subject) -> Iterable[Finding]:
        proxy = Proxies.from_environment(subject.host.facts.detected.proxy_environment).for_url(url(host, 443))
        if proxy is not None:
            yield warning(
                f'Connection to "{host}" uses proxy "{proxy.url}". If that is not intended, adjust your proxy settings', remedy=_UNPROXIED
            )

    return Check(name="HTTPProxy", find=find)


def proxied_range(subnet: str) -> Check:
    """A proxy in the environment would be asked for services or pods."""

    def find(subject: Subject) -> Iterable[Finding]:
        first = subnets.address_at(subnets.parse(subnet)[0], 1)
        proxy = Proxies.from_environment(subject.host.facts.detected.proxy_environment).for_url(url(str(first), 1234))
        if proxy is not None:
            yield warning(
                f'connection to "{subnet}" uses proxy "{proxy.url}". This may lead to malfunctional cluster setup. Make sure that Pod and'
                " Services IP ranges specified correctly as exceptions in proxy configuration",
                remedy=_UNPROXIED,
            )

    return Check(name="HTTPProxyCIDR", find=find)
