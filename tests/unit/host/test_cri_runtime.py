"""The client of container runtimes with a fake server: requests, results, and the error of each failure."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path, PurePosixPath

import pytest
from cri_kit import CALLS, FakeRuntime, serving

from busy import HANGS
from kubewright.base.change import Action
from kubewright.base.errors import DiskFull, HostError, RuntimeSilent, RuntimeUnavailable
from kubewright.host.cri import api_pb2 as api
from kubewright.host.cri import client as client_module
from kubewright.host.cri import failures
from kubewright.host.cri.client import Client
from kubewright.host.cri.runtime import CRIRuntime
from kubewright.host.seam import RuntimeVersion
from kubewright.host.states import Condition, Container, ContainerState, Image, RuntimeHandler, Sandbox


@pytest.fixture
def place():
    """A short path, because paths of sockets are limited."""
    with tempfile.TemporaryDirectory(prefix="cri-") as path:
        yield Path(path)


@pytest.fixture
def fake(place):
    runtime = FakeRuntime(there="sha256:1")
    with serving(runtime, place / "a b%20.sock") as endpoint:
        runtime.endpoint = endpoint
        yield runtime


@pytest.fixture
def runtime(fake):
    found = CRIRuntime(fake.endpoint, timeout=HANGS)
    yield found
    found.close()


def test_a_runtime_describes_itself(runtime, fake):
    assert runtime.version() == RuntimeVersion(name="fake", version="1.2.3")
    assert runtime.cgroup_driver() == "cgroupfs"
    assert runtime.status().unready is None
    assert len(runtime.status().conditions) == 2
    fake.conditions = [("RuntimeReady", False)]
    assert runtime.status().unready == Condition(type="RuntimeReady", status=False, reason="r")


@pytest.mark.parametrize(
    ("config", "image"),
    [('{"sandboxImage": "pause:1"}', "pause:1"), ("{}", ""), ("", ""), ("[1]", ""), ("{", ""), ('{"sandboxImage": 1}', "")],
)
def test_the_sandbox_image_is_read_from_the_configuration_of_the_runtime(runtime, fake, config, image):
    fake.info = {"config": config}
    assert runtime.sandbox_image() == image


def test_a_runtime_without_a_cgroup_driver_is_no_error(runtime, fake):
    fake.driver = None
    assert runtime.cgroup_driver() is None
    fake.fails["RuntimeConfig"] = [("UNIMPLEMENTED", "unknown method RuntimeConfig")]
    assert runtime.cgroup_driver() is None
    fake.fails["RuntimeConfig"] = [("INTERNAL", "boom")]
    with pytest.raises(HostError, match="boom"):
        runtime.cgroup_driver()


def test_the_status_has_handlers_and_features(runtime, fake):
    assert (runtime.status().handlers, runtime.status().supplemental_groups_policy) == ((), None)
    fake.handlers = ["", "runc"]
    found = runtime.status()
    assert found.handlers == (RuntimeHandler(name="", user_namespaces=True), RuntimeHandler(name="runc", user_namespaces=True))
    assert found.supplemental_groups_policy is True
    assert found.unmet("NetworkReady").reason == "r"
    assert found.unready is None


def test_a_runtime_accepts_a_pod_range_and_reports_its_image_directory(runtime, fake):
    runtime.give_pod_range("10.1.0.0/24,fd00::/64")
    assert fake.pod_range == "10.1.0.0/24,fd00::/64"
    assert runtime.image_directories() == [PurePosixPath("/var/lib/images")]


def test_a_pull_reports_whether_the_image_has_changed(runtime, fake):
    assert runtime.has_image("there")
    assert not runtime.has_image("new")
    assert runtime.pull("new").action is Action.CREATE
    fake.registry["there"] = "sha256:1"
    assert runtime.pull("there").action is Action.NONE
    fake.registry["there"] = "sha256:2"
    change = runtime.pull("there")
    assert (change.target, change.action) == ("image there", Action.UPDATE)
    assert runtime.images() == [Image(id="sha256:2", tags=("there",), size=7), Image(id="sha256:new", tags=("new",), size=7)]
    runtime.client.remove_image("new")
    assert not runtime.has_image("new")


def test_sandboxes_are_listed_stopped_and_removed(runtime, fake):
    fake.sandboxes = {"2": ("kube-system", "etcd", True), "1": ("default", "web", False)}
    first, second = runtime.sandboxes()
    assert first == Sandbox(id="1", name="web", namespace="default", ready=False)
    assert second.target == "pod kube-system/etcd"
    assert runtime.stop_sandbox(second).action is Action.UPDATE
    assert (fake.told["StopPodSandbox 2"], list(fake.sandboxes)) == (1, ["2", "1"])
    assert runtime.remove_sandbox(second).action is Action.DELETE
    assert list(fake.sandboxes) == ["1"]
    assert (fake.told["StopPodSandbox 2"], fake.told["RemovePodSandbox 2"]) == (2, 1)


def test_the_last_lines_are_of_the_latest_container_of_the_static_pod(runtime, fake, place):
    log = place / "0.log"
    log.write_text("t stdout F one\nt stderr P tw\nt stdout F between\nt stderr F o\nt stdout F three\n")
    fake.containers = [api.Container(id="old", created_at=1), api.Container(id="new", created_at=2)]
    fake.logs = {"new": str(log)}
    assert runtime.last_lines("etcd", count=3) == ["between", "two", "three"]
    assert fake.asked == {"io.kubernetes.pod.namespace": "kube-system", "io.kubernetes.container.name": "etcd"}
    log.write_text("x" * 100_000 + "\nt stdout F end\n")
    assert runtime.last_lines("etcd", count=3) == ["end"]
    log.unlink()
    assert runtime.last_lines("etcd", count=3) == []
    fake.fails["ListContainers"] = [("INTERNAL", "boom")]
    assert runtime.last_lines("etcd", count=3) == []


def container(identifier, *, name="etcd", state=1, attempt=0, created=0):
    labels = {"io.kubernetes.pod.name": f"{name}-one", "io.kubernetes.pod.namespace": "kube-system"}
    metadata = api.ContainerMetadata(name=name, attempt=attempt)
    return api.Container(id=identifier, metadata=metadata, state=state, created_at=created * 10**9, labels=labels)


def test_containers_have_states_and_exit_codes(runtime, fake):
    fake.containers = [container("1", state=2, created=10), container("2", attempt=1, created=20), container("3", state=7, created=5)]
    fake.ends = {"1": api.ContainerStatus(exit_code=2, reason="Error", finished_at=12 * 10**9)}
    latest, ended, odd = runtime.containers(namespace="kube-system")
    assert fake.asked == {"io.kubernetes.pod.namespace": "kube-system"}
    pod = {"name": "etcd", "pod": "etcd-one", "namespace": "kube-system"}
    assert latest == Container(id="2", state=ContainerState.RUNNING, attempt=1, created=20, **pod)
    assert ended == Container(id="1", state=ContainerState.EXITED, code=2, reason="Error", created=10, ended=12, **pod)
    assert odd.state is ContainerState.UNKNOWN
    assert fake.told["ContainerStatus"] == 1


def test_a_container_removed_during_inspection_keeps_known_fields(runtime, fake):
    fake.containers = [container("1", state=2)]
    fake.fails["ContainerStatus"] = [("NOT_FOUND", "no such container")]
    assert [one.code for one in runtime.containers(namespace="kube-system")] == [0]


def test_a_container_without_output_does_not_hide_the_log_of_the_previous_one(runtime, fake, place):
    (place / "0.log").write_text("t stderr F bind: address already in use\n")
    (place / "1.log").write_text("")
    fake.containers = [container("old", created=1), container("new", created=2)]
    fake.logs = {"old": str(place / "0.log"), "new": str(place / "1.log")}
    assert runtime.last_lines("etcd", count=3) == ["bind: address already in use"]


def test_the_last_lines_of_a_single_container_are_read(runtime, fake, place):
    for number in (0, 1):
        (place / f"{number}.log").write_text(f"t stderr F run {number}\n")
    fake.containers = [container("old", created=1), container("new", created=2)]
    fake.logs = {"old": str(place / "0.log"), "new": str(place / "1.log")}
    found = [runtime.last_lines("etcd", count=3, container=one) for one in ("", "old", "removed")]
    assert found == [["run 1"], ["run 0"], []]


def test_only_calls_of_the_interface_are_made(runtime, fake):
    used = {path for path in vars(client_module).values() if isinstance(path, str) and path.startswith("/runtime.v1")}
    assert used == {"/runtime.v1.RuntimeService/", "/runtime.v1.ImageService/"}
    assert len(CALLS) == 14


def test_a_missing_socket_is_reported_with_a_hint(place):
    endpoint = f"unix://{place}/none.sock"
    with pytest.raises(RuntimeUnavailable) as caught:
        CRIRuntime(endpoint).version()
    assert str(caught.value) == f"no container runtime answers at {endpoint}: there is no {place}/none.sock"
    assert "systemctl enable --now containerd" in caught.value.remedy
    assert "--cri-socket" in caught.value.remedy


def test_a_socket_without_a_listener_means_that_the_runtime_is_down(place):
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(place / "s"))
    with pytest.raises(RuntimeUnavailable, match="nothing listens") as caught:
        CRIRuntime(f"unix://{place}/s").version()
    assert "start it" in caught.value.remedy


def test_a_file_that_is_no_socket_is_reported(place):
    (place / "s").write_text("")
    with pytest.raises(RuntimeUnavailable, match="is no socket"):
        CRIRuntime(f"unix://{place}/s").version()


def test_a_path_that_is_too_long_for_a_socket_is_refused(place):
    with pytest.raises(RuntimeUnavailable, match="too long"):
        CRIRuntime(f"unix://{place}/{'x' * 120}").version()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_socket_without_permission_is_reported_with_the_user(fake, place):
    place.chmod(0o700)
    program = (
        "import os, sys\n"
        "from kubewright.host.cri import failures  # before: others may not read it\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "number = failures.probe(sys.argv[1]); error = failures.unreachable('unix://s', sys.argv[1], number)\n"
        "print(type(error).__name__, error, '|', error.remedy)"
    )
    path = fake.endpoint.removeprefix("unix://")
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False, env=importable())
    assert "RuntimeUnavailable no container runtime answers at unix://s: user 65534 may not connect to it" in done.stdout, done.stderr
    assert "run the command as root" in done.stdout


def importable() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_a_server_that_is_no_runtime_is_detected(place):
    """It answers, but not with HTTP/2."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place / "s"))
        server.listen(8)
        ended = threading.Event()

        def answer():
            while not ended.is_set():
                with contextlib.suppress(OSError):  # it hung up, or the test is over
                    connection, _ = server.accept()
                    with connection:
                        connection.sendall(b"SSH-2.0-x\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        try:
            with pytest.raises(RuntimeUnavailable, match="cannot report its version") as caught:
                Client(f"unix://{place}/s", timeout=HANGS).version()
        finally:
            ended.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join(HANGS)
    assert caught.value.detail


def test_a_hanging_runtime_times_out(place):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place / "s"))
        server.listen(8)
        with pytest.raises(RuntimeSilent) as caught:
            Client(f"unix://{place}/s", timeout=0.3).version()
    assert "no answer within 0.3 s" in caught.value.detail
    assert "journalctl" in caught.value.remedy


