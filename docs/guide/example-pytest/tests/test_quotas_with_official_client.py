"""What users of the cluster notice of the operator: the API server refuses what is too much."""

import kubernetes
import pytest
import quotas


def pod(name):
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]}}


def wait_until_counted(official, namespace):
    """Wait for kube-controller-manager to count what the quota is about; until then every pod is refused."""
    watch = kubernetes.watch.Watch()
    for event in watch.stream(official.list_namespaced_resource_quota, namespace, timeout_seconds=60):
        if event["object"].status.used:
            return
    pytest.fail("the quota was not counted")


def test_no_more_pods_than_the_quota_allows(client, official, kubewright_namespace):
    patch = {"metadata": {"labels": {quotas.TEAM: "red"}, "annotations": {quotas.PODS: "1"}}}
    official.patch_namespace(kubewright_namespace, patch)
    quotas.reconcile(client, kubewright_namespace)
    wait_until_counted(official, kubewright_namespace)

    official.create_namespaced_pod(kubewright_namespace, pod("first"))
    with pytest.raises(kubernetes.client.ApiException) as refused:
        official.create_namespaced_pod(kubewright_namespace, pod("second"))
    assert refused.value.status == 403
    assert "exceeded quota: team-quota" in refused.value.body
