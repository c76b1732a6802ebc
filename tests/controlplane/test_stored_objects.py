"""The versions in which a real kube-apiserver stores kinds, as `upgrade rollback` expects them."""

from __future__ import annotations

import base64
import hashlib
import json
from contextlib import closing
from pathlib import Path

from server_kit import api_server

from kubewright.base.versions import Version
from kubewright.kube.client import KubeClient
from kubewright.lifecycle.upgrade.stored_objects import STORED, unreadable

EARLIER, LATER = Version.parse("v1.35.4"), Version.parse("v1.36.3")
ENABLED = ("--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true")


def test_objects_that_the_release_before_cannot_read_are_found(tmp_path: Path) -> None:
    [(version, plural)] = STORED[LATER.minor]
    with api_server(tmp_path, *ENABLED) as server, closing(KubeClient(server.access(), timeout=600)) as api:
        served = json.loads(api.raw("GET", f"/apis/{version}").body)["resources"]
        [kind] = [one for one in served if one["name"] == plural]
        stored = hashlib.sha256(f"{version}/{kind['kind']}".encode()).digest()[:8]
        assert kind["storageVersionHash"] == base64.b64encode(stored).decode()  # kube-apiserver: endpoints/discovery/storageversionhash.go
        assert list(unreadable(api, EARLIER, later=LATER)) == []
        groups = [{"name": "x", "schedulingPolicy": {"basic": {}}}]
        body = {"apiVersion": version, "kind": kind["kind"], "metadata": {"name": "x"}, "spec": {"podGroupTemplates": groups}}
        headers = {"Content-Type": "application/json"}
        made = api.raw("POST", f"/apis/{version}/namespaces/default/{plural}", body=json.dumps(body).encode(), headers=headers)
        assert made.status == 201, made.body
        assert list(unreadable(api, EARLIER, later=LATER)) == [f"workloads.scheduling.k8s.io are stored as {version}"]
        assert list(unreadable(api, LATER, later=LATER)) == []


def test_a_feature_that_is_not_enabled_has_no_objects(admin: KubeClient) -> None:
    assert list(unreadable(admin, EARLIER, later=LATER)) == []
