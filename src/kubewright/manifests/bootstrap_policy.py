"""The rights of kube-controller-manager and kube-scheduler, as an API server makes them for itself when it starts with an empty etcd.

The table is `bootstrap_policy.jsonl` beside this file: one object a line, without the label and the annotation that all of them have.
tests/controlplane/policy_collecting.py writes it from a real API server, and tests/controlplane/test_bootstrap_policy_real.py holds it to one.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Final

from kubewright.base.level import KUBERNETES
from kubewright.manifests.rbac import API_VERSION

TABLE: Final = Path(__file__).with_name("bootstrap_policy.jsonl")
USERS: Final = ("system:kube-controller-manager", "system:kube-scheduler")
VERSION: Final = KUBERNETES
"""The release whose table it is. An API server never takes away what a role of these has too much, so it is for no other release."""

LABEL: Final = ("kubernetes.io/bootstrapping", "rbac-defaults")
ANNOTATION: Final = ("rbac.authorization.kubernetes.io/autoupdate", "true")


@functools.cache
def text() -> str:
    """Return the table. It is read once: `--rootfs` does so before the package is out of reach."""
    return TABLE.read_text(encoding="utf-8")


def objects() -> list[dict[str, Any]]:
    """Return the bindings that name one of `USERS` and the roles that they bind, to be created by somebody of system:masters."""
    return [_whole(json.loads(line)) for line in text().splitlines()]


def _whole(row: dict[str, Any]) -> dict[str, Any]:
    metadata = {**row["metadata"], "labels": dict([LABEL]), "annotations": dict([ANNOTATION])}
    return {"apiVersion": API_VERSION, **row, "metadata": metadata}
