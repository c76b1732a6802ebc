"""What the API server's audit log says about the nodes of a cluster: each has its own credentials."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_kit import Bench, bench

WORKERS = 3
CREDENTIAL = "authentication.kubernetes.io/credential-id"
CONFIG = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
apiServer:
  extraArgs:
  - {{name: audit-policy-file, value: {directory}/policy.yaml}}
  - {{name: audit-log-path, value: {directory}/audit.log}}
  extraVolumes:
  - {{name: policy, hostPath: {directory}/policy.yaml, mountPath: {directory}/policy.yaml, readOnly: true, pathType: File}}
  - {{name: audit, hostPath: {directory}, mountPath: {directory}, pathType: Directory}}
"""
POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}


@pytest.fixture(scope="module")
def home() -> Iterator[Bench]:
    yield from bench()


@pytest.fixture(scope="module")
def events(home: Bench) -> list[dict[str, Any]]:
    directory = home.root / "audit"
    directory.mkdir()
    (directory / "policy.yaml").write_text(json.dumps(POLICY))
    home.up(nodes=WORKERS, config=CONFIG.format(directory=directory))
    text = Path(directory / "audit.log").read_text()
    return [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]  # the last line may be incomplete


def test_a_cluster_with_n_workers_shows_n_plus_one_node_credentials(events: list[dict[str, Any]]) -> None:
    users = [event["user"] for event in events if event["user"].get("username", "").startswith("system:node:")]
    seen = {(user["username"], credential) for user in users for credential in user.get("extra", {}).get(CREDENTIAL, ["none"])}
    assert len({credential for _, credential in seen}) == WORKERS + 1
    assert len(seen) == WORKERS + 1, "no credential serves two nodes, and no node has two"
    assert {name for name, _ in seen} == {f"system:node:one-{part}" for part in ("control-plane", "worker-1", "worker-2", "worker-3")}
    assert all(credential.startswith("X509SHA256=") for _, credential in seen)


def test_a_node_requests_only_its_own_objects(events: list[dict[str, Any]]) -> None:
    asked = [event for event in events if event["user"].get("username", "").startswith("system:node:")]
    assert len(asked) >= 5 * (WORKERS + 1)
    refused = Counter((event["verb"], event["requestURI"]) for event in asked if event["responseStatus"]["code"] == 403)
    assert refused == Counter()
    named = [
        event for event in asked if event.get("objectRef", {}).get("resource") in {"nodes", "leases"} and event["objectRef"].get("name")
    ]
    assert len(named) >= 2 * (WORKERS + 1)
    assert [
        event["requestURI"] for event in named if event["objectRef"]["name"] != event["user"]["username"].removeprefix("system:node:")
    ] == []


def test_bootstrap_tokens_only_request_certificates(events: list[dict[str, Any]]) -> None:
    asked = [event for event in events if event["user"].get("username", "").startswith("system:bootstrap:")]
    assert len(asked) >= WORKERS
    resources = {event["objectRef"]["resource"] for event in asked if "objectRef" in event}
    # a node whose request takes long asks what it may do, to explain what its request waits for
    assert resources - {"selfsubjectaccessreviews"} == {"certificatesigningrequests"}
