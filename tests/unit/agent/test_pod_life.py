from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from agent_values import pod

from kubewright.agent.pods import lifecycle, status
from kubewright.agent.pods.lifecycle import Delete, Nothing, SimulationRules, Wait, Write
from kubewright.base.clock import rfc3339

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOST = ("127.0.0.21",)
OWN = ("10.128.1.2",)


def decide(subject, *, after=0.0, addresses=OWN, rules=None):
    return lifecycle.decide(subject, now=NOW + timedelta(seconds=after), host=HOST, addresses=addresses, rules=rules or SimulationRules())


def after(subject, step):
    """The pod as the API server returns it after the step's patch."""
    assert isinstance(step, Write)
    new = copy.deepcopy(subject)
    conditions = {row["type"]: row for row in new["status"].get("conditions", [])}
    for row in step.status["conditions"]:
        merged = {**conditions.get(row["type"], {}), **row}
        conditions[row["type"]] = {key: value for key, value in merged.items() if value is not None or key == "lastProbeTime"}
    new["status"] = {**new["status"], **step.status, "conditions": list(conditions.values())}
    return new


def deleting(subject, *, grace=30, asked=NOW):
    new = copy.deepcopy(subject)
    new["metadata"]["deletionTimestamp"] = rfc3339(asked + timedelta(seconds=grace))
    new["metadata"]["deletionGracePeriodSeconds"] = grace
    return new


def conditions(subject):
    return {row["type"]: (row["status"], row.get("reason")) for row in subject["status"]["conditions"]}


def running(**changes: Any):
    subject = pod(**changes)
    return after(subject, decide(subject))


def test_a_scheduled_pod_runs_and_is_ready():
    found = running()
    assert found["status"]["phase"] == "Running"
    assert (found["status"]["podIP"], found["status"]["podIPs"]) == ("10.128.1.2", [{"ip": "10.128.1.2"}])
    assert (found["status"]["hostIP"], found["status"]["hostIPs"]) == ("127.0.0.21", [{"ip": "127.0.0.21"}])
    assert found["status"]["startTime"] == "2026-01-02T03:04:05Z"
    assert found["status"]["observedGeneration"] == 1
    assert conditions(found) == {
        "PodReadyToStartContainers": ("True", None),
        "Initialized": ("True", None),
        "Ready": ("True", None),
        "ContainersReady": ("True", None),
        "PodScheduled": ("True", None),
    }
    (container,) = found["status"]["containerStatuses"]
    assert container == {
        "name": "app",
        "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}},
        "lastState": {},
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": "example.org/app:1",
        "imageID": "",
        "containerID": container["containerID"],
    }
    assert container["containerID"].startswith("kubewright://")


def test_a_running_pod_is_not_changed_even_by_a_restarted_agent():
    assert decide(running(), after=3600) == Nothing()


def test_a_pod_without_an_address_stays_pending():
    assert decide(pod(), addresses=()) == Nothing()


def test_mirror_pods_are_not_changed():
    assert decide(pod(annotations={"kubernetes.io/config.mirror": "hash"})) == Nothing()


def test_conditions_of_the_scheduler_keep_their_transition_time():
    row = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    subject = pod(status={"conditions": [row]})
    written = [row for row in decide(subject).status["conditions"] if row["type"] == "PodScheduled"]
    assert [row["lastTransitionTime"] for row in written] == ["2026-01-01T00:00:00Z"]


def test_a_pod_that_the_lifecycle_controller_marked_not_ready_becomes_ready_again():
    subject = running()
    for row in subject["status"]["conditions"]:
        if row["type"] == "Ready":
            row.update(status="False", reason="NodeNotReady")
    again = after(subject, decide(subject, after=60))
    assert conditions(again)["Ready"] == ("True", None)
    assert [row["lastTransitionTime"] for row in again["status"]["conditions"] if row["type"] == "Ready"] == ["2026-01-02T03:05:05Z"]
    assert decide(again, after=120) == Nothing()


def test_init_containers_are_done_and_sidecars_run():
    found = running(spec={"initContainers": [{"name": "once"}, {"name": "side", "restartPolicy": "Always"}]})
    once, side = found["status"]["initContainerStatuses"]
    assert (once["state"]["terminated"]["reason"], once["state"]["terminated"]["exitCode"], once["ready"]) == ("Completed", 0, True)
    assert "running" in side["state"]
    assert decide(found, after=5) == Nothing()


def test_resources_are_reported_as_the_spec_has_them():
    wanted = {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}
    found = running(spec={"containers": [{"name": "app", "image": "i", "resources": wanted}]})
    (container,) = found["status"]["containerStatuses"]
    assert (container["resources"], container["allocatedResources"]) == (wanted, {"cpu": "100m"})


