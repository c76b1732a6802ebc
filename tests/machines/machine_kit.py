"""Shared by the tests of this tier: configurations, kubewright and kubectl in a machine."""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from testbed.configuration import KUBEADM
from testbed.sharing import ENVIRONMENT, PYTHON, SHARED

from kubewright.base import yaml
from kubewright.base.records import replace
from kubewright.machines.machine import Ended, Machine
from typed import Reader, Terminal

if TYPE_CHECKING:
    import pytest

__all__ = [
    "CONFIG",
    "ENVIRONMENT",
    "INIT",
    "PATIENT",
    "SHARED",
    "Running",
    "administer",
    "argv",
    "eventually",
    "gone",
    "join_command",
    "kubectl",
    "kubewright",
    "patiently",
    "printed",
    "proxy_container",
    "reading",
    "ready",
    "signed",
    "used_by",
    "write",
]

CONFIG = "/root/kubeadm.yaml"
ADMINISTRATOR = {"KUBECONFIG": "/etc/kubernetes/admin.conf"}
_PASSING = (
    *("etcdserver: ", "timeout", "timed out", "was refused", "reset by peer", "EOF", "currently unable to handle", "try again"),
    # an API server that has just started does not know all roles, and a new namespace has no default service account for pods
    "is forbidden: ",
)
"""Messages of kubectl after which the same command may work a moment later."""
_DONE = {"create": "(AlreadyExists)", "delete": "(NotFound)"}
"""What kubectl says if the command was carried out by an earlier attempt, whose answer was lost."""
PATIENT = """\
timeouts:
  controlPlaneComponentHealthCheck: 10m
  discovery: 10m
  etcdAPICall: 10m
  kubeletHealthCheck: 10m
  kubernetesAPICall: 10m
  tlsBootstrap: 10m
"""
"""Guards against hangs instead of the defaults, which a machine that is busy with other tests may exceed."""
SOON = "failCgroupV1: false\ncrashLoopBackOff: {{maxContainerRestartPeriod: 5s}}\n"
"""Lets the kubelet restart a container after five seconds at most, not after up to five minutes."""
INIT = KUBEADM.replace("nodeRegistration:\n", f"{PATIENT}nodeRegistration:\n").replace("failCgroupV1: false\n", SOON)
"""A first control plane; `address` is the machine's own address."""
_WORDS = argparse.ArgumentParser()
"""What `patiently` understands."""
_WORDS.add_argument("endpoint")
for _flag in ("token", "certificate-key", "node-name"):
    _WORDS.add_argument(f"--{_flag}", default="")
_WORDS.add_argument("--discovery-token-ca-cert-hash", action="append", default=[])
for _flag in ("discovery-token-unsafe-skip-ca-verification", "control-plane"):
    _WORDS.add_argument(f"--{_flag}", action="store_true")


def used_by(request: pytest.FixtureRequest, fixture: str) -> list[str]:
    """Return the name of a fixture if a selected test of the requesting file uses it: a machine that no test uses is not booted."""
    names = [getattr(item, "fixturenames", ()) for item in request.session.items if item.path == request.path]
    return [fixture] if any(fixture in one for one in names) else []


def write(machine: Machine, path: str, text: str) -> None:
    machine.run("sh", "-c", f"cat > {path}", data=text)


def argv(*arguments: str) -> list[str]:
    return [PYTHON, "-m", "kubewright", *arguments]


def kubewright(machine: Machine, *arguments: str, check: bool = True) -> Ended:
    return machine.run(*argv(*arguments), env=ENVIRONMENT, check=check)


@contextmanager
def reading(machine: Machine) -> Iterator[Reader]:
    """Provide a reader of guides who types on a machine, until that loses power. Commands find kubewright on PATH."""
    words = " ".join([*(f"{name}={value}" for name, value in ENVIRONMENT.items()), *argv()])
    write(machine, "/usr/local/bin/kubewright", f'#!/bin/sh\nexec env {words} "$@"\n')
    write(machine, "/usr/local/bin/sudo", '#!/bin/sh\nexec "$@"\n')
    machine.run("chmod", "755", "/usr/local/bin/kubewright", "/usr/local/bin/sudo")
    with closing(Terminal(machine.argv("bash", "--noprofile", "--norc"))) as terminal:
        yield Reader({"one": terminal})


