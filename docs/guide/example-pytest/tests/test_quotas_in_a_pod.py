"""The operator's own image runs as a pod of a cluster of machines: `docker build --tag quotas:dev .` first."""

from collections.abc import Callable

import pytest
import quotas
from lightkube import Client
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.models.rbac_v1 import RoleRef, Subject
from lightkube.resources.core_v1 import Namespace, Pod, ResourceQuota, ServiceAccount
from lightkube.resources.rbac_authorization_v1 import ClusterRoleBinding


@pytest.mark.kubewright(machines=True)
def test_the_operator_gives_a_team_its_quota(
    client: Client, kubewright_namespace: str, kubewright_load: Callable[[str], list[str]]
) -> None:
    kubewright_load("quotas:dev")
    name = "quotas"
    client.create(ServiceAccount(metadata=ObjectMeta(name=name, namespace=kubewright_namespace)))
    subject = Subject(kind="ServiceAccount", name=name, namespace=kubewright_namespace)
    role = RoleRef(apiGroup="rbac.authorization.k8s.io", kind="ClusterRole", name="cluster-admin")
    client.create(ClusterRoleBinding(metadata=ObjectMeta(name=kubewright_namespace), roleRef=role, subjects=[subject]))
    operator = Container(name=name, image="docker.io/library/quotas:dev")
    spec = PodSpec(serviceAccountName=name, containers=[operator])
    client.create(Pod(metadata=ObjectMeta(name=name, namespace=kubewright_namespace), spec=spec))

    client.patch(Namespace, kubewright_namespace, {"metadata": {"labels": {quotas.TEAM: "green"}}})
    for _, quota in client.watch(ResourceQuota, namespace=kubewright_namespace, server_timeout=300):
        if quota.metadata.name == quotas.NAME:
            assert quota.spec.hard == {"pods": quotas.DEFAULT}
            return
    pytest.fail("the operator has made no quota")
