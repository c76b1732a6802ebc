"""Clusters of whole machines for tests: the commands of kubewright, traces on the host, and an image that no registry has."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts import machine_tree

from kubewright.base.level import KUBERNETES
from kubewright.binaries.table import native_architecture
from kubewright.local.paths import ClusterPaths
from kubewright.local.whole import members
from kubewright.local.whole.services.places import runtime
from kubewright.machines import cgroups, images, kit, oci
from kubewright.machines.base import place
from kubewright.machines.group import bridge_of
from kubewright.machines.images import Image, archive
from kubewright.machines.network import Network, bridges, namespaces
from kubewright.machines.parts import Parts
from kubewright.machines.running import run
from kubewright.machines.tree import contents

KUBECTL = ("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf")


class Cluster:
    """The commands of kubewright for one cluster, with a directory for state and disks that several clusters may share.

    The clusters themselves may have another `directory`. `before` are the words before all commands.
    """

    def __init__(self, name: str, state: Path, *, directory: Path | None = None, before: Sequence[str] = ()) -> None:
        self.name = name
        self.state = state
        self.environment = {**os.environ, "XDG_STATE_HOME": str(state)}
        self._before = before
        self._directory = ("--state-dir", str(directory)) if directory else ()
        self.paths = ClusterPaths((directory or state / "kubewright" / "clusters") / name)
        self.group = members.group_name(self.paths)
        self.disks = state / "kubewright" / "machines" / self.group

    def start(self, *words: str, **streams: Any) -> subprocess.Popen[str]:
        end = words.index("--") if "--" in words else len(words)
        argv = [*self._before, sys.executable, "-m", "kubewright", *words[:end], *self._directory, *words[end:]]
        return subprocess.Popen(argv, env=self.environment, text=True, **streams)

    def call(self, *words: str, text: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        process = self.start(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(text)
        assert process.returncode == 0 or not check, f"{words} exited with {process.returncode}:\n{err}"
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def up(self, *words: str) -> dict[str, Any]:
        return dict(json.loads(self.call("up", "--name", self.name, "--wait", "20m", "-o", "json", *words).stdout))

    def killed_up(self, at: Callable[[Mapping[str, Any]], bool], *words: str, by: signal.Signals = signal.SIGKILL) -> bool:
        """Run `up` and send it a signal when it reports such an event; returns whether this ended it: it may end before."""
        argv = ("up", "--name", self.name, "--wait", "20m", "-o", "json", *words)
        process = self.start(*argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert process.stderr is not None
        is_due = True
        with process.stderr as lines:  # to the end: a command that is interrupted reports that
            for line in lines:
                if is_due and line.startswith("{") and at(json.loads(line)):
                    process.send_signal(by)
                    is_due = False
        return process.wait() in {-by, 128 + by}

    def down(self, *words: str) -> None:
        self.call("down", "--name", self.name, *words)

    def machine(self, verb: str, name: str) -> None:
        self.call("local", "machine", verb, f"{self.name}-{name}")

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.call("local", "status", self.name, "-o", "json").stdout))

    def states(self) -> dict[str, str]:
        """Return the states of the machines, by name without that of the cluster."""
        return states(self.status())

    def inside(self, machine: str, *words: str, text: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.call("local", "shell", f"{self.name}-{machine}", "--", *words, text=text, check=check)

    def kubectl(self, *words: str, text: str = "", machine: str = "control-plane") -> str:
        return self.inside(machine, *KUBECTL, *words, text=text).stdout

    def balancer(self, service: str) -> str:
        """Return the address of a LoadBalancer Service, '' while it has none."""
        return self.kubectl("get", "service", service, "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}")

    def in_pod(self, pod: str, *words: str) -> str:
        """Return the output of a command in a pod; it may fail, or be impossible for a while."""
        return self.inside("control-plane", *KUBECTL, "exec", pod, "--", *words, check=False).stdout

    def places(self, label: str) -> list[str]:
        """Return the machines of the pods with a label that are ready and stay, sorted."""
        pods = json.loads(self.kubectl("get", "pods", "-l", label, "-o", "json"))["items"]
        return sorted(pod["spec"]["nodeName"] for pod in pods if "deletionTimestamp" not in pod["metadata"] and _is_ready(pod))

    def has_uninitialized_nodes(self) -> bool:
        """Whether kube-controller-manager has yet to remove the taint of a Node that has become ready: pods are placed on others until then."""
        return "node.kubernetes.io/not-ready" in self.kubectl("get", "nodes", "-o", "jsonpath={.items[*].spec.taints[*].key}")

    def via(self, address: str) -> str:
        """Return the machine to which the host sends packets for an address, '' for none."""
        return Network(bridge=bridge_of(self.group)).routes().get(address, "")

    def traces(self) -> list[str]:
        """Name all that the cluster has on the host. Other clusters and beds may be there at the same time."""
        bridge = bridge_of(self.group)
        found = [one.name for one in cgroups.named(self.group)]
        found += [line for line in Path("/proc/mounts").read_text().splitlines() if self.group in line]
        found += [name for name in namespaces() if name.startswith(bridge)] + [name for name in bridges() if name == bridge]
        found += [str(path) for path in Path("/run/systemd/nspawn").glob(f"*/{self.group}-*")]
        found += [str(path) for path in Path("/run/systemd/machines").glob(f"*{self.group}*")]
        found += [str(path) for path in Path("/proc").glob("[0-9]*") if self.group in _text(path / "cmdline")]
        found += [line.strip() for line in run("chroot", str(place()), "nft", "list", "ruleset").splitlines() if bridge in line]
        places = (self.disks, self.paths.root, runtime(self.paths).root)
        return found + [str(path) for place in places for path in place.glob("*")]


@contextmanager
def disk_place() -> Iterator[Path]:
    """Provide a directory on the file system of the cache, because disks of machines share the store by hard links."""
    base = Path.home() / ".local" / "state"
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kubewright-whole-", dir=base) as found:
        yield Path(found)


@contextmanager
def clusters(*names: str) -> Iterator[list[Cluster]]:
    """Provide clusters that do not exist yet, and remove them."""
    with disk_place() as state:
        found = [Cluster(f"{name}{os.getpid()}", state) for name in names]
        try:
            yield found
        finally:
            for cluster in found:
                cluster.down()


def use_a_tree(cluster: Cluster, parts: Parts) -> None:
    """Let a machine tree be the only source of parts, as on a host without debootstrap, Go, a compiler and network, and with an empty cache."""
    version, architecture = KUBERNETES, native_architecture()
    tree = cluster.state / "tree" / contents.file_name(version=version, architecture=architecture)
    tree.parent.mkdir(mode=0o755)
    described = contents.encode(contents.expected(version=version, architecture=architecture))
    programs = {**kit.programs(contents.NAMES), contents.PAUSE: images.ensure_pause()}
    machine_tree.write(tree, tree=parts.base, programs=programs, licenses={}, described=described, level=1)
    empty = {"XDG_CACHE_HOME": str(cluster.state / "cache"), "KUBEWRIGHT_CACHE_DIR": "", "KUBEWRIGHT_BINARIES_DIR": str(tree.parent)}
    cluster.environment |= {**empty, "KUBEWRIGHT_OFFLINE": "1", "KUBEWRIGHT_NO_BUILD": "1"}


def fetched(url: str) -> str:
    """Return what is served at a URL, '' if nothing is. No proxy of the environment is used."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return ""


