"""The location of a NodeApprovalPolicy: a file or a ConfigMap."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import DocumentError, UsageError
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass
from kubewright.kube.core import Object
from kubewright.manifests import node_policy, pods

_SCHEME: Final = "configmap:"


@dataclass(frozen=True, kw_only=True)
class PolicyObject:
    """The ConfigMap that contains a policy."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"ConfigMap {self.namespace}/{self.name}"


PolicyLocation = PurePosixPath | PolicyObject
"""The location of a policy."""
DEFAULT: Final = PolicyObject(namespace=pods.NAMESPACE, name=node_policy.NAME)
"""The default location of a cluster's policy."""


def location(text: str) -> PolicyLocation | None:
    """Parse `--node-policy`: a path, or `configmap:NAMESPACE/NAME`; None for ''. Raises UsageError."""
    if not text.startswith(_SCHEME):
        return PurePosixPath(text) if text else None
    namespace, slash, name = text.removeprefix(_SCHEME).partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise UsageError(
            f"--node-policy: {quoted(text)} names no ConfigMap", remedy="write it like configmap:kube-system/kubewright-node-policy"
        )
    return PolicyObject(namespace=namespace, name=name)


def content_of(found: Object, source: PolicyObject) -> bytes:
    """Return the text of a policy in a ConfigMap. Raises DocumentError if it contains none."""
    text = (found.get("data") or {}).get(node_policy.KEY)
    if not isinstance(text, str):
        raise DocumentError(f"the {source} has no {node_policy.KEY}", remedy="put a NodeApprovalPolicy there")
    return text.encode()