def test_an_ephemeral_container_that_is_added_runs_too():
    subject = running()
    subject["spec"]["ephemeralContainers"] = [{"name": "debug", "image": "i"}]
    step = decide(subject, after=1)
    assert isinstance(step, Write)
    assert [row["name"] for row in step.status["ephemeralContainerStatuses"]] == ["debug"]
    assert step.status["containerStatuses"] == subject["status"]["containerStatuses"]


def test_readiness_gates_delay_readiness():
    subject = pod(spec={"readinessGates": [{"conditionType": "example.org/a"}, {"conditionType": "example.org/b"}]})
    subject["status"]["conditions"] = [{"type": "example.org/a", "status": "False"}]
    held = after(subject, decide(subject))
    assert conditions(held)["Ready"] == ("False", "ReadinessGatesNotReady")
    assert conditions(held)["ContainersReady"] == ("True", None)
    message = next(row["message"] for row in held["status"]["conditions"] if row["type"] == "Ready")
    assert '"example.org/a" is not "True", but False' in message
    assert 'corresponding condition of pod readiness gate "example.org/b" does not exist.' in message
    for row in held["status"]["conditions"]:
        if row["type"].startswith("example.org"):
            row["status"] = "True"
    held["status"]["conditions"].append({"type": "example.org/b", "status": "True"})
    freed = after(held, decide(held, after=1))
    assert conditions(freed)["Ready"] == ("True", None)
    assert decide(freed, after=2) == Nothing()


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_pod_that_runs_to_completion_succeeds_after_a_moment(policy):
    found = running(spec={"restartPolicy": policy})
    assert decide(found, after=0.5) == Wait(NOW + timedelta(seconds=1))
    done = after(found, decide(found, after=1))
    assert done["status"]["phase"] == "Succeeded"
    assert conditions(done)["Ready"] == ("False", "PodCompleted")
    assert conditions(done)["Initialized"] == ("True", "PodCompleted")
    (container,) = done["status"]["containerStatuses"]
    assert container["state"]["terminated"] == {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": "2026-01-02T03:04:05Z",
        "finishedAt": "2026-01-02T03:04:06Z",
        "containerID": container["containerID"],
    }
    assert lifecycle.is_over(done)
    assert decide(done, after=100) == Nothing()


@pytest.mark.parametrize(("policy", "phase", "code"), [("Always", "Succeeded", 0), ("Never", "Failed", 143), ("OnFailure", "Failed", 143)])
def test_a_deleted_pod_ends_and_is_removed(policy, phase, code):
    subject = deleting(running(spec={"restartPolicy": policy}))
    ended = after(subject, decide(subject, after=0.1))
    assert ended["status"]["phase"] == phase
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == code
    assert decide(ended, after=0.2) == Delete()


def test_a_slow_container_gets_no_more_than_its_grace_period():
    rules = SimulationRules(stop_within=60)
    subject = deleting(running(), grace=5)
    assert decide(subject, after=1, rules=rules) == Wait(NOW + timedelta(seconds=5))
    assert isinstance(decide(subject, after=5, rules=rules), Write)
    assert decide(deleting(running(), grace=120), after=1, rules=rules) == Wait(NOW + timedelta(seconds=60))


@pytest.mark.parametrize("grace", [10**11, 2**63 - 1])
def test_a_pod_with_an_enormous_grace_period_ends(grace):
    subject = deleting(running())
    subject["metadata"]["deletionGracePeriodSeconds"] = grace
    assert isinstance(decide(subject), Write)


def test_a_pod_that_is_deleted_before_it_started_has_failed():
    subject = deleting(pod())
    ended = after(subject, decide(subject, addresses=()))
    assert ended["status"]["phase"] == "Failed"
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert decide(ended) == Delete()


def test_a_pod_without_a_grace_period_is_removed_later_if_nobody_holds_it():
    gone = deleting(pod(), grace=0)
    ended = after(gone, decide(gone, addresses=()))
    unplayed = SimulationRules(plays=False)
    assert decide(ended) == decide(gone, rules=unplayed) == Delete(NOW + timedelta(seconds=10))
    for subject, rules in ((ended, SimulationRules()), (gone, unplayed)):
        subject["metadata"]["finalizers"] = ["example.org/hold"]
        assert decide(subject, rules=rules) == Nothing()


def test_a_pod_on_the_host_network_is_recognised():
    assert lifecycle.on_host_network(pod(spec={"hostNetwork": True}))
    assert not lifecycle.on_host_network(pod())


def test_addresses_are_read_from_the_status():
    assert lifecycle.pod_addresses(running()) == OWN
    assert lifecycle.pod_addresses(pod()) == ()
    assert lifecycle.pod_addresses(pod(status={"podIP": "10.0.0.9"})) == ("10.0.0.9",)


def test_a_pod_without_containers_running_has_no_start():
    assert status.started_at(pod()) is None
    assert status.started_at(running()) == "2026-01-02T03:04:05Z"