def test_a_runtime_that_accepts_no_calls_counts_as_hanging():
    for number in (errno.ETIMEDOUT, errno.EAGAIN):
        assert isinstance(failures.unreachable("unix:///s", "/s", number), RuntimeSilent)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOTDIR, errno.ECONNREFUSED, errno.EACCES, errno.ENAMETOOLONG])
def test_a_runtime_that_cannot_be_reached_is_not_merely_silent(number):
    assert not isinstance(failures.unreachable("unix:///no/s", "/no/s", number), RuntimeSilent)


@pytest.mark.parametrize(
    ("code", "said", "silent"),
    [
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", True),
        ("UNAVAILABLE", "Socket closed", True),
        ("INTERNAL", "Received RST_STREAM with code 2", True),
        ("CANCELLED", "Channel closed!", False),
        ("UNIMPLEMENTED", "unknown service runtime.v1.RuntimeService", False),
        ("UNKNOWN", "no space left on device", False),
    ],
)
def test_a_missing_answer_and_a_refusal_are_distinguished(code, said, silent):
    error = failures.refused(failures.Refusal(doing="list its pods", code=code, said=said), endpoint="unix:///s")
    assert isinstance(error, RuntimeSilent) is silent


def test_a_runtime_without_the_interface_is_reported_with_the_required_version(runtime, fake):
    fake.fails["Version"] = [("UNIMPLEMENTED", "unknown service runtime.v1.RuntimeService")]
    with pytest.raises(RuntimeUnavailable, match=r"unknown service runtime\.v1") as caught:
        runtime.version()
    assert "disabled_plugins" in caught.value.remedy


