"""The table of the components' permissions compared with a real API server."""

from __future__ import annotations

import json

import policy_collecting

from kubewright.kube.client import KubeClient
from kubewright.manifests import rbac


def test_the_table_equals_the_roles_of_the_api_server(admin: KubeClient) -> None:
    made = policy_collecting.collect(admin)
    known = [json.loads(line) for line in rbac.bootstrap_policy_text().splitlines()]
    assert len(made) == 12
    assert [row for row in known if row not in made] == []
    assert [row for row in made if row not in known] == []
