"""Clusters of whole machines whose commands and machines are killed at any moment: the next `up` finishes, and `down` leaves nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from subprocess import DEVNULL
from typing import Any

import pytest
from kill_kit import SEED
from whole_kit import Cluster, clusters, states

from kubewright.local import record
from kubewright.local.whole import members
from kubewright.machines.parts import Parts

MOMENTS = (0.4, 0.6, 0.8, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24)
"""Seconds after which a start is interrupted: from before its first change until it is complete, on hosts of any speed."""


@pytest.fixture
def cluster(parts: Parts) -> Iterator[Cluster]:
    with clusters("k") as (made,):
        yield made


def test_killed_commands_and_machines_are_survived(cluster: Cluster) -> None:
    choice = random.Random(SEED)
    begun = f"{cluster.name}-control-plane: {choice.choice(['certs', 'kubeconfig', 'etcd', 'control-plane', 'upload-config', 'addon'])}"
    assert cluster.killed_up(lambda event: str(event.get("phase", "")).startswith(begun), "--machines", "--nodes", "1"), begun

    # an interrupted command leaves no machine; what was asked for is in the record
    assert cluster.killed_up(joins("worker-1"), by=signal.SIGTERM)
    assert [trace for trace in cluster.traces() if not trace.startswith(str(cluster.paths.root))] == []

    made = cluster.up()
    assert (made["state"], states(made)) == ("Ready", {"control-plane": "Running", "worker-1": "Running"})

    (cluster.state / "seen").mkdir()
    assert cluster.killed_up(joins("worker-2"), "--nodes", "2", "--mount", f"{cluster.state}/seen:/mnt/killed")
    mounted = {"control-plane", "worker-1", "worker-2"}
    assert {name for name in mounted if cluster.inside(name, "mountpoint", "-q", "/mnt/killed", check=False).returncode == 0} == mounted
    resumed = cluster.up()
    assert resumed["nodes"]["ready"] == 3
    gone = {change["target"] for change in resumed["changes"] if change["action"] == "delete"}
    assert {f"mount /mnt/killed of {cluster.name}-{name}" for name in mounted} <= gone
    assert {cluster.inside(name, "mountpoint", "-q", "/mnt/killed", check=False).returncode for name in mounted} == {32}

    # the control plane loses power while a machine joins, which is not waited for; and so does this machine, when it joins again
    for lost in ("control-plane", "worker-3"):
        assert not cluster.killed_up(partial(lose_power, cluster, lost), "--nodes", "3")
        assert cluster.states()[lost] == "Stopped"
    finished = cluster.up()
    assert (finished["state"], finished["nodes"]["ready"]) == ("Ready", 4)

    ending = cluster.start("down", "--name", cluster.name)
    time.sleep(choice.uniform(0.1, 2))  # any moment will do
    ending.kill()
    assert ending.wait() in {0, -signal.SIGKILL}
    cluster.down()
    assert cluster.traces() == []


def test_ctrl_c_at_any_moment_of_a_start_leaves_nothing(cluster: Cluster) -> None:
    for seconds in MOMENTS:
        words = ("up", "--name", cluster.name, "--wait", "20m", "--machines", "--nodes", "1")
        process = cluster.start(*words, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait() in {0, 130, -signal.SIGINT}, seconds
        found = record.load(cluster.paths.record)
        is_complete = found is not None and found.made  # it was interrupted while it printed its result, or not at all
        left = [trace for trace in cluster.traces() if not trace.startswith(str(cluster.paths.root))]
        assert bool(left) == is_complete, seconds
        cluster.down()
        assert (cluster.traces(), list(cluster.state.iterdir())) == ([], []), seconds


def lose_power(cluster: Cluster, machine: str, event: Mapping[str, Any]) -> bool:
    """Cut the power of a machine when the third worker joins; the command itself is not killed."""
    if joins("worker-3")(event):
        members.machine_of_group(cluster.paths, f"{cluster.name}-{machine}").cut_power()
    return False


def joins(machine: str) -> Callable[[Mapping[str, Any]], bool]:
    """Return a function that recognizes the event of a machine that begins to join."""
    return lambda event: str(event.get("subject", "")).endswith(f"-{machine}") and event.get("state") == "Joining"
