"""A fresh namespace for each test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from kubewright.base.clock import SystemClock
from kubewright.base.errors import NotFound
from kubewright.base.events import SilentReporter
from kubewright.base.waiting import PollingWaiter
from kubewright.kube.client import KubeClient
from kubewright.kube.resources import named
from kubewright.local.cluster import LocalCluster


@contextmanager
def fresh(cluster: LocalCluster, *, test: str) -> Iterator[str]:
    """Make a namespace named after a test, wait until pods can be made in it, and delete it afterwards."""
    client = cluster.client()
    try:
        prefix = re.sub(r"[^a-z0-9]+", "-", test.lower()).strip("-")[:40].strip("-") or "test"
        made = client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": f"{prefix}-"}})
        name = str(made["metadata"]["name"])
        waiter = PollingWaiter(clock=SystemClock(), reporter=SilentReporter())
        waiter.until(lambda: _account(client, name), within=30, saying="the default service account", every=0.01, at_most=0.1)
        yield name
        client.delete(named("Namespace"), name, propagation="Background")
    finally:
        client.close()


def _account(client: KubeClient, namespace: str) -> str | None:
    try:
        client.get(named("ServiceAccount"), "default", namespace)
    except NotFound:
        return "it is not there yet"
    return None
