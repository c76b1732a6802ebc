"""An operator in one function: every namespace of a team has a ResourceQuota of the size that its annotation asks for."""

from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.models.core_v1 import ResourceQuotaSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace, ResourceQuota

TEAM = "example.org/team"
PODS = "example.org/pods"
NAME = "team-quota"
DEFAULT = "10"


def reconcile(client: Client, name: str) -> str:
    """Bring one namespace to the state that it asks for. Returns what was done: "none", "applied" or "removed"."""
    namespace = client.get(Namespace, name)
    wanted = TEAM in (namespace.metadata.labels or {})
    found = _find(client, name)
    if not wanted:
        if found is None:
            return "none"
        client.delete(ResourceQuota, NAME, namespace=name)
        return "removed"
    pods = (namespace.metadata.annotations or {}).get(PODS, DEFAULT)
    if found is not None and (found.spec.hard or {}) == {"pods": pods}:
        return "none"
    quota = ResourceQuota(metadata=ObjectMeta(name=NAME, namespace=name), spec=ResourceQuotaSpec(hard={"pods": pods}))
    client.apply(quota, field_manager="quotas.example.org", force=True)
    return "applied"


def _find(client: Client, namespace: str) -> ResourceQuota | None:
    try:
        return client.get(ResourceQuota, NAME, namespace=namespace)
    except ApiError as error:
        if error.status.code == 404:
            return None
        raise


def run(client: Client) -> None:
    """Reconcile every namespace now, and again whenever it changes."""
    for _, namespace in client.watch(Namespace):
        reconcile(client, namespace.metadata.name)


if __name__ == "__main__":
    run(Client())
