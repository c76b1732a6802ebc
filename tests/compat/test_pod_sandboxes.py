"""Pods of a real containerd: listed, read from, stopped and removed through the Host seam, without leftovers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from containerd_kit import Containerd, containerd, mounts_below, programs
from registry_kit import Registry, serving
from sandbox_kit import run_container, run_pod, tiny_program

from busy import HANGS
from kubewright.base.change import Action
from kubewright.base.clock import SystemClock
from kubewright.host.cri.images_and_sandboxes import remove_sandboxes
from kubewright.host.cri.runtime import CRIRuntime
from kubewright.host.states import ContainerState

CGROUP = f"/kubewright-test-{os.getpid()}"


@pytest.fixture(scope="module")
def image() -> Iterator[Registry]:
    registry = Registry()
    registry.add("x/pause", "1", {"pause": tiny_program("hello\nagain\n")}, entrypoint=("/pause",))
    with serving(registry):
        yield registry


@pytest.fixture(scope="module")
def running(image) -> Iterator[Containerd]:
    programs("containerd", "containerd-shim-runc-v2", "runc")
    with containerd(sandbox=f"{image.address}/x/pause:1") as found:
        found.allow_http(image.address)
        place = found.place
        yield found
        with closing(CRIRuntime(found.endpoint, timeout=HANGS)) as runtime:
            remove_sandboxes(runtime, clock=SystemClock())
    assert mounts_below(place) == []
    for directory in Path("/sys/fs/cgroup").glob(f"*{CGROUP}"):
        directory.rmdir()


def test_pods_are_listed_and_removed_with_their_containers(running, image):
    runtime = CRIRuntime(running.endpoint, timeout=HANGS)
    assert runtime.sandboxes() == []
    assert list(remove_sandboxes(runtime, clock=SystemClock())) == []
    logs = str(running.place / "logs")
    first, config = run_pod(running.endpoint, name="etcd-node1", logs=logs, cgroup=CGROUP)
    second, _ = run_pod(running.endpoint, name="web", logs=logs, cgroup=CGROUP)
    run_container(running.endpoint, first, config, name="etcd", image=f"{image.address}/x/pause:1", log="etcd/0.log")
    assert [(one.id, one.name, one.namespace, one.ready) for one in runtime.sandboxes()] == [
        (first, "etcd-node1", "kube-system", True),
        (second, "web", "kube-system", True),
    ]
    assert _soon(lambda: runtime.last_lines("etcd", count=5) == ["hello", "again"])
    assert runtime.last_lines("etcd", count=1) == ["again"]
    assert runtime.last_lines("kube-apiserver", count=5) == []
    runtime.stop_sandbox(runtime.sandboxes()[0])
    assert _soon(lambda: [one.ready for one in runtime.sandboxes()] == [False, True])
    assert _soon(lambda: [one.state for one in runtime.containers(namespace="kube-system")] == [ContainerState.EXITED])
    removed = list(remove_sandboxes(runtime, clock=SystemClock()))
    assert [(one.change.target, one.change.action) for one in removed] == [
        ("pod kube-system/etcd-node1", Action.DELETE),
        ("pod kube-system/web", Action.DELETE),
    ]
    assert runtime.sandboxes() == []
    runtime.stop_sandbox(removed[0].sandbox)  # a missing one is no error
    assert runtime.remove_sandbox(removed[0].sandbox).action is Action.DELETE
    runtime.close()


def _soon(look):
    """Logs are written by another process, and containerd learns of an exit by an event, which may follow its answer."""
    for _ in range(6000):
        if found := look():
            return found
        time.sleep(0.05)
    return look()
