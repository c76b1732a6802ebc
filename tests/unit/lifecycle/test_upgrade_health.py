"""The checks of `upgrade plan` with a misbehaving cluster; tests/controlplane compares them with kubeadm."""

from __future__ import annotations

from pathlib import PurePosixPath
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.apis.machine import Layout
from kubewright.base.clock import FakeClock
from kubewright.base.errors import Forbidden, NotFound, Unreachable
from kubewright.base.events import RecordingReporter
from kubewright.base.wait import PollingWaiter
from kubewright.lifecycle.upgrade.planning.health import Health
from kubewright.lifecycle.upgrade.planning.versions import CONTROL_PLANE
from kubewright.manifests import corefile
from odd_objects import ODD, paths, variants

PENDING = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]}
UNSCHEDULED = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}],
}


class Cluster:
    """A cluster in memory. `pods` are the Job's, `problems` the errors of the first requests, `refuses` that of every creation.

    `status` is that of the Job.
    """

    def __init__(self, *, nodes=(), pods=(), problems=(), refuses=None, status=None) -> None:
        self.status = status
        self.nodes, self.pods, self.problems, self.refuses = list(nodes), list(pods), list(problems), refuses
        self.made: list[dict] = []
        self.asked: list[str] = []

    def list(self, resource, namespace=None, *, label_selector="", field_selector=""):
        self.asked.append(field_selector or label_selector)
        if self.problems:
            raise self.problems.pop(0)
        if resource.kind == "Pod":
            return [{"status": status} for status in self.pods]
        return self.nodes if field_selector else []

    def get(self, resource, name, namespace=None):
        if resource.kind != "Job":
            raise NotFound("no", code=404)
        return {"metadata": {"name": name}, "status": self.status}

    def create(self, obj):
        if self.refuses:
            raise self.refuses
        self.made.append(obj)
        return obj


def checked(cluster: Cluster, *, ignored=(), repository="registry.example"):
    clock = FakeClock()
    manifests = {PurePosixPath(f"/etc/kubernetes/manifests/{name}.yaml"): b"x" for name in CONTROL_PLANE}
    host = SimpleNamespace(layout=Layout(), read=manifests.get)
    waiter = PollingWaiter(clock=clock, reporter=RecordingReporter())
    health = Health(api=cluster, host=host, clock=clock, waiter=waiter, ignored=ignored)
    [job, *others] = health.check({"imageRepository": repository}).results
    assert [(one.name, one.findings) for one in others] == [("ControlPlaneNodesReady", []), ("StaticPodManifest", [])]
    assert job.name == "CreateJob"
    return job, clock.monotonic()


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ([], "it has no pod yet"),
        ([PENDING], "its pod is Pending (ImagePullBackOff: no such image)"),
        ([UNSCHEDULED], "(Unschedulable: no room)"),
    ],
)
def test_a_job_that_does_not_end_fails_after_a_minute(pods, why):
    cluster = Cluster(nodes=[{}], pods=pods)
    job, took = checked(cluster)
    assert 60 <= took < 62
    [found] = job.errors
    assert "did not complete in 60 s" in found.text
    assert why in found.text
    [made] = cluster.made
    assert made["spec"]["template"]["spec"]["containers"][0]["image"].startswith("registry.example/pause:")


def test_malformed_states_of_pods_count_as_missing():
    status = {**PENDING, **UNSCHEDULED}
    pods = [pod["status"] for pod in variants({"status": status})]
    job, _ = checked(Cluster(nodes=[{}], pods=pods))
    [found] = job.errors
    assert found.text.count("its pod is ") == len(pods) == (len(paths(status))) * len(ODD)


@pytest.mark.parametrize(("conditions", "completes"), [(None, False), ([], False), ([None, {"type": "Complete", "status": "True"}], True)])
def test_malformed_conditions_of_the_job_count_as_missing(conditions, completes):
    job, _ = checked(Cluster(nodes=[{}], status={"conditions": conditions}))
    assert len(job.errors) == (not completes)


def test_no_job_is_created_without_a_schedulable_node():
    cluster = Cluster()
    job, _ = checked(cluster)
    assert (job.errors, len(job.warnings), cluster.made) == ([], 1, [])
    assert cluster.asked[0] == "spec.unschedulable=false"


def test_temporary_errors_of_the_server_are_retried_and_refusals_are_not():
    job, took = checked(Cluster(nodes=[{}], problems=[Unreachable("gone"), Unreachable("gone")], refuses=Forbidden("no", code=403)))
    [found] = job.errors
    assert "accepts no Job: no" in found.text
    assert 0 < took < 1


def test_an_ignored_check_is_reported_as_a_warning():
    job, _ = checked(Cluster(nodes=[{}], refuses=Forbidden("no", code=403)), ignored=["createjob"])
    assert (job.errors, len(job.warnings)) == ([], 1)


@given(st.text(alphabet='ab{}"\\ \n\r#\t\ufeff', max_size=40))
def test_every_corefile_is_read(text):
    for server in corefile.parse(text):
        assert [*server.zones]
        assert all(isinstance(option.name, str) for plugin in server.plugins for option in plugin.options)
    list(corefile.unknown(text, "1.13.1", "1.14.2"))
    corefile.obstacle(text, "1.3.1")


@given(st.sampled_from(corefile.RELEASES), st.sampled_from(corefile.RELEASES))
def test_only_upward_migrations_exist(installed, target):
    assert bool(corefile.no_way(installed, target)) == (corefile.RELEASES.index(installed) > corefile.RELEASES.index(target))
