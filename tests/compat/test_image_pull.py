"""`config images pull` of both tools with a real containerd and a registry on loopback: the same lines, the same exit code."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from containerd_kit import Containerd, containerd, mounts_below, programs
from registry_kit import Registry, serving

from busy import HANGS
from kubewright.base.change import Action
from kubewright.base.errors import HostError
from kubewright.host.cri.runtime import CRIRuntime

VERSION = "v1.36.3"
NAMES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
OTHERS = {"coredns": "v1.14.2", "pause": "3.10.2", "etcd": "3.6.8-0"}
NOBODY = 65534


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Tools:
    """Both tools, pulling from a registry through a runtime."""

    kubeadm: Path
    runtime: Containerd
    registry: Registry

    def theirs(self, *flags: str, **more: object) -> Ran:
        """Run kubeadm, again if the runtime serves and took longer than the two seconds that it is given, as on a busy machine."""
        words = [str(self.kubeadm), *self.words(*flags)]
        for _ in range(60):
            ran = _run(words, **more)
            if "DeadlineExceeded" not in ran.err or not self.runtime.serves or any(flag.startswith("--cri-socket") for flag in flags):
                break
        return ran

    def ours(self, *flags: str, **more: object) -> Ran:
        return _run([sys.executable, "-m", "kubewright", *self.words(*flags)], **more)

    def words(self, *flags: str) -> list[str]:
        defaults = {"--kubernetes-version": VERSION, "--cri-socket": self.runtime.endpoint, "--image-repository": self.repository}
        given = {flag.partition("=")[0] for flag in flags}
        config = "--config" in given
        return [
            "config",
            "images",
            "pull",
            *(f"{name}={value}" for name, value in defaults.items() if name not in given and not config),
            *flags,
        ]

    @property
    def repository(self) -> str:
        return f"{self.registry.address}/x"


def _run(argv: list[str], **more: object) -> Ran:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=HANGS, check=False, env=environment, **more)
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    made = Registry()
    for number, (name, tag) in enumerate(({**dict.fromkeys(NAMES, VERSION), **OTHERS}).items()):
        made.add(f"x/{name}", tag, {"which": f"{number}".encode()})
    with serving(made):
        yield made


@pytest.fixture(scope="module")
def running(registry) -> Iterator[Containerd]:
    programs("containerd", "kubeadm")
    with containerd() as found:
        found.allow_http(registry.address)
        place = found.place
        yield found
    assert mounts_below(place) == []
    assert not place.exists()


@pytest.fixture
def tools(running, registry) -> Iterator[Tools]:
    """Afterwards the runtime has no images, and the registry is as it was."""
    yield Tools(programs("kubeadm")["kubeadm"], running, registry)
    registry.refusal = None
    with_runtime = CRIRuntime(running.endpoint, timeout=HANGS)
    for image in with_runtime.images():
        with_runtime.client.remove_image(image.id)
    with_runtime.close()


def lines(registry: Registry) -> str:
    named = [*(f"{name}:{VERSION}" for name in NAMES), *(f"{name}:{tag}" for name, tag in OTHERS.items())]
    return "".join(f"[config/images] Pulled {registry.address}/x/{image}\n" for image in named)


def test_both_tools_print_the_same_lines_and_leave_the_same_images(tools):
    first = tools.theirs()
    images = CRIRuntime(tools.runtime.endpoint, timeout=HANGS).images()
    second = tools.ours()
    assert second == first == Ran(0, lines(tools.registry), "")
    assert CRIRuntime(tools.runtime.endpoint, timeout=HANGS).images() == images
    assert len(images) == 7


def test_existing_images_are_requested_again_as_by_kubeadm(tools):
    assert tools.ours().code == 0
    asked = []
    for tool in (tools.theirs, tools.ours):
        tools.registry.asked.clear()
        assert tool().code == 0
        asked.append(sorted(set(tools.registry.asked)))
    assert asked[0] == asked[1]
    assert len(asked[0]) == 7


def test_the_result_as_json_names_the_images_and_events_go_to_stderr(tools):
    done = tools.ours("-o", "json")
    assert json.loads(done.out)["kind"] == "Images"
    assert len(json.loads(done.out)["images"]) == 7
    events = [json.loads(line) for line in done.err.splitlines()]
    assert [event["text"] for event in events if event["event"] == "Line"][-1].endswith("etcd:3.6.8-0")
    assert max(event["done"] for event in events if event["event"] == "Progress") == 7


def written(path: Path, tools: Tools, *, serial: str) -> str:
    """A file that names everything, without CoreDNS and kube-proxy."""
    path.write_text(f"""\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration: {{criSocket: "{tools.runtime.endpoint}", imagePullSerial: {serial}}}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: {VERSION}
