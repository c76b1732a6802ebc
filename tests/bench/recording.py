"""The requests that nodes send while they join, taken from the API server's audit log.

A real `up` is recorded, with an audit policy that keeps the request bodies of nodes, bootstrap tokens and anonymous
clients. The log shows identities, not connections; those are known from how nodes communicate (see `replay`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kubewright.base import yaml

_METHODS: Final = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
_PATCH: Final = "application/strategic-merge-patch+json"
_JSON: Final = "application/json"
_CLUSTER_INFO: Final = "/configmaps/cluster-info"
_FORBIDDEN: Final = 403

POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Request", "userGroups": ["system:nodes", "system:bootstrappers", "system:unauthenticated"]},
        {"level": "None"},
    ],
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request. A watch is opened but not read to its end."""

    method: str
    target: str
    body: Mapping[str, Any] | None = None
    content_type: str = ""
    watch: bool = False


@dataclass(frozen=True, kw_only=True)
class Join:
    """The requests of one node: without credentials, with the bootstrap token, with its own certificate."""

    node: str
    anonymous: tuple[Request, ...]
    token: tuple[Request, ...]
    own: tuple[Request, ...]

    @property
    def count(self) -> int:
        """The number of requests."""
        return len(self.anonymous) + len(self.token) + len(self.own)


def write_configuration(directory: Path) -> tuple[Path, Path]:
    """Write a kubeadm configuration that enables the audit log; return it and the path of the log."""
    policy, log, configuration = directory / "policy.yaml", directory / "audit.log", directory / "audited.yaml"
    policy.write_text(yaml.dump(POLICY), encoding="utf-8")
    arguments = {"audit-policy-file": policy, "audit-log-path": log}
    document = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "apiServer": {"extraArgs": [{"name": name, "value": str(value)} for name, value in arguments.items()]},
    }
    configuration.write_text(yaml.dump(document), encoding="utf-8")
    return configuration, log


def joins(log: Iterable[str], nodes: Iterable[str]) -> list[Join]:
    """Read the log and return what each of these nodes sent, in order.

    Requests that were sent anonymously or with the token do not show which node they belong to: they are distributed
    in order, so that every node gets its share. Two kinds are left out: requests that were refused because
    permissions were missing (they were retried, so the loop would send them twice), and those about single pods,
    whose names exist only in the recorded cluster.
    """
    answered = sorted(_answered(log), key=lambda event: event["requestReceivedTimestamp"])
    wanted = [event for event in answered if event["responseStatus"]["code"] != _FORBIDDEN and not _names_a_pod(event)]
    anonymous = [_request(event) for event in wanted if _is_anonymous(event)]
    shared = [_request(event) for event in wanted if event["user"]["username"].startswith("system:bootstrap:")]
    asked, waited = [one for one in shared if not one.watch], [one for one in shared if one.watch]
    names = list(nodes)
    return [
        Join(
            node=name,
            anonymous=tuple(anonymous[number :: len(names)]),
            token=(*asked[number :: len(names)], *waited[number :: len(names)]),
            own=tuple(_request(event) for event in wanted if event["user"]["username"] == f"system:node:{name}"),
        )
        for number, name in enumerate(names)
    ]


def _answered(log: Iterable[str]) -> list[dict[str, Any]]:
    """Return one event per request: its last stage, which for an open watch is the start of the response."""
    last: dict[str, dict[str, Any]] = {}
    for line in log:
        event = json.loads(line)
        last[event["auditID"]] = event
    return [event for event in last.values() if event.get("responseStatus", {}).get("code")]


def _is_anonymous(event: Mapping[str, Any]) -> bool:
    who: str = event["user"]["username"]
    what: str = event["requestURI"]
    return who == "system:anonymous" and what.endswith(_CLUSTER_INFO)


def _names_a_pod(event: Mapping[str, Any]) -> bool:
    return re.search(r"/pods/", event["requestURI"]) is not None


def _request(event: Mapping[str, Any]) -> Request:
    body = event.get("requestObject")
    kind = "" if body is None else _PATCH if event["verb"] == "patch" else _JSON
    return Request(
        method=_METHODS.get(event["verb"], "GET"),
        target=event["requestURI"],
        body=body,
        content_type=kind,
        watch=event["verb"] == "watch",
    )
