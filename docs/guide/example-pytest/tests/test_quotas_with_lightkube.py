"""Drive the operator by hand: change a namespace, reconcile, look."""

import pytest
import quotas
from lightkube.resources.core_v1 import Namespace, ResourceQuota


@pytest.fixture
def team(client, kubewright_namespace):
    """A fresh namespace of a team that may have three pods."""
    patch = {"metadata": {"labels": {quotas.TEAM: "blue"}, "annotations": {quotas.PODS: "3"}}}
    client.patch(Namespace, kubewright_namespace, patch)
    return kubewright_namespace


def hard(client, namespace):
    return [quota.spec.hard for quota in client.list(ResourceQuota, namespace=namespace)]


def test_a_namespace_without_a_team_is_left_alone(client, kubewright_namespace):
    assert quotas.reconcile(client, kubewright_namespace) == "none"
    assert hard(client, kubewright_namespace) == []


def test_a_team_gets_its_quota_once(client, team):
    assert quotas.reconcile(client, team) == "applied"
    assert quotas.reconcile(client, team) == "none"
    assert hard(client, team) == [{"pods": "3"}]


def test_another_size_is_applied_to_the_same_quota(client, team):
    quotas.reconcile(client, team)
    client.patch(Namespace, team, {"metadata": {"annotations": {quotas.PODS: "5"}}})
    assert quotas.reconcile(client, team) == "applied"
    assert hard(client, team) == [{"pods": "5"}]


def test_the_quota_goes_with_the_label(client, team):
    quotas.reconcile(client, team)
    client.patch(Namespace, team, {"metadata": {"labels": {quotas.TEAM: None}}})
    assert quotas.reconcile(client, team) == "removed"
    assert hard(client, team) == []
