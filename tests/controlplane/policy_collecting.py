"""Writes the table of src/kubewright/manifests/rbac.py from a real API server: `PYTHONPATH=tests/controlplane python -m policy_collecting`."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from server_kit import api_server

from kubewright.kube.client import KubeClient
from kubewright.kube.resources import named
from kubewright.manifests import rbac
from kubewright.manifests.rbac import BOOTSTRAP_ANNOTATION, BOOTSTRAP_LABEL, BOOTSTRAP_USERS

KINDS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def collect(client: KubeClient) -> list[dict[str, Any]]:
    """Return the bindings of the components and the roles that they bind, as rows of the table."""
    key, value = BOOTSTRAP_LABEL
    every = [
        one | {"kind": kind} for kind in KINDS for one in client.list(named(kind), label_selector=f"{key}={value}")
    ]  # the server lists them by name
    bindings = [
        one for one in every if any(subject["kind"] == "User" and subject["name"] in BOOTSTRAP_USERS for subject in one.get("subjects", ()))
    ]
    roles = {(one["roleRef"]["kind"], one["roleRef"]["name"]) for one in bindings}
    return [_row(one) for one in every if (one["kind"], one["metadata"]["name"]) in roles or one in bindings]


def _row(one: dict[str, Any]) -> dict[str, Any]:
    given = one["metadata"]
    assert given["annotations"] == dict([BOOTSTRAP_ANNOTATION])
    assert given["labels"] == dict([BOOTSTRAP_LABEL])
    metadata = {key: given[key] for key in ("namespace", "name") if key in given}
    rest = {key: value for key, value in sorted(one.items()) if key not in {"apiVersion", "kind", "metadata"} and value is not None}
    return {"kind": one["kind"], "metadata": metadata} | rest


def main() -> None:
    """Write the table."""
    with tempfile.TemporaryDirectory() as place, api_server(Path(place)) as server:
        rows = collect(KubeClient(server.access(), timeout=600))
    rbac.BOOTSTRAP_POLICY.write_text("".join(f"{json.dumps(row, separators=(',', ':'))}\n" for row in rows))


if __name__ == "__main__":
    main()
