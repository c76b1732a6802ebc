"""A fresh namespace for each test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kubewright.base.clock import SystemClock
from kubewright.base.errors import APIError, NotFound
from kubewright.base.events import SilentReporter
from kubewright.base.waiting import PollingWaiter
from kubewright.kube.client import KubeClient
from kubewright.kube.resources import named


@contextmanager
def fresh(client: KubeClient, *, test: str) -> Iterator[str]:
    """Make a namespace named after a test, wait until pods can be made in it, and delete it afterwards, without waiting."""
    made = client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": f"{prefix(test)}-"}})
    name = str(made["metadata"]["name"])
    try:
        waiter = PollingWaiter(clock=SystemClock(), reporter=SilentReporter())
        waiter.until(lambda: _account(client, name), within=30, saying="the default service account", every=0.01, at_most=0.1)
        yield name
    finally:
        with suppress(APIError):  # the test may have stopped the API server or deleted the namespace; it all goes with the cluster
            client.delete(named("Namespace"), name, propagation="Background")


def prefix(test: str) -> str:
    """Turn the name of a test into the beginning of a namespace's name (RFC 1123 label), which the API server then completes."""
    return re.sub(r"[^a-z0-9]+", "-", test.lower()).strip("-")[:40].strip("-") or "test"


def _account(client: KubeClient, namespace: str) -> str | None:
    try:
        client.get(named("ServiceAccount"), "default", namespace)
    except NotFound:
        return "it is not there yet"
    return None