def web(parts: Parts, target: Path, *, reference: str = "docker.io/library/web:dev") -> Path:
    """Write an archive of an image that no registry has."""
    busybox = (parts.base / "bin" / "busybox").resolve()
    links = {f"bin/{name}": "/bin/busybox" for name in ("sh", "mkdir", "cat", "httpd", "sleep")}
    archive(Image(reference, {"bin/busybox": busybox}, links=links), target)
    return target


def docker_archive(oci_archive: Path, target: Path, reference: str) -> Path:
    """Write the image of an OCI archive as `docker save` does before Docker 25, under another name."""
    with tarfile.open(oci_archive) as source, tarfile.open(target, "w") as made:

        def content(name: str) -> bytes:
            file = source.extractfile(name)
            assert file is not None
            return file.read()

        def blob(descriptor: Mapping[str, str]) -> bytes:
            return content(f"blobs/sha256/{descriptor['digest'].removeprefix('sha256:')}")

        manifest = json.loads(blob(json.loads(content("index.json"))["manifests"][0]))
        oci.add(made, "config.json", blob(manifest["config"]))
        oci.add(made, "layer.tar", gzip.decompress(blob(manifest["layers"][0])))
        oci.add(made, "manifest.json", oci.encode([{"Config": "config.json", "RepoTags": [reference], "Layers": ["layer.tar"]}]))
    return target


def foreign(oci_archive: Path, target: Path) -> Path:
    """Write the image of an OCI archive for another architecture and under the name `arm64`, as a Docker archive."""
    docker_archive(oci_archive, target.with_suffix(".ours"), "docker.io/library/arm64:dev")
    with tarfile.open(target.with_suffix(".ours")) as source, tarfile.open(target, "w") as made:
        for entry in source:
            content = source.extractfile(entry)
            assert content is not None
            oci.add(made, entry.name, content.read().replace(b'"architecture":"amd64"', b'"architecture":"arm64"'))
    return target


def states(status: Mapping[str, Any]) -> dict[str, str]:
    """Return the states of machines in a status, by name without that of the cluster."""
    return {machine["name"].removeprefix(f"{status['name']}-"): machine["state"] for machine in status["machines"]}


def machine_changes(status: Mapping[str, Any]) -> list[str]:
    """Return the machines that `up` has changed, by name without that of the cluster."""
    start = f"machine {status['name']}-"
    return [change["target"].removeprefix(start) for change in status["changes"] if change["target"].startswith(start)]


def _is_ready(pod: Mapping[str, Any]) -> bool:
    return ("Ready", "True") in {(one["type"], one["status"]) for one in pod["status"].get("conditions", ())}


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