class Running:
    """A command of kubewright, or of another tool, that is running in a machine, and its output so far."""

    def __init__(self, machine: Machine, *arguments: str, tool: Sequence[str] = argv(), **environment: str) -> None:
        environment = {**ENVIRONMENT, **environment}
        self._process = machine.start(*tool, *arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.said = ""

    def says(self, text: str) -> str:
        """Read until a line contains a text, and return that line."""
        assert self._process.stdout is not None
        for line in iter(self._process.stdout.readline, b""):
            self.said += line.decode()
            if text in line.decode():
                return line.decode()
        raise AssertionError(f"it never said {text!r}:\n{self.said}")

    def ended(self) -> Ended:
        """Wait until it has ended. `err` has what it wrote to either stream."""
        rest, _ = self._process.communicate(timeout=900)
        return Ended(code=self._process.returncode, err=self.said + rest.decode())


def kubectl(machine: Machine, *arguments: str) -> dict[str, Any]:
    """Make a request with the administrator's kubeconfig; {} if the object does not exist, or there is no API server."""
    ended = administer(machine, *arguments, "-o", "json", check=False)
    return dict(json.loads(ended.out)) if ended.code == 0 else {}


def gone(machine: Machine, *arguments: str) -> bool:
    """Whether the API server says that an object does not exist, unlike `kubectl`, which returns the same if there is no API server."""
    return "(NotFound)" in administer(machine, "get", *arguments, check=False).err


def administer(machine: Machine, *arguments: str, check: bool = True, data: str | None = None) -> Ended:
    """Run kubectl with the administrator's kubeconfig; `data` is its input.

    The command is repeated if the cluster cannot answer for a moment, as while etcd elects a leader.
    """
    for attempt in range(60):
        ended = machine.run("kubectl", *arguments, env=ADMINISTRATOR, check=False, data=data)
        if attempt and any(verb in arguments and text in ended.err for verb, text in _DONE.items()):
            ended = replace(ended, code=0)
        if ended.code == 0 or not any(text in ended.err for text in _PASSING):
            break
        time.sleep(1)
    assert ended.code == 0 or not check, (
        f"kubectl {' '.join(arguments)} on {machine.name} ended with {ended.code}:\n{ended.err or ended.out}"
    )
    return ended


def join_command(machine: Machine, *, tool: Sequence[str] = argv()) -> list[str]:
    """Let a control plane create a token.

    Returns the words of the join command from `join` on, once a join finds the signature of the token.
    """
    words = machine.run(*tool, "token", "create", "--print-join-command", env={**ENVIRONMENT, **ADMINISTRATOR}).out.split()[1:]
    signed(machine, words[words.index("--token") + 1])
    return words


def patiently(machine: Machine, words: Sequence[str]) -> list[str]:
    """Write the settings of a join command, and PATIENT, to a configuration file on a machine; returns the arguments to join with it."""
    said = _WORDS.parse_args(words[words[0] == "join" :])
    found = {
        "apiServerEndpoint": said.endpoint,
        "token": said.token,
        "caCertHashes": said.discovery_token_ca_cert_hash,
        "unsafeSkipCAVerification": said.discovery_token_unsafe_skip_ca_verification,
    }
    registration = {"ignorePreflightErrors": ["SystemVerification"]} | ({"name": said.node_name} if said.node_name else {})
    body: dict[str, Any] = {"discovery": {"bootstrapToken": found}, "nodeRegistration": registration}
    body |= {"controlPlane": {"certificateKey": said.certificate_key}} if said.control_plane else {}
    text = yaml.dump({"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration", **body})
    write(machine, CONFIG, text + PATIENT)
    return ["join", "--config", CONFIG]


def signed(machine: Machine, token: str) -> None:
    """Wait for the signature of a token.

    A join waits only for seconds, because in an older cluster the controller has had enough time to sign.
    """
    key = f"jws-kubeconfig-{token.partition('.')[0]}"
    info = ("-n", "kube-public", "get", "configmap", "cluster-info")
    eventually(lambda: key in kubectl(machine, *info).get("data", {}), "cluster-info to be signed with the token")


def eventually(condition: Callable[[], bool], what: str, *, within: float = 600) -> None:
    """Wait; the timeout guards against hangs and measures nothing. Most conditions start programs, so they are tested less and less often."""
    end, pause = time.monotonic() + within, 0.2
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(pause)
        pause = min(1.3 * pause, 2.0)


def ready(machine: Machine, kind: str, name: str) -> bool:
    """Whether all pods of a workload are ready."""
    status = kubectl(machine, "-n", "kube-system", "get", kind, name).get("status", {})
    wanted = status.get("desiredNumberScheduled") or status.get("replicas") or 0
    return wanted > 0 and wanted == (status.get("numberReady") or status.get("readyReplicas"))


def printed(machine: Machine, image: str, *command: str) -> str:
    """Return what a program of an image writes. On a busy machine ctr loses all of it: then the program runs again."""
    run = ("ctr", "-n", "k8s.io", "run", "--rm", "--snapshotter", "overlayfs", "--cgroup", "/tried", image, "tried")
    found: list[str] = []

    def has_written() -> bool:
        found.append(machine.run(*run, *command).out)
        return found[-1] != ""

    eventually(has_written, f"output of {command[0]}")
    return found[-1]


def proxy_container(machine: Machine) -> str:
    """Return the container of kube-proxy on the only machine of a cluster: a workload that nothing should restart."""
    found: list[str] = []

    def runs() -> bool:
        pods = kubectl(machine, "-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-proxy").get("items", [])
        found[:] = [one["containerID"] for pod in pods for one in pod["status"].get("containerStatuses", ()) if "running" in one["state"]]
        return len(found) == 1

    eventually(runs, "kube-proxy to run")
    return found[0]