def test_a_restarted_runtime_is_used_again(place):
    runtime = CRIRuntime(f"unix://{place}/s", timeout=HANGS)
    for _ in range(2):
        with pytest.raises(RuntimeUnavailable):
            runtime.version()
        with serving(FakeRuntime(), place / "s"):
            assert wait_for(runtime.version).name == "fake"
    runtime.close()


def wait_for(call):
    """Repeat until there is an answer."""
    end = time.monotonic() + HANGS
    while time.monotonic() < end:
        with contextlib.suppress(RuntimeUnavailable):
            return call()
        time.sleep(0.1)
    return call()


def test_a_closed_connection_ends_calls_with_a_proper_error(fake):
    client = Client(fake.endpoint, timeout=HANGS)
    assert client.version().name == "fake"
    client.close()
    with pytest.raises(RuntimeUnavailable, match="the connection was closed"):
        client.version()


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:1", "npipe:////./pipe/x", "unix://", "unix://relative", "unix://tcp://h:1", ""])
def test_only_sockets_of_this_machine_are_used(endpoint):
    with pytest.raises(HostError, match="is not the address of a container runtime"):
        CRIRuntime(endpoint).version()


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ('failed to resolve reference "r/a:1": r/a:1: not found', "check that the registry has this name and tag"),
        ("dial tcp 10.0.0.1:443: connect: connection refused", "let the runtime reach the registry"),
        ("dial tcp: lookup r.example.com: no such host", "let the runtime reach the registry"),
        ("http: server gave HTTP response to HTTPS client", "the registry does not use TLS"),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "trust the registry's CA"),
        ("unexpected status from HEAD request: 401 Unauthorized", "configure credentials for the registry"),
        ("pull access denied, repository does not exist or may require authorization", "configure credentials for the registry"),
        ('failed to parse image reference "A:b c": invalid reference format', "correct the name"),
        ("something else", "see the runtime's log"),
    ],
)
def test_errors_of_a_registry_have_a_hint(runtime, fake, said, remedy):
    fake.fails["PullImage"] = [("UNKNOWN", said)]
    with pytest.raises(HostError) as caught:
        runtime.pull("r/a:1")
    assert caught.value.what == "the image r/a:1 cannot be pulled"
    assert said in caught.value.detail
    assert remedy in caught.value.remedy
    assert not isinstance(caught.value, RuntimeUnavailable)


