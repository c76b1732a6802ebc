"""etcd loses its quorum while a control plane joins: the join ends in time, reports it, and works later."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from cluster_kit import TOKEN, configuration
from machine_kit import CONFIG, ENVIRONMENT, SHARED, argv, eventually, join_command, kubectl, kubewright, signed, write
from test_faults_joining import Cluster, complaint, join
from testbed.bed import Bed

from kubewright.machines.machine import Ended, Machine
from kubewright.machines.parts import Parts


@pytest.fixture(scope="module")
def cluster(parts: Parts) -> Iterator[Cluster]:
    """Two control planes, both of which etcd needs for its quorum, and a machine that is to be the third."""
    with Bed("one", "two", "three", bed="faults-quorum", parts=parts, shared=SHARED) as bed:
        one = bed["one"]
        write(one, CONFIG, configuration(one))
        kubewright(one, "init", "--config", CONFIG, "--upload-certs")
        signed(one, TOKEN)
        made = Cluster(bed, join_command(one)[-1])
        join(made.prepared("two", control_plane=True))
        yield made


def test_etcd_losing_its_quorum_while_a_member_learns_is_reported(cluster: Cluster) -> None:
    two, three = cluster.bed["two"], cluster.prepared("three", etcd="1m", control_plane=True)
    said = complaint(_cut_off(two, three, "[etcd] Letting the new etcd member"))
    assert "etcd" in said
    assert "make sure that most of the other control planes run" in said
    two.boot()
    two.ready()
    eventually(lambda: bool(kubectl(cluster.one, "get", "nodes").get("items")), "the API server to answer again")
    join(cluster.prepared("three", control_plane=True))
    eventually(lambda: cluster.ready("three"), "the Node to be Ready")


def _cut_off(two: Machine, three: Machine, moment: str) -> Ended:
    """Let `three` join, and cut the power of `two` when the output contains `moment`."""
    running = three.start(*argv("join", "--config", CONFIG), env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout is not None
    lines = iter(running.stdout.readline, b"")
    said = next((line for line in lines if moment in line.decode()), None)
    two.cut_power()
    out, err = running.communicate(timeout=900)
    assert said is not None, (moment, err.decode())
    return Ended(code=running.returncode, out=out.decode(), err=err.decode())