imageRepository: {tools.repository}
dns: {{disabled: true}}
proxy: {{disabled: true}}
""")
    return str(path)


@pytest.mark.parametrize("serial", ["true", "false"])
def test_a_file_sets_the_images_and_the_pull_policy(tools, tmp_path, serial):
    path = written(tmp_path / "kubeadm.yaml", tools, serial=serial)
    first, second = tools.theirs("--config", path), tools.ours("--config", path)
    assert second == first
    assert (second.code, second.out.count("\n"), "kube-proxy" in second.out) == (0, 5, False)


def test_parallel_pulls_get_every_available_image(tools, tmp_path):
    path = written(tmp_path / "kubeadm.yaml", tools, serial="false")
    lacking = [("x/kube-apiserver", VERSION), ("x/pause", OTHERS["pause"])]
    kept = [tools.registry.tags.pop(name) for name in lacking]
    first, second = tools.theirs("--config", path), tools.ours("--config", path)
    tools.registry.tags.update(zip(lacking, kept, strict=True))
    assert (first.code, first.out) == (1, "")  # its first image is missing, and it ends there
    assert (second.code, second.out.count("Pulled")) == (1, 3)
    assert "2 of 5 images cannot be pulled" in second.err
    assert all(f"{tools.registry.address}/{name}:{tag} cannot be pulled" in second.err for name, tag in lacking)


def test_a_missing_image_ends_both_tools_after_the_same_lines(tools):
    flag = "--kubernetes-version=v1.36.1"
    first, second = tools.theirs(flag), tools.ours(flag)
    assert (second.code, second.out) == (first.code, first.out) == (1, "")
    assert "kube-apiserver:v1.36.1 cannot be pulled" in second.err
    assert "not found" in second.err
    assert "check that the registry has this name and tag" in second.err
    kept = tools.registry.tags.pop(("x/coredns", OTHERS["coredns"]))
    first, second = tools.theirs(), tools.ours()
    tools.registry.tags["x/coredns", OTHERS["coredns"]] = kept
    assert (second.code, second.out) == (first.code, first.out)
    assert (second.code, second.out.count("Pulled")) == (1, 4)


def test_both_tools_try_a_failing_image_five_times(tools):
    asked = []
    for tool in (tools.theirs, tools.ours):
        tools.registry.asked.clear()
        assert tool("--kubernetes-version=v1.36.1").code == 1
        asked.append(tools.registry.asked.count("/v2/x/kube-apiserver/manifests/v1.36.1"))
    assert asked[0] == asked[1]
    assert asked[0] % 5 == 0


def test_both_tools_fail_if_the_registry_is_down_or_requires_credentials(tools):
    with socket.socket() as taken:  # nothing listens on a port that is only taken, and nobody else can
        taken.bind(("127.0.0.1", 0))
        flag = f"--image-repository=127.0.0.1:{taken.getsockname()[1]}/x"
        first, second = tools.theirs(flag), tools.ours(flag)
    assert (second.code, second.out) == (first.code, first.out) == (1, "")
    assert "let the runtime reach the registry" in second.err
    tools.registry.refusal = 403
    first, second = tools.theirs(), tools.ours()
    assert (second.code, second.out) == (first.code, first.out) == (1, "")
    assert "configure credentials for the registry" in second.err


@pytest.mark.parametrize(
    "flag",
    [
        "--feature-gates=Nope=true",
        "--image-repository=A b",
        "--config=/no/such/file",
        "--kubernetes-version=v1.20.0",
        "--cri-socket=/none",
        "x",
    ],
)
def test_wrong_arguments_are_reported_before_anything_is_pulled(tools, flag):
    tools.registry.asked.clear()
    first, second = tools.theirs(flag), tools.ours(flag)
    assert (second.code, second.out) == (first.code, first.out) == (1, "")
    assert tools.registry.asked == []


def test_both_tools_fail_without_a_socket(tools, tmp_path):
    flag = f"--cri-socket=unix://{tmp_path}/none"
    first, second = tools.theirs(flag), tools.ours(flag)
    assert (second.code, second.out) == (first.code, first.out) == (1, "")
    assert f"there is no {tmp_path}/none" in second.err


def test_a_user_without_access_to_the_socket_gets_an_explanation(tools):
    """Everything is loaded while it is readable: the user may not be able to read our own modules."""
    copy = Path("/tmp") / f"kubeadm-{os.getpid()}"
    shutil.copyfile(tools.kubeadm, copy)
    copy.chmod(0o755)
    try:
        first = _run([str(copy), *tools.words()], user=NOBODY, group=NOBODY, extra_groups=[])
    finally:
        copy.unlink()
    program = (
        "import os, sys\n"
        "from kubewright.cli import rootfs\n"
        "from kubewright.cli.main import main\n"
        "rootfs.preload('kubewright.cli.handlers.operations:run')\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    second = _run([sys.executable, "-c", program, *tools.words()])
    assert (second.code, second.out) == (first.code, first.out) == (1, "")
    assert f"user {NOBODY} may not connect to it" in second.err
    assert "run the command as root" in second.err


def test_both_tools_fail_while_the_runtime_is_down_and_work_afterwards(tools):
    tools.runtime.stop(signal.SIGKILL)
    try:
        first, second = tools.theirs(), tools.ours()
    finally:
        tools.runtime.start()
    assert (second.code, second.out) == (first.code, first.out) == (1, "")
    assert "nothing listens" in second.err
    assert "start it" in second.err
    assert tools.ours().code == 0


def test_runtime_information_is_read_and_a_changed_image_is_noticed(tools):
    runtime = CRIRuntime(tools.runtime.endpoint, timeout=HANGS)
    assert runtime.version().name == "containerd"
    assert runtime.status().unready is None
    assert runtime.cgroup_driver() in {"cgroupfs", "systemd"}
    image = f"{tools.repository}/pause:{OTHERS['pause']}"
    before = tools.registry.tags["x/pause", OTHERS["pause"]]
    assert not runtime.has_image(image)
    assert [runtime.pull(image).action for _ in range(2)] == [Action.CREATE, Action.NONE]
    tools.registry.add("x/pause", OTHERS["pause"], {"which": b"another"})
    assert runtime.pull(image).action is Action.UPDATE
    tools.registry.tags["x/pause", OTHERS["pause"]] = before
    with pytest.raises(HostError, match="correct the name"):
        raise_remedy(runtime, "A:b c")
    runtime.close()


def raise_remedy(runtime: CRIRuntime, image: str) -> None:
    try:
        runtime.pull(image)
    except HostError as error:
        raise HostError(error.remedy) from error
