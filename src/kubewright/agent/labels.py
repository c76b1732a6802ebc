"""The labels of a Node: those every kubelet sets, and the rule for those that a user configures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kubewright.base.errors import ValidationError
from kubewright.base.fields import FieldError, FieldErrorType, FieldPath

HOST_NAME: Final = "kubernetes.io/hostname"
OPERATING_SYSTEM: Final = "kubernetes.io/os"
ARCHITECTURE: Final = "kubernetes.io/arch"
OLD_OPERATING_SYSTEM: Final = "beta.kubernetes.io/os"
OLD_ARCHITECTURE: Final = "beta.kubernetes.io/arch"

PLACES: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
)

RECONCILED: Final = (
    HOST_NAME,
    *PLACES,
    OPERATING_SYSTEM,
    ARCHITECTURE,
    "node.kubernetes.io/windows-build",
    OLD_OPERATING_SYSTEM,
    OLD_ARCHITECTURE,
)
"""The labels that an agent corrects on a Node that exists already, in the kubelet's order."""

_ALLOWED: Final = frozenset({HOST_NAME, OPERATING_SYSTEM, ARCHITECTURE, OLD_OPERATING_SYSTEM, OLD_ARCHITECTURE, *PLACES})
_ALLOWED_DOMAINS: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_GUARDED_DOMAINS: Final = ("kubernetes.io", "k8s.io")

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*", re.ASCII)


def default_labels(*, host_name: str, operating_system: str, architecture: str) -> dict[str, str]:
    """Return the labels that every Node gets from its agent."""
    return {
        HOST_NAME: host_name,
        OPERATING_SYSTEM: operating_system,
        ARCHITECTURE: architecture,
        OLD_OPERATING_SYSTEM: operating_system,
        OLD_ARCHITECTURE: architecture,
    }


def check_labels(labels: Mapping[str, str]) -> None:
    """Require labels that a node may give itself.

    Raises ValidationError with every wrong key and value. The domains are those of NodeRestriction (spec of the kubelet's
    `--node-labels`): in kubernetes.io and k8s.io only a fixed set, below kubelet.kubernetes.io and node.kubernetes.io anything.
    """
    errors = [error for key, value in labels.items() for error in _label_errors(key, value)]
    if errors:
        raise ValidationError("the node's labels are not allowed", errors, remedy="use a domain of your own for labels of your own")


def _label_errors(key: str, value: str) -> list[FieldError]:
    rules = (
        (
            not _is_label_key(key),
            FieldErrorType.INVALID,
            key,
            "a key is an optional DNS subdomain and '/', then up to 63 of A-Z a-z 0-9 - _ .",
        ),
        (
            not _is_allowed(key),
            FieldErrorType.FORBIDDEN,
            key,
            "a node may not give itself this label: it belongs to kubernetes.io or k8s.io",
        ),
        (not _is_label_value(value), FieldErrorType.INVALID, value, "a value is empty, or up to 63 of A-Z a-z 0-9 - _ ."),
    )
    path = FieldPath("labels").key(key)
    return [FieldError(path=path, type=kind, value=shown, reason=reason) for broken, kind, shown, reason in rules if broken]


def _is_label_key(key: str) -> bool:
    domain, slash, name = key.rpartition("/")
    return _NAME.fullmatch(name) is not None and (not slash or _is_subdomain(domain))


def _is_label_value(value: str) -> bool:
    return not value or _NAME.fullmatch(value) is not None


def _is_allowed(key: str) -> bool:
    domain = key.rpartition("/")[0]
    return key in _ALLOWED or not _is_below(domain, _GUARDED_DOMAINS) or _is_below(domain, _ALLOWED_DOMAINS)


def _is_below(domain: str, parents: tuple[str, ...]) -> bool:
    return any(domain == parent or domain.endswith(f".{parent}") for parent in parents)


def _is_subdomain(text: str) -> bool:
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None
