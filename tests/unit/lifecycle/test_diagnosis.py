"""What is reported while a control plane starts, and when waiting ends early."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.apis.machine import Layout
from kubewright.base.clock import FakeClock
from kubewright.base.errors import ComponentFailed, HostError, RuntimeUnavailable, WaitTimeout
from kubewright.base.events import RecordingReporter, Waiting
from kubewright.base.wait import PollingWaiter
from kubewright.discovery.node_requests import RequestStatus
from kubewright.host.seam import RuntimeVersion
from kubewright.host.states import Container, ContainerState, Sandbox, ServiceState
from kubewright.lifecycle.diagnosis import failures, observation
from kubewright.lifecycle.diagnosis.cluster import ClusterView
from kubewright.lifecycle.diagnosis.observation import Component
from kubewright.lifecycle.diagnosis.watch import ComponentWatch

RUNS = ServiceState(running=True)
FAILS = ServiceState(running=False, failed=True, again=True)
NAMES = ("etcd", "kube-apiserver")
IMAGE = "registry.k8s.io/etcd:3.6.8-0"
REFUSED = "E1121 18:00:00.000000   54 reflector.go:205] Failed to watch: connection refused"
BAD_FLAG = 'E1121 18:06:08.018599     111 run.go:72] "command failed" err="failed to parse kubelet flag: unknown flag: --x"'


def life(name="etcd", *, state=ContainerState.RUNNING, attempt=0, **more: object):
    return Container(id=f"{name}-{attempt}", name=name, pod=f"{name}-one", namespace="kube-system", state=state, attempt=attempt, **more)


def ended(name="etcd", *, attempt=0, code=1, at=10.0, **more: object):
    return life(name, state=ContainerState.EXITED, attempt=attempt, code=code, **{"created": at, "ended": at, **more})


@dataclass
class Runtime:
    lives: list[Container] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    images: set[str] = field(default_factory=set)
    said: dict[str, list[str]] = field(default_factory=dict)
    error: HostError | None = None
    looks: int = 0

    def version(self):
        if self.error:
            raise self.error
        return RuntimeVersion(name="fake", version="1")

    def containers(self, *, namespace):
        assert namespace == "kube-system"
        self.looks += 1
        if self.error:
            raise self.error
        return self.lives

    def sandboxes(self):
        return [Sandbox(id=name, name=f"{name}-one", namespace="kube-system") for name in self.begun]

    def has_image(self, image):
        return image in self.images

    def last_lines(self, pod, *, count, container=""):
        return self.said.get(pod, [])[-count:]


@dataclass
class Machine:
    """The parts of a Host that are used."""

    kubelet: ServiceState | None = RUNS
    lines: list[str] = field(default_factory=list)
    runtime: Runtime = field(default_factory=Runtime)
    files: dict[str, str] = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)
    read_journal: int = 0
    asked: int = 0

    def service(self, name):
        assert name == "kubelet"
        self.asked += 1
        return self.kubelet

    def service_lines(self, name, *, count):
        self.read_journal += 1
        return self.lines[-count:]

    def read(self, path):
        found = self.files.get(str(PurePosixPath(path)))
        return None if found is None else found.encode()


def reason(machine, *, names=NAMES, own="connection refused", journal=True):
    return failures.reason(observation.observe(machine, names, journal=journal), own, now=100.0)


def with_both(**more: object):
    return Machine(runtime=Runtime(lives=[life(created=98.0), life("kube-apiserver", created=99.0)], **more))


def test_the_reason_of_the_wait_is_reported_if_everything_runs():
    assert reason(with_both()) == "etcd has been running for 2.0s, kube-apiserver has been running for 1.0s: connection refused"


def test_a_failing_kubelet_is_reported_before_everything_else():
    machine = Machine(kubelet=FAILS, lines=["Started kubelet.service - x.", BAD_FLAG, "kubelet.service: Failed with result 'exit-code'."])
    told = reason(machine, journal=False)
    assert told.startswith("the kubelet has exited once, and systemd is about to restart it: ")
    assert told.endswith('err="failed to parse kubelet flag: unknown flag: --x"')


def test_a_kubelet_that_systemd_cannot_start_is_reported_in_its_words():
    line = "kubelet.service: Failed at step EXEC spawning /usr/bin/kubelet: No such file or directory"
    machine = Machine(kubelet=FAILS, lines=[line, "kubelet.service: Main process exited, code=exited, status=203/EXEC"])
    assert reason(machine).endswith(line)


def test_a_runtime_that_does_not_answer_is_reported():
    machine = Machine(runtime=Runtime(error=RuntimeUnavailable("no container runtime answers at unix:///x", detail="nobody listens")))
    assert reason(machine) == "no container runtime answers at unix:///x: nobody listens"
    assert reason(machine, names=()) == "no container runtime answers at unix:///x: nobody listens"


def test_components_that_do_not_run_yet_are_reported_in_order_of_dependency():
    machine = Machine(lines=[REFUSED])
    assert reason(machine) == "the kubelet has not started the pod of etcd yet"
    machine.runtime.begun = ["etcd"]
    machine.files["/etc/kubernetes/manifests/etcd.yaml"] = f"spec: {{containers: [{{image: {IMAGE}}}]}}\n"
    assert reason(machine) == f"etcd is waiting for its image {IMAGE}, which is not on this machine"
    machine.runtime.images = {IMAGE}
    assert reason(machine) == "the container of etcd is being created"
    machine.runtime.lives = [life(state=ContainerState.CREATED)]
    assert reason(machine) == "etcd has a container that is about to start"
    machine.runtime.lives = [life()]
    assert reason(machine) == "the kubelet has not started the pod of kube-apiserver yet"


@pytest.mark.parametrize(
    "text", ["", "- x", "spec: 1", "spec: {containers: 1}", "spec: {containers: []}", "spec: {containers: [{image: 1}]}", "{"]
)
def test_an_invalid_manifest_has_no_image(text):
    machine = Machine(runtime=Runtime(begun=["etcd"]), files={"/etc/kubernetes/manifests/etcd.yaml": text})
    assert reason(machine, names=("etcd",)) == "the container of etcd is being created"


def test_an_ended_component_is_reported_with_its_last_error():
    usage = ["Usage:", "  etcd [flags]", *["    more"] * 100]
    machine = Machine(lines=[BAD_FLAG])
    machine.runtime.lives = [ended(code=2, attempt=1)]
    machine.runtime.said = {"etcd": ['invalid value "x" for flag -y: no', *usage]}
    assert reason(machine) == 'etcd exited with code 2, for the second time: invalid value "x" for flag -y: no'
    machine.runtime.said = {
        "etcd": ['{"level":"info","msg":"x"}', '{"level":"fatal","msg":"discovery failed","error":"no space left on device"}']
    }
    machine.runtime.lives = [ended(code=137, reason="OOMKilled", attempt=3)]
    assert reason(machine) == "etcd exited with code 137 (OOMKilled), for the 4th time: discovery failed: no space left on device"
    machine.runtime.lives = [life(attempt=1, created=99.0), life("kube-apiserver", attempt=2, state=ContainerState.UNKNOWN)]
    assert reason(machine).startswith(
        "kube-apiserver is in a state that the container runtime does not know again, after it exited 2 times"
    )


def test_a_diagnosis_is_complete():
    machine = Machine(lines=[REFUSED, BAD_FLAG])
    machine.runtime.lives = [life(attempt=1)]
    machine.runtime.said = {"etcd": ["first", "second"]}
    seen = observation.observe(machine, NAMES, journal=True)
    assert failures.report(seen, {"etcd": observation.last_errors(machine, "etcd")}).splitlines() == [
        "the kubelet is running",
        "the last lines of the kubelet:",
        f"  {BAD_FLAG}",
        "etcd is running again, after it exited once",
        "the last lines of etcd:",
        "  first",
        "  second",
        "the kubelet has not started the pod of kube-apiserver yet",
    ]


def test_a_wait_for_the_kubelet_has_its_own_messages():
    line = 'E1121 18:00:00.000000 1 x.go:1] "Unhandled Error" err="x509: certificate has expired or is not yet valid"'
    machine = Machine(lines=[line, REFUSED])
    with pytest.raises(WaitTimeout) as caught:
        wait(machine, names=(), within=12, own="it has no certificate yet")
    assert wait.told[0] == "it has no certificate yet"
    assert wait.told[-1] == 'it has no certificate yet: "Unhandled Error" err="x509: certificate has expired or is not yet valid"'
    assert caught.value.detail.splitlines()[-2:] == ["the last lines of the kubelet:", f"  {line}"]


def status(text="csr-x is Pending", *, refused=False):
    return RequestStatus(text=text, remedy="kubectl certificate approve csr-x", refused=refused)


class Bootstrap:
    """The answers of the cluster; `asked` counts the requests, and whether they were thorough."""

    def __init__(self, *views: ClusterView) -> None:
        self.views = list(views)
        self.asked: list[bool] = []

    def look(self, kubelet, *, thoroughly=False):
        assert kubelet.running
        self.asked.append(thoroughly)
        return self.views.pop(0) if len(self.views) > 1 else self.views[0]


def test_the_state_of_the_request_is_reported_for_a_kubelet_without_certificate():
    noise = 'E1121 18:00:{:02}.000000 1 file_linux.go:59] "Unable to read config path" err="path does not exist, ignoring" path="/x"'
    machine, bootstrap = (
        Machine(lines=[noise.format(second) for second in range(9)]),
        Bootstrap(ClusterView(), ClusterView(request=status())),
    )
    with pytest.raises(WaitTimeout) as caught:
        wait(machine, names=(), within=60, own="it has no certificate yet", bootstrap=bootstrap)
    assert wait.told[:3] == ["it has no certificate yet"] * 3
    assert set(wait.told[8:]) == {"csr-x is Pending"}
    assert caught.value.detail.splitlines() == ["csr-x is Pending", "the kubelet is running"]
    assert caught.value.remedy == "kubectl certificate approve csr-x"
    assert 10 < len(bootstrap.asked) < 30
    assert bootstrap.asked.index(True) == len(bootstrap.asked) - 1


def test_a_denied_request_ends_the_wait():
    with pytest.raises(ComponentFailed) as caught:
        wait(Machine(), names=(), bootstrap=Bootstrap(ClusterView(request=status("csr-x was denied by me: because", refused=True))))
    assert caught.value.what == "csr-x was denied by me: because"
    assert caught.value.remedy == "kubectl certificate approve csr-x"
    assert wait.seconds < 6


def test_a_wrong_clock_is_reported_if_there_is_no_request():
    with pytest.raises(WaitTimeout) as caught:
        wait(Machine(), names=(), within=20, own="no certificate", bootstrap=Bootstrap(ClusterView(clock="the clock is 3h behind")))
    assert wait.told[-1] == "the clock is 3h behind"
    assert "timedatectl" in caught.value.remedy


def test_equal_lines_are_reported_once():
    lines = [f'E1121 18:00:{second:02}.000000 {second} x.go:{second}] "Cannot {second % 2}"' for second in range(20)]
    with pytest.raises(WaitTimeout) as caught:
        wait(Machine(lines=lines), names=(), within=5)
    assert caught.value.detail.splitlines()[-2:] == [f"  {line}" for line in lines[-2:]]
    assert caught.value.remedy == "fix it"


@given(st.lists(st.text()))
def test_any_log_gives_a_message_or_none(lines):
    assert len(observation.last_reason(lines)) <= observation.LONGEST
    assert set(observation.errors(lines)) <= set(lines)


def wait(machine, *, names=NAMES, steps=(), within=240.0, own="connection refused", bootstrap=None):
    """Wait with checks in between; `steps` are what happens to the machine, by second. Returns the reported reasons."""
    clock, reporter = FakeClock(), RecordingReporter()
    began = clock.now().timestamp()
    watching = ComponentWatch(names, host=machine, clock=clock, bootstrap=bootstrap, background=lambda work: work())
    left = sorted(steps, key=lambda step: step[0])

    def condition():
        while left and clock.monotonic() >= left[0][0]:
            left.pop(0)[1](began)
        return None if machine is None else own

    waiter = PollingWaiter(clock=clock, reporter=reporter)
    try:
        waiter.until(
            watching.explained(condition),
            within=within,
            saying="it",
            every=0.02,
            at_most=0.02,
            diagnose=watching.diagnose,
            remedy=lambda: watching.remedy() or "fix it",
        )
    finally:
        wait.seconds = clock.monotonic()
        wait.told = [event.reason for event in reporter.events if isinstance(event, Waiting)]


def put(machine, **changes: object):
    def change(began):
        for name, value in changes.items():
            setattr(machine, name, value)

    return change


def test_checks_start_after_one_second_and_run_twice_a_second():
    machine = with_both()
    with pytest.raises(WaitTimeout):
        wait(machine, within=0.8)
    assert machine.runtime.looks == 1  # that of the diagnosis
    machine.runtime.looks = 0
    with pytest.raises(WaitTimeout):
        wait(machine, within=11)
    assert 15 <= machine.runtime.looks <= 22
    assert machine.read_journal == machine.asked == 2, "with everything running the kubelet is asked for the diagnosis only"


def test_the_journal_of_a_running_kubelet_is_read_occasionally_if_nothing_starts():
    machine = Machine(lines=[BAD_FLAG])
    with pytest.raises(WaitTimeout) as caught:
        wait(machine, within=12)
    assert 3 <= machine.read_journal <= 7
    assert wait.told[0] == "the kubelet has not started the pod of etcd yet"
    assert "unknown flag" in wait.told[-1]
    assert "the last lines of the kubelet" in caught.value.detail


def test_a_kubelet_that_fails_twice_ends_the_wait():
    machine = Machine(kubelet=FAILS, lines=[BAD_FLAG])
    steps = [
        (9.0, put(machine, kubelet=RUNS)),
        (10.0, put(machine, kubelet=ServiceState(running=False, failed=True, again=True, restarts=1))),
    ]
    with pytest.raises(ComponentFailed, match="the kubelet does not stay up") as caught:
        wait(machine, steps=steps)
    assert wait.seconds < 12
    assert "unknown flag: --x" in caught.value.detail
    assert "nodeRegistration.kubeletExtraArgs" in caught.value.remedy


def test_last_output_is_kept_until_the_next_start_has_output():
    machine = Machine(kubelet=FAILS, lines=[BAD_FLAG])
    again = ServiceState(running=False, failed=True, again=True, restarts=1)
    with pytest.raises(ComponentFailed) as caught:
        wait(machine, steps=[(5.0, put(machine, kubelet=again, lines=["Started kubelet.service."]))])
    assert "unknown flag: --x" in caught.value.detail


def restarted(times):
    return ServiceState(running=False, failed=True, again=True, restarts=times)


def test_a_late_journal_is_waited_for():
    """The second end is seen before its output: on a busy machine the journal is late."""
    machine = Machine(kubelet=restarted(0), lines=["Started kubelet.service."])
    steps = [(10.0, put(machine, kubelet=restarted(1))), (12.0, put(machine, lines=["Started kubelet.service.", BAD_FLAG]))]
    with pytest.raises(ComponentFailed, match="the kubelet does not stay up") as caught:
        wait(machine, steps=steps)
    assert 12 <= wait.seconds < 14
    assert "unknown flag: --x" in caught.value.detail


def test_a_kubelet_that_fails_without_output_gets_a_third_start():
    machine = Machine(kubelet=restarted(0))
    with pytest.raises(ComponentFailed, match="the kubelet does not stay up") as caught:
        wait(machine, steps=[(10.0, put(machine, kubelet=restarted(1))), (20.0, put(machine, kubelet=restarted(2)))])
    assert 20 <= wait.seconds < 22
    assert "journalctl -u kubelet" in caught.value.remedy


def test_a_kubelet_that_is_not_restarted_ends_the_wait_at_once():
    with pytest.raises(ComponentFailed) as caught:
        wait(Machine(kubelet=ServiceState(running=False, failed=True)))
    assert wait.seconds < 2
    assert "journalctl -u kubelet" in caught.value.remedy


def test_a_stopped_kubelet_is_waited_for():
    with pytest.raises(WaitTimeout):
        wait(Machine(kubelet=ServiceState(running=False)), within=60)
    assert wait.told[1] == "the kubelet is not running"


def crash(machine, attempt, *, name="etcd"):
    def change(began):
        machine.runtime.lives = [ended(name, attempt=attempt, at=began + 3)]

    return change


def test_a_component_that_exits_three_times_ends_the_wait_with_its_last_output():
    machine = Machine()
    machine.runtime.said = {"etcd": ["listen tcp 0.0.0.0:2381: bind: address already in use"]}
    with pytest.raises(ComponentFailed, match="etcd does not stay up") as caught:
        wait(machine, steps=[(1.5, crash(machine, 0)), (3, crash(machine, 1)), (14, crash(machine, 2))])
    assert 14 <= wait.seconds < 15
    assert "address already in use" in caught.value.detail
    assert "ss -ltnp" in caught.value.remedy


def test_exits_of_an_earlier_run_do_not_end_this_one():
    machine = Machine()
    machine.runtime.lives = [ended(attempt=4, at=5.0)]
    with pytest.raises(WaitTimeout):
        wait(machine, within=60)
    with pytest.raises(ComponentFailed, match="etcd"):
        wait(machine, steps=[(20, crash(machine, 5))], within=60)
    assert 20 <= wait.seconds < 22


def test_exits_before_a_manifest_changed_do_not_count():
    machine = Machine()
    machine.runtime.lives = [life(attempt=10, created=5.0, pod_uid="old")]

    def replaced(began):
        machine.runtime.lives = [
            ended(attempt=0, created=began + 2, pod_uid="new"),
            ended(attempt=10, created=5.0, at=began + 2, pod_uid="old"),
        ]

    def third(began):
        machine.runtime.lives = [ended(attempt=2, created=began + 14, pod_uid="new")]

    with pytest.raises(ComponentFailed, match="etcd does not stay up"):
        wait(machine, steps=[(3, replaced), (14, third)])
    assert 14 <= wait.seconds < 15


def test_exits_before_a_pod_was_recreated_do_not_count():
    machine = Machine()
    old = ended(attempt=2, created=4.0, at=5.0, pod_uid="old")
    machine.runtime.lives = [life(attempt=0, created=9.0, pod_uid="new"), old]

    def taken_back(_):
        machine.runtime.lives = [old]

    def fails(began):
        machine.runtime.lives = [ended(attempt=3, created=began + 4, pod_uid="old"), old]

    with pytest.raises(WaitTimeout):
        wait(machine, steps=[(2, taken_back)], within=30)
    machine.runtime.lives = [life(attempt=0, created=9.0, pod_uid="new"), old]
    with pytest.raises(ComponentFailed, match="etcd does not stay up"):
        wait(machine, steps=[(2, taken_back), (5, fails)])


def test_an_exit_of_a_container_of_an_earlier_run_does_not_end_this_one():
    machine = Machine()
    machine.runtime.lives = [life(attempt=2), ended(attempt=1, at=5.0)]

    def outlived(began):
        machine.runtime.lives = [ended(attempt=2, created=6.0, at=began + 3), ended(attempt=1, at=5.0)]

    with pytest.raises(WaitTimeout):
        wait(machine, steps=[(3, outlived)], within=30)


def test_dependents_of_a_failing_component_are_not_blamed():
    machine = Machine()

    def both(began):
        machine.runtime.lives = [ended(attempt=1, at=began + 3), ended("kube-apiserver", attempt=7, at=began + 3)]

    with pytest.raises(WaitTimeout):
        wait(machine, steps=[(2, both)], within=30)


def pull(second, image=IMAGE):
    return f'E1121 18:00:{second:02}.000000     123 remote_image.go:250] "PullImage from image service failed" image="{image}"'


@pytest.mark.parametrize(
    ("lines", "ends"),
    [
        ([pull(1), pull(2)], True),
        ([pull(1), pull(1)], False),
        ([pull(1, "other"), pull(2, "other")], False),
        ([f'E1121 18:00:00.000000 1 x.go:1] Container image "{IMAGE}" is not present with pull policy of Never'], True),
    ],
)
def test_an_image_that_cannot_be_pulled_ends_the_wait(lines, ends):
    machine = without_image(lines)
    with pytest.raises(ComponentFailed if ends else WaitTimeout) as caught:
        wait(machine, within=30)
    if ends:
        assert caught.value.what == f"the image {IMAGE} of etcd is not on this machine, and cannot be pulled"
        assert wait.seconds < 8


def without_image(lines):
    machine = Machine(lines=lines, runtime=Runtime(begun=["etcd"]))
    machine.files["/etc/kubernetes/manifests/etcd.yaml"] = f"spec: {{containers: [{{image: {IMAGE}}}]}}\n"
    return machine


def test_failed_pulls_far_apart_count():
    machine = without_image([pull(1)])
    steps = [(10, put(machine, lines=[REFUSED] * 100)), (50, put(machine, lines=[REFUSED] * 100 + [pull(50)]))]
    with pytest.raises(ComponentFailed, match=r"the image .* cannot be pulled"):
        wait(machine, steps=steps)
    assert 50 <= wait.seconds < 56


def test_the_reason_for_a_missing_container_is_reported_even_if_it_looks_like_a_consequence():
    line = 'E1121 18:00:00.000000 1 x.go:1] "Failed to pull image" err="' + "x" * 300 + ': connection refused"'
    machine = without_image([BAD_FLAG, line, REFUSED])
    told = reason(machine)
    assert told.startswith(f'etcd is waiting for its image {IMAGE}, which is not on this machine: "Failed to pull image" err="xxx')
    assert told.endswith('xxx: connection refused"')


def test_static_pods_that_the_kubelet_failed_to_start_are_found():
    machine = Machine()
    assert observation.failed(machine, since=0) == []
    machine.runtime.begun = ["kube-apiserver"]
    machine.runtime.lives = [life(attempt=3), ended("kube-scheduler", attempt=1)]
    assert observation.failed(machine, since=0) == ["kube-apiserver", "kube-scheduler"]
    machine.runtime.error = RuntimeUnavailable("no container runtime answers")
    assert observation.failed(machine, since=0) == []


def test_static_pods_that_a_kubelet_is_starting_after_a_reboot_have_not_failed():
    machine = Machine()
    starting = life(state=ContainerState.CREATED, attempt=3, created=21.0)
    machine.runtime.lives = [ended("kube-scheduler", at=19.0), starting]
    assert observation.failed(machine, since=20.0) == []
    machine.runtime.lives = [ended("kube-scheduler", at=21.0), starting]
    assert observation.failed(machine, since=20.0) == ["kube-scheduler"]


def test_a_component_that_runs_again_after_many_exits_is_waited_for():
    machine = Machine()
    steps = [(5, lambda began: setattr(machine.runtime, "lives", [life(attempt=4, created=began + 5)]))]
    with pytest.raises(WaitTimeout):
        wait(machine, steps=steps, within=30)
    machine.runtime.lives = []
    with pytest.raises(ComponentFailed):
        wait(machine, steps=[*steps, (10, crash(machine, 4))], within=30)
    assert 10 <= wait.seconds < 12


def test_exits_before_a_moment_are_counted_from_the_remaining_containers():
    assert Component(name="etcd").ends_before(5) == 0
    assert Component(name="etcd", containers=(life(attempt=3, created=5.5), ended(attempt=2, at=4.0))).ends_before(5) == 3
    assert Component(name="etcd", containers=(life(attempt=3, created=4.5), ended(attempt=2, at=4.0))).ends_before(5) == 4
    assert Component(name="etcd", containers=(ended(attempt=1, at=6.0), ended(attempt=0, at=5.5))).ends_before(5) == 0
