"""Additions to kubeadm's add-ons in a cluster of machines: a default StorageClass, and the host's name in its DNS."""

from __future__ import annotations

from typing import Any, Final

from kubewright.base.change import Change
from kubewright.base.errors import NotFound
from kubewright.base.patterns import Pattern
from kubewright.kube.api import KubeAPI
from kubewright.kube.objects import DesiredObject, Write, ensure_object
from kubewright.kube.resources import CONFIG_MAP
from kubewright.local.whole.members import HOST_NAME
from kubewright.local.whole.services import volumes
from kubewright.manifests import coredns, corefile

_NAMESPACE: Final = "kube-system"
_COREFILE: Final = "Corefile"
_BLOCK: Final = Pattern(r"(?m)^\.(?::53)?[ \t]*\{[ \t]*\n")
_ENTRY: Final = Pattern(rf"(?m)^([ \t]*)\S+[ \t]+{HOST_NAME.replace('.', '[.]')}[ \t]*$")
_PLUGIN: Final = "    hosts {{\n       {address} {name}\n       fallthrough\n    }}\n"


def ensure(api: KubeAPI, *, gateway: str) -> list[Change]:
    """Ensure the StorageClass and the DNS entry; returns the changes.

    An existing StorageClass is left as it is: its users may have another default.
    """
    changes = (ensure_object(api, DesiredObject(volumes.storage_class(), write=Write.CREATE_ONLY)), *_name_of_host(api, gateway))
    return [change for change in changes if change]


def _name_of_host(api: KubeAPI, gateway: str) -> list[Change]:
    try:
        found = api.get(CONFIG_MAP, coredns.NAME, _NAMESPACE)
    except NotFound:  # the user's configuration has another DNS
        return []
    text = str((found.get("data") or {}).get(_COREFILE) or "")
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": coredns.NAME, "namespace": _NAMESPACE},
        "data": {_COREFILE: with_host(text, gateway)},
    }
    return [ensure_object(api, DesiredObject(body, write=Write.MUTATE_DATA_KEYS))]


def with_host(text: str, address: str) -> str:
    """Return a Corefile in which the host's name has this address; unchanged if its root zone has other `hosts`."""
    if _ENTRY.search(text):
        return _ENTRY.sub(rf"\g<1>{address} {HOST_NAME}", text)
    roots = [server for server in corefile.parse(text) if set(server.zones) & {".", ".:53"}]
    if len(roots) != 1 or any(plugin.name == "hosts" for plugin in roots[0].plugins):  # CoreDNS accepts this plugin once per block
        return text
    return _BLOCK.sub(lambda found: found[0] + _PLUGIN.format(address=address, name=HOST_NAME), text)
