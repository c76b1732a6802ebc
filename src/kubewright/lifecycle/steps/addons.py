"""The add-ons in a cluster: CoreDNS and kube-proxy (kubeadm v1.36: phases/addons/dns, phases/addons/proxy)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.machine import Addresses, Detected
from kubewright.base.change import Change
from kubewright.base.errors import CheckFailed, NotFound
from kubewright.base.versions import OWN, release_for
from kubewright.kube import core
from kubewright.kube.api import KubeAPI
from kubewright.kube.objects import DesiredObject, Write, ensure_object
from kubewright.kube.resources import CONFIG_MAP, DEPLOYMENT
from kubewright.lifecycle.steps.component_versions import image_tag
from kubewright.lifecycle.steps.static_pods import Patched
from kubewright.manifests import coredns as dns
from kubewright.manifests import corefile, objects, patches

Body = dict[str, Any]
Say = Callable[[str], None]
NAMESPACE: Final = "kube-system"
COREFILE: Final = "Corefile"
BACKUP: Final = "Corefile-backup"
"""The key for the text before a migration, as in kubeadm."""
_TARGETS: Final = {"Deployment": patches.DNS, "DaemonSet": patches.PROXY}
"""The kinds that can be patched: an add-on has one of them."""
_SELECTOR: Final = f"k8s-app={dns.SERVICE}"


def coredns(configuration: Configuration, *, api: KubeAPI, patched: Patched, say: Say) -> Iterable[Change]:
    """Install CoreDNS.

    The number of its pods and a customized Corefile are kept, except for options that the releases in between have
    removed. Source: kubeadm v1.36: phases/addons/dns/dns.go (createCoreDNSAddon).
    """
    found = _deployment(api)
    wanted = objects.dns(configuration, replicas=_replicas(found))
    yield from _announced(_with_corefile(api, with_patches(wanted, patched), installed=_tag(found), say=say), "CoreDNS", say=say)


def kube_proxy(
    configuration: Configuration, addresses: Addresses, detected: Detected, *, api: KubeAPI, patched: Patched, say: Say
) -> Iterable[Change]:
    """Install kube-proxy."""
    wanted = with_patches(objects.proxy(configuration, addresses, detected), patched)
    yield from _announced((ensure_object(api, DesiredObject(body)) for body in wanted), "kube-proxy", say=say)


def _with_corefile(api: KubeAPI, wanted: Iterable[Body], *, installed: str, say: Say) -> Iterable[Change]:
    """Write the objects of CoreDNS, and keep a customized Corefile in the form of the new release.

    If the new release does not work with it, the installed release stays as well, as with kubeadm.
    """
    found = _corefile(api)
    own = "" if corefile.is_default(found) else found
    obstacle = _obstacle(own, installed)
    if obstacle:
        say(f"CoreDNS {installed} is not upgraded: {obstacle}")
    for body in wanted:
        desired, write = body, Write.REPLACE
        if obstacle and body["kind"] == DEPLOYMENT.kind:
            write = Write.CREATE_ONLY
        elif own and body["kind"] == CONFIG_MAP.kind:
            migrated = own if obstacle else _migrated_corefile(own, installed)
            desired = {**body, "data": {COREFILE: migrated, BACKUP: own}}
            write = Write.CREATE_ONLY if migrated == own else Write.REPLACE
        yield ensure_object(api, DesiredObject(desired, write=write))


def _target() -> str:
    return release_for(OWN).coredns_tag.removeprefix("v")


def _obstacle(own: str, installed: str) -> str:
    """Return why a customized Corefile does not work with our release; '' if it does, and for unknown releases."""
    return "" if not own or corefile.no_way(installed, _target()) else corefile.obstacle(own, installed)


def _migrated_corefile(own: str, installed: str) -> str:
    """Return a Corefile of the installed release in the form of ours; that of an unknown release is kept unchanged."""
    target = _target()
    return own if installed == target or corefile.no_way(installed, target) else corefile.migrated(own, installed, target)


def _announced(changes: Iterable[Change], name: str, *, say: Say) -> Iterable[Change]:
    """Yield the changes of an add-on, and report at the end whether there were any."""
    changed = False
    for change in changes:
        changed = changed or bool(change)
        yield change
    say(f"{'Applied' if changed else 'Using existing'} essential addon: {name}")


def with_patches(bodies: Iterable[Body], patched: Callable[[str, Body], Body]) -> Iterator[Body]:
    """Yield the objects of an add-on, with the user's patches applied to those that can be patched."""
    for body in bodies:
        target = _TARGETS.get(body["kind"])
        yield body if target is None else patched(target, body)


def _deployment(api: KubeAPI) -> Body:
    """Return the Deployment of DNS, an empty one if there is none. Raises CheckFailed if there are several."""
    found = api.list(DEPLOYMENT, NAMESPACE, label_selector=_SELECTOR)
    if len(found) > 1:
        names = ", ".join(core.identity_of(one)[0] for one in found)
        raise CheckFailed(
            "there is more than one DNS Deployment in kube-system",
            detail=f"{names} carry the label {_SELECTOR}",
            remedy="remove those that do not belong there, or skip the phase addon/coredns",
        )
    return found[0] if found else {}


def _replicas(found: Body) -> int:
    count = found.get("spec", {}).get("replicas")
    return count if isinstance(count, int) else dns.REPLICAS


def _tag(found: Body) -> str:
    """Return the release of CoreDNS in a Deployment, '' if it is unknown."""
    return image_tag(found.get("spec", {}).get("template", {})).removeprefix("v")


def _corefile(api: KubeAPI) -> str:
    """Return the configuration of CoreDNS in the cluster, '' if there is none."""
    try:
        found = api.get(CONFIG_MAP, dns.NAME, NAMESPACE)
    except NotFound:
        return ""
    return str((found.get("data") or {}).get(COREFILE) or "")
