"""All objects of a cluster in a form in which two clusters can be compared: without what is unique to every cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from machine_kit import kubectl

from kubewright.machines.machine import Machine

KINDS: Final = (
    "configmaps,secrets,serviceaccounts,services,roles,rolebindings,clusterroles,clusterrolebindings,deployments,daemonsets"
    ",namespaces,nodes,pods,priorityclasses,apiservices"
)
_OWN: Final = ("uid", "resourceVersion", "creationTimestamp", "generation")
_SEALED: Final = re.compile(r"(ca|etcd-ca|front-proxy-ca|sa)\.(crt|key|pub)$")
_RANDOM: Final = {
    "Pod": re.compile(r"(coredns-[0-9a-f]+|kube-proxy)-[a-z0-9]{5}"),
    "Secret": re.compile(r"bootstrap-token-(?!abcdef)[a-z0-9]{6}"),
}
"""Objects whose names are random."""
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)
_ENCODED: Final = re.compile(r"(certificate-authority-data: )\S+")


def objects(machine: Machine) -> Mapping[str, Any]:
    """Return the objects of the cluster by kind and name, without identities, times, addresses, keys and status."""
    items = kubectl(machine, "get", KINDS, "--all-namespaces", "--show-managed-fields")["items"]
    found = [_plain(one, machine.address) for one in items]
    return {f"{one['kind']} {one['metadata'].get('namespace', '-')}/{one['metadata']['name']}": one for one in found}


def _plain(one: dict[str, Any], address: str) -> dict[str, Any]:
    text = json.dumps({key: value for key, value in one.items() if key != "status"}).replace(address, "ADDRESS")
    text = re.sub(r"kube-api-access-[a-z0-9]{5}", "kube-api-access-RANDOM", text)
    plain: dict[str, Any] = json.loads(text)
    metadata = {key: value for key, value in plain["metadata"].items() if key not in _OWN}
    pattern = _RANDOM.get(plain["kind"])
    if pattern and pattern.fullmatch(metadata["name"]):
        metadata["name"] = "RANDOM"
    managers = {(row["manager"], row["operation"], row.get("subresource", "")) for row in metadata.pop("managedFields", [])}
    metadata["managedFields"] = sorted(managers)
    for owner in metadata.get("ownerReferences", []):
        del owner["uid"]
        owner["name"] = re.sub(_RANDOM["Secret"], "bootstrap-token-RANDOM", owner["name"])
    annotations = metadata.get("annotations", {})
    for name in annotations.keys() & {"kubernetes.io/config.hash", "kubernetes.io/config.mirror", "kubernetes.io/config.seen"}:
        annotations[name] = ""
    return {**plain, "metadata": metadata, **{name: _data(plain[name]) for name in ("data",) if name in plain}}


def _data(data: Mapping[str, str]) -> dict[str, str]:
    own = {"token-id", "token-secret", "expiration", "since"}  # since: a date, in kube-apiserver-legacy-service-account-token-tracking
    return {
        key: "" if key in own or key.startswith("jws-") or (_SEALED.fullmatch(key) and "BEGIN" not in value) else _public(value)
        for key, value in data.items()
    }


def _public(text: str) -> str:
    return _ENCODED.sub(r"\1CERTIFICATE", _CERTIFICATE.sub("CERTIFICATE", text))
