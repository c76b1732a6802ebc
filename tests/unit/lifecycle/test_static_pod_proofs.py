"""Whether a static pod runs from its manifest: which container counts, what it answers, and which version it reports."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from kubewright.apis.machine import Layout
from kubewright.base.errors import ComponentFailed, HostError, RuntimeUnavailable, Unreachable
from kubewright.host.desired import File
from kubewright.host.filesystem.files import Files
from kubewright.host.real import RealHost
from kubewright.host.states import Container, ContainerState, Sandbox
from kubewright.lifecycle.steps import component_versions, static_pod_proof
from kubewright.lifecycle.steps.static_pod_proof import Asked, StaticPodProof


class Runtime:
    def __init__(self) -> None:
        self.lives: list[Container] = []
        self.pods: list[Sandbox] = []
        self.stopped: list[str] = []
        self.fails: HostError | None = None

    def containers(self, *, namespace: str) -> list[Container]:
        assert namespace == "kube-system"
        if self.fails is not None:
            raise self.fails
        return self.lives

    def last_lines(self, pod: str, /, *, count: int, container: str = "") -> list[str]:
        return [f"last words of {container}"]

    def sandboxes(self) -> list[Sandbox]:
        if self.fails is not None:
            raise self.fails
        return self.pods

    def stop_sandbox(self, sandbox: Sandbox) -> None:
        self.stopped.append(sandbox.id)


class Box:
    """A machine with the manifest of a scheduler, which is as old as the test says: a container created at 100.0 is younger."""

    def __init__(self, root: Path) -> None:
        layout = Layout(kubernetes=PurePosixPath(root))
        self.runtime = Runtime()
        self.host = RealHost(layout=layout, files=Files(durable=False), runtime=self.runtime)
        self.host.ensure(File(path=layout.manifest("kube-scheduler"), content=b"{}", directory_mode=0o700))
        self.written = self.host.state(layout.manifest("kube-scheduler")).modified
        self.healthy: str | None = None
        self.version: str | Exception = "v1.36.4"
        self.unled: str | None = None

    def life(self, after: float, *, state=ContainerState.RUNNING, uid="new", name="kube-scheduler"):
        created = self.written + after
        self.runtime.lives.append(
            Container(id=uid, name=name, pod=f"{name}-one", namespace="kube-system", state=state, pod_uid=uid, created=created)
        )

    def proof(self, *, now: float = 20.0) -> StaticPodProof:
        def version() -> str:
            if isinstance(self.version, Exception):
                raise self.version
            return self.version

        asked = Asked(
            healthy=lambda: self.healthy, version=version, led=lambda since: self.unled and f"{self.unled} {since - self.written:.0f}"
        )
        return StaticPodProof(name="kube-scheduler", pod="kube-scheduler-one", asked=asked, host=self.host, now=lambda: self.written + now)


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


def test_a_container_older_than_the_manifest_does_not_count(box):
    box.life(-5.0, uid="old")
    box.life(3.0, name="kube-apiserver")
    assert box.proof().fault("1.36.4") == "the kubelet has not started it from the manifest yet"
    box.life(1.0, state=ContainerState.EXITED)
    assert box.proof().fault("1.36.4") == "the kubelet has not started it from the manifest yet"
    box.life(2.0)
    assert box.proof().fault("1.36.4") is None


def test_only_recorded_sandboxes_of_the_component_that_still_run_are_stopped(box):
    def pod(uid: str, name: str = "kube-scheduler-one", *, namespace: str = "kube-system", ready: bool = True) -> Sandbox:
        return Sandbox(id=uid, name=name, namespace=namespace, ready=ready)

    others = [
        pod("other", "kube-apiserver-one"),
        pod("longer", "kube-scheduler-one-plugins"),
        pod("similar", "kube-scheduler-plugins"),
        pod("user", namespace="default"),
        pod("ended", ready=False),
    ]
    box.runtime.pods = [pod("former"), *others]
    proof = box.proof()
    proof.note_former()
    box.runtime.pods = [pod("former"), pod("next"), *others]
    proof.stop_former()
    assert box.runtime.stopped == ["former"]


def test_after_a_rollback_the_earlier_pod_counts_too(box):
    box.life(-5.0, uid="old")
    proof = box.proof()
    proof.note()
    assert proof.fault("1.36.4") is not None
    assert proof.fault("1.36.4", back=True) is None
    box.life(-1.0, uid="failed")
    assert proof.fault("1.36.4", back=True) is not None


def test_the_component_reports_its_own_health_and_version(box):
    box.life(1.0)
    box.healthy = "not yet: etcd"
    assert box.proof().fault("1.36.4") == "not yet: etcd"
    box.healthy, box.version = None, "v1.36.3"
    assert box.proof().fault("1.36.4") == "it reports v1.36.3, not 1.36.4"
    assert box.proof().fault("") is None
    box.version = ""
    assert box.proof().fault("1.36.4") is None
    box.version = Unreachable("nobody answers")
    assert box.proof().fault("1.36.4") == "nobody answers"


def test_a_component_that_has_just_started_is_asked_again_for_its_version(box):
    """It refuses everybody its metrics until it has read who may read them."""
    box.life(0.0)
    box.version = ""
    assert box.proof(now=9.0).fault("1.36.4") == "it does not report its version yet"
    assert (box.proof(now=9.0).fault(""), box.proof(now=10.0).fault("1.36.4")) == (None, None)


def test_a_component_that_has_just_started_has_not_stayed_up(box):
    box.life(15.0)
    assert box.proof(now=20.0).fault("1.36.4", steady=static_pod_proof.STEADY) == "it has been running for 5 s"
    assert box.proof(now=25.0).fault("1.36.4", steady=static_pod_proof.STEADY) is None


def test_a_component_without_a_leader_passes_only_after_the_time_for_an_election(box):
    box.life(15.0)
    box.unled = "nobody leads since"
    assert box.proof(now=25.0).fault("1.36.4", steady=static_pod_proof.STEADY) == "nobody leads since 15"
    assert box.proof(now=25.0).fault("1.36.4") is None
    assert box.proof(now=15.0 + static_pod_proof.ELECTED).fault("1.36.4", steady=static_pod_proof.STEADY) is None


@pytest.mark.parametrize("state", [ContainerState.RUNNING, ContainerState.EXITED])
def test_a_component_that_was_proved_must_not_have_ended_since(box, state):
    box.life(1.0, uid="first")
    proof = box.proof()
    proof.require_lasting()  # nothing has been proved yet
    assert proof.fault("1.36.4") is None
    proof.require_lasting()
    assert proof.fault("1.36.4", steady=static_pod_proof.STEADY) is None
    if state is ContainerState.EXITED:
        box.runtime.lives.clear()
    box.life(2.0, uid="first" if state is ContainerState.EXITED else "second", state=state)
    with pytest.raises(ComponentFailed, match="kube-scheduler has ended since its upgrade") as caught:
        proof.fault("1.36.4", steady=static_pod_proof.STEADY)
    assert caught.value.detail == "the last lines of kube-scheduler:\n  last words of first"
    with pytest.raises(ComponentFailed):
        proof.require_lasting()
    box.runtime.fails = RuntimeUnavailable("containerd is down")
    assert proof.fault("1.36.4", steady=static_pod_proof.STEADY) == "containerd is down"


def test_an_unanswering_runtime_is_a_reason_and_no_error(box):
    box.runtime.fails = RuntimeUnavailable("containerd is down")
    proof = box.proof()
    proof.note()
    assert proof.fault("1.36.4") == "containerd is down"


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("registry.k8s.io/kube-scheduler:v1.36.4", "1.36.4"),
        ("localhost:5000/kube-scheduler:v1.36.4-build.2@sha256:0", "1.36.4"),
        ("registry.k8s.io/etcd:3.6.8-0", "3.6.8"),
        ("localhost:5000/kube-scheduler", ""),
        ("kube-scheduler:mine", ""),
        (None, ""),
    ],
)
def test_the_version_comes_from_the_image_tag(image, version):
    assert component_versions.version_of({"spec": {"containers": [{"image": image}]}}) == version
    assert component_versions.version_of({"spec": {"containers": []}}) == component_versions.version_of({}) == ""


def test_metrics_contain_the_built_version():
    text = '# TYPE kubernetes_build_info gauge\nkubernetes_build_info{build_date="x",git_version="v1.36.4",go_version="go1"} 1\n'
    assert component_versions.build_version(f"other 1\n{text}") == "v1.36.4"
    assert component_versions.build_version("other 1\n") == ""


def test_versions_are_compared_by_three_numbers():
    assert component_versions.is_older("3.6.8-0", "3.6.10-0")
    assert not component_versions.is_older("3.6.10-0", "3.6.8-0")
    assert not component_versions.is_older("mine", "3.6.8-0")
