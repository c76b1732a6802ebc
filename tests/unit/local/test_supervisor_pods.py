"""The state of components in the form of container statuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from supervisor_kit import pod

from kubewright.base.records import replace
from kubewright.local.daemon import static_pods
from kubewright.local.supervisor.decoding import read_pod
from kubewright.local.supervisor.state import ComponentPhase, ComponentState, LastExit, NodeAddress

NODE = NodeAddress(name="Node1", ip="127.0.0.11")
SEEN = datetime(2026, 1, 2, 3, 4, 5, 678900, UTC)
STARTED = SEEN + timedelta(seconds=1)
ETCD = read_pod(pod("etcd", container={"image": "registry.k8s.io/etcd:3.6.8-0"}) | {"status": {}}, source="etcd.yaml", node=NODE.name)
READY = ComponentState(
    name="etcd",
    pod="etcd",
    container="etcd",
    phase=ComponentPhase.READY,
    pid=42,
    started_at=STARTED,
)
EXIT = LastExit(code=1, signal=None, started_at=SEEN, finished_at=STARTED, reason="exit code 1", last_lines=("bye",))


def test_the_status_of_a_ready_container() -> None:
    found = static_pods.container_statuses(ETCD, [READY, replace(READY, pod="other")])
    assert found == [
        {
            "name": "etcd",
            "image": "registry.k8s.io/etcd:3.6.8-0",
            "imageID": "",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-02T03:04:06Z"}},
            "lastState": {},
            "containerID": f"process://42-{int(STARTED.timestamp())}",
        }
    ]


@pytest.mark.parametrize(
    ("state", "container"),
    [
        (None, {"waiting": {"reason": "ContainerCreating"}}),
        (replace(READY, phase=ComponentPhase.RUNNING), {"running": {"startedAt": "2026-01-02T03:04:06Z"}}),
        (replace(READY, phase=ComponentPhase.UNHEALTHY), {"running": {"startedAt": "2026-01-02T03:04:06Z"}}),
        (
            replace(READY, phase=ComponentPhase.WAITING, started_at=None, pid=None, reason="etcd.yaml: no"),
            {"waiting": {"reason": "ContainerCreating", "message": "etcd.yaml: no"}},
        ),
        (
            replace(READY, phase=ComponentPhase.CRASH_LOOP, started_at=None, pid=None, reason="exit code 1", last_exit=EXIT),
            {"waiting": {"reason": "CrashLoopBackOff", "message": "exit code 1"}},
        ),
    ],
)
def test_the_status_of_a_container_that_is_not_ready(state: ComponentState | None, container: dict) -> None:
    found = static_pods.container_statuses(ETCD, [state] if state is not None else [])
    assert len(found) == 1
    assert (found[0]["state"], found[0]["ready"]) == (container, False)


@pytest.mark.parametrize(
    ("last", "code", "reason"),
    [
        (EXIT, 1, "Error"),
        (replace(EXIT, code=0), 0, "Completed"),
        (replace(EXIT, code=None, signal=9), 137, "Error"),
        (replace(EXIT, code=None, signal=None), 137, "Error"),
    ],
)
def test_the_end_of_the_previous_process_is_in_the_status(last: LastExit, code: int, reason: str) -> None:
    found = static_pods.container_statuses(ETCD, [replace(READY, restarts=2, last_exit=last)])[0]
    assert found["restartCount"] == 2
    ended = found["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (code, reason, "exit code 1\nbye")


def test_memory_is_not_part_of_a_status() -> None:
    assert static_pods.container_statuses(ETCD, [READY]) == static_pods.container_statuses(ETCD, [replace(READY, rss_bytes=5)])
