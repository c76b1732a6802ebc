"""The add-ons in a cluster: CoreDNS and kube-proxy (kubeadm v1.36: phases/addons/dns, phases/addons/proxy)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.machine import Addresses, Detected
from kubewright.base.change import Change
from kubewright.base.errors import CheckFailed, NotFound
from kubewright.kube import core
from kubewright.kube.api import KubeAPI
from kubewright.kube.objects import DesiredObject, Write, ensure_object
from kubewright.kube.resources import CONFIG_MAP, named
from kubewright.lifecycle.steps.static_pods import Patched
from kubewright.manifests import coredns as dns
from kubewright.manifests import objects, patches

Body = dict[str, Any]
Say = Callable[[str], None]
NAMESPACE: Final = "kube-system"
COREFILE: Final = "Corefile"
_TARGETS: Final = {"Deployment": patches.DNS, "DaemonSet": patches.PROXY}
"""The kinds that can be patched: an add-on has one of them."""
_SELECTOR: Final = f"k8s-app={dns.SERVICE}"


def coredns(configuration: Configuration, *, api: KubeAPI, patched: Patched, say: Say) -> Iterable[Change]:
    """Install CoreDNS. The number of its pods and a Corefile that somebody wrote stay as they are."""
    wanted = objects.dns(configuration, replicas=_replicas(api))
    yield from _told(_with_corefile(api, with_patches(wanted, patched)), "CoreDNS", say=say)


def kube_proxy(
    configuration: Configuration, addresses: Addresses, detected: Detected, *, api: KubeAPI, patched: Patched, say: Say
) -> Iterable[Change]:
    """Install kube-proxy."""
    wanted = with_patches(objects.proxy(configuration, addresses, detected), patched)
    yield from _told((ensure_object(api, DesiredObject(body)) for body in wanted), "kube-proxy", say=say)


def _with_corefile(api: KubeAPI, wanted: Iterable[Body]) -> Iterable[Change]:
    for body in wanted:
        write = Write.CREATE_ONLY if _has_corefile(api, body) else Write.REPLACE
        yield ensure_object(api, DesiredObject(body, write=write))


def _told(changes: Iterable[Change], name: str, *, say: Say) -> Iterable[Change]:
    """Yield the changes of an add-on, and say at their end whether there were any."""
    changed = False
    for change in changes:
        changed = changed or bool(change)
        yield change
    say(f"{'Applied' if changed else 'Using existing'} essential addon: {name}")


def with_patches(bodies: Iterable[Body], patched: Callable[[str, Body], Body]) -> Iterator[Body]:
    """Yield the objects of an add-on, those that can be patched as the user wants them."""
    for body in bodies:
        target = _TARGETS.get(body["kind"])
        yield body if target is None else patched(target, body)


def _replicas(api: KubeAPI) -> int:
    """Return how many pods the DNS Deployment of the cluster has, or kubeadm's number. Raises CheckFailed if there are several."""
    found = api.list(named("Deployment"), NAMESPACE, label_selector=_SELECTOR)
    if len(found) > 1:
        names = ", ".join(core.identity_of(one)[0] for one in found)
        raise CheckFailed(
            "there is more than one DNS Deployment in kube-system",
            detail=f"{names} carry the label {_SELECTOR}",
            remedy="remove those that do not belong there, or skip the phase addon/coredns",
        )
    count = found[0].get("spec", {}).get("replicas") if found else None
    return count if isinstance(count, int) else dns.REPLICAS


def _has_corefile(api: KubeAPI, body: Body) -> bool:
    """Whether an object is the ConfigMap of CoreDNS and the one in the cluster holds a configuration. Ours is then the same, or theirs stays."""
    if body["kind"] != "ConfigMap":
        return False
    try:
        found = api.get(CONFIG_MAP, dns.NAME, NAMESPACE)
    except NotFound:
        return False
    return bool((found.get("data") or {}).get(COREFILE))