def test_errors_of_a_registry_do_not_count_as_runtime_failures(runtime, fake):
    for code in ("UNAVAILABLE", "INTERNAL", "NOT_FOUND"):
        fake.fails["PullImage"] = [(code, "failed to pull and unpack image: connection reset by peer")]
        with pytest.raises(HostError) as caught:
            runtime.pull("r/a:1")
        assert not isinstance(caught.value, RuntimeUnavailable)


def test_a_full_disk_is_reported_as_one(runtime, fake):
    fake.fails["PullImage"] = [("UNKNOWN", "write /var/lib/containerd/x: no space left on device")]
    with pytest.raises(DiskFull, match="cannot be pulled"):
        runtime.pull("a")


def test_missing_grpc_is_reported_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "kubewright.host.cri.client", None)
    with pytest.raises(HostError) as caught:
        CRIRuntime("unix:///dev/null").version()
    assert "pip install grpcio protobuf" in caught.value.remedy


def test_without_a_socket_grpc_is_not_loaded(monkeypatch):
    monkeypatch.setitem(sys.modules, "kubewright.host.cri.client", None)
    with pytest.raises(RuntimeUnavailable, match="no container runtime answers at unix:///no/such/socket"):
        CRIRuntime("unix:///no/such/socket").sandboxes()


def test_the_seam_does_not_import_grpc():
    program = (
        "import sys; from kubewright.host import real, overlay; from kubewright.host.cri import images_and_sandboxes, runtime\n"
        "runtime.CRIRuntime('unix:///x')\n"
        "print(sorted({'grpc', 'google'} & {name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=importable())
    assert done.stdout == "[]\n"


def test_a_log_file_can_be_read_by_another_reader(fake):
    fake.containers = [api.Container(id="c")]
    fake.logs = {"c": "/no/such/log"}
    runtime = CRIRuntime(
        fake.endpoint, timeout=HANGS, tail=lambda path: f"t stdout F {path}".encode() if path == PurePosixPath("/no/such/log") else b""
    )
    assert runtime.last_lines("etcd", count=1) == ["/no/such/log"]
    runtime.close()
