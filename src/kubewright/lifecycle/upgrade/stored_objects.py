"""Objects that an earlier kube-apiserver cannot read, because a later one has stored them in a version that it does not know.

A kube-apiserver stores the objects of a kind in a version that the release before it knows, too (Kubernetes deprecation
policy, rule 4b; kube-apiserver v1.36: staging/src/k8s.io/apiserver/pkg/server/storage/resource_encoding_config.go). The
exceptions are kinds that were alpha in the release before (v1.36 and v1.37:
pkg/kubeapiserver/default_storage_factory_builder.go). Each release can read custom resources: their versions are those
of their CustomResourceDefinition.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kubewright.base import untyped
from kubewright.base.versions import Version

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI

_SCHEDULING: Final = "scheduling.k8s.io"
STORED: Final = {
    36: ((f"{_SCHEDULING}/v1alpha2", "workloads"),),
    37: ((f"{_SCHEDULING}/v1beta1", "workloads"), (f"{_SCHEDULING}/v1beta1", "podgroups")),
}
"""The versions in which a minor release stores kinds that the release before it had only in other versions."""
_OK: Final = 200


def unknown_to(earlier: Version, *, later: Version) -> list[tuple[str, str]]:
    """Return the group with the version, and the plural, of kinds that `later` stores and `earlier` cannot read."""
    return [row for minor, rows in STORED.items() if earlier.minor < minor <= later.minor for row in rows]


def unreadable(api: KubeAPI, earlier: Version, *, later: Version) -> Iterator[str]:
    """Yield a description of each kind with objects that `earlier` cannot read. Raises Unreachable."""
    for version, plural in unknown_to(earlier, later=later):
        answer = api.raw("GET", f"/apis/{version}/{plural}?limit=1")  # not served unless the feature is enabled
        if answer.status == _OK and untyped.items(untyped.mapping(json.loads(answer.body)).get("items")):
            yield f"{plural}.{version.partition('/')[0]} are stored as {version}"
