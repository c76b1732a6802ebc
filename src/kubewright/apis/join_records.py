"""The join record of a node: its identity, keys and certificates, and the state of its join. Pure.

An API of its own: the hub stores it, and approvers of nodes' requests read it. It does not depend on how a node joined,
so that other protocols can use the same record.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final

from kubewright.apis.schema import camel_case
from kubewright.base.errors import DocumentError
from kubewright.base.records import dataclass, fields, shallow

API_VERSION: Final = "enrollment.kubewright/v1alpha1"
KIND: Final = "JoinRecord"


class State(enum.StrEnum):
    """The state of a join."""

    ISSUED = "Issued"
    LEFT = "Left"
    """The node has left: the record stays for information, and the name is free."""


@dataclass(frozen=True, kw_only=True)
class IssuedCertificate:
    """A certificate that was issued.

    `serial` is hexadecimal, `fingerprint` is the SHA-256 of the DER, times are RFC 3339.
    """

    purpose: str
    serial: str
    fingerprint: str
    not_after: str


@dataclass(frozen=True, kw_only=True)
class JoinRecord:
    """One node of one cluster.

    `protocol` names the codec, `request` the object or id of its request, `key` is a fingerprint. `lease` are its
    addresses in the VPN, IPv4 first, separated by commas; `tunnel_key` is the public key of its end.
    """

    cluster: str
    node: str
    state: State
    protocol: str
    request: str
    key: str
    names: tuple[str, ...] = ()
    lease: str = ""
    tunnel_key: str = ""
    certificates: tuple[IssuedCertificate, ...] = ()
    issued: str = ""
    changed: str = ""

    @property
    def active(self) -> bool:
        """Whether the name is in use."""
        return self.state is State.ISSUED

    @property
    def leases(self) -> tuple[str, ...]:
        """Its addresses in the VPN."""
        return tuple(self.lease.split(",")) if self.lease else ()

    @property
    def held(self) -> frozenset[str]:
        """Values that no other node of the cluster may use while this one is active: names, addresses, its tunnel key."""
        keys = (tunnel_key_name(self.tunnel_key),) if self.tunnel_key else ()
        return frozenset((self.node, *self.names, *self.leases, *keys)) if self.active else frozenset()

    def document(self) -> dict[str, Any]:
        """Return the record as it is stored and shown."""
        values = {**shallow(self), "state": self.state.value, "names": list(self.names)}
        values["certificates"] = [_camel(shallow(one)) for one in self.certificates]
        return {"apiVersion": API_VERSION, "kind": KIND, **_camel(values)}


def tunnel_key_name(key: str) -> str:
    """Return the form of a tunnel key among names: no name or address has it."""
    return f"wireguard:{key}"


def read(document: Mapping[str, Any]) -> JoinRecord:
    """Read a record. Raises DocumentError for anything else."""
    document = {"tunnelKey": "", **document}  # records from before the VPN existed
    if (document.get("apiVersion"), document.get("kind")) != (API_VERSION, KIND):
        raise DocumentError(f"no {KIND} of {API_VERSION}", remedy="restore the state of the hub from a backup")
    try:
        values = {one.name: document[camel_case(one.name)] for one in fields(JoinRecord)}
        values["state"], values["names"] = State(values["state"]), tuple(values["names"])
        made = [{one.name: row[camel_case(one.name)] for one in fields(IssuedCertificate)} for row in values["certificates"]]
    except (KeyError, ValueError, TypeError) as error:
        raise DocumentError(f"a {KIND} cannot be read", detail=str(error), remedy="restore the state of the hub from a backup") from error
    return JoinRecord(**{**values, "certificates": tuple(IssuedCertificate(**one) for one in made)})


def _camel(values: Mapping[str, Any]) -> dict[str, Any]:
    return {camel_case(name): value for name, value in values.items()}
