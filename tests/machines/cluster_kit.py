"""A cluster made by kubeadm and one made by kubewright, with the same configuration and the same names, each in its own bed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from machine_kit import CONFIG, ENVIRONMENT, INIT, SHARED, administer, argv, signed, write
from testbed.bed import Bed

from kubewright.base.records import replace
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access, BearerToken, Identity
from kubewright.kube.kubeconfigs import load_access
from kubewright.machines.machine import Ended, Machine
from kubewright.machines.parts import Parts

KUBEADM, KUBEWRIGHT = "kubeadm", "kubewright"
TOKEN = "abcdef.0123456789abcdef"
CERTIFICATE_KEY = "0123456789abcdef" * 4
"""Given to both tools, so that the results can be compared."""


def configuration(machine: Machine) -> str:
    """Return the configuration of a first control plane with a known token and certificate key."""
    known = f"kind: InitConfiguration\ncertificateKey: {CERTIFICATE_KEY}\nbootstrapTokens: [{{token: {TOKEN}}}]\n"
    return INIT.format(address=machine.address).replace("kind: InitConfiguration\n", known)


@dataclass(frozen=True)
class Cluster:
    """A cluster and the tool that made it."""

    tool: str
    bed: Bed

    @property
    def first(self) -> Machine:
        """The first control plane."""
        return next(iter(self.bed.machines.values()))

    def call(self, machine: Machine, *arguments: str, tool: str = "", check: bool = True) -> Ended:
        """Run a command on one machine, with the tool that made the cluster or another one."""
        return run(tool or self.tool, machine, *arguments, check=check)

    def access(self, path: str) -> Access:
        """Return the access that a kubeconfig of the first control plane gives, with an address that the host can reach."""
        found = load_access(PurePosixPath(path), read=lambda name: content(self.first, str(name)))
        return replace(found, server=f"https://{self.first.address}:6443")

    @contextmanager
    def client(self, identity: Identity | None = None, *, path: str = "/etc/kubernetes/admin.conf") -> Iterator[KubeClient]:
        """Provide a client with the identity of a kubeconfig, or another one."""
        access = self.access(path)
        client = KubeClient(access.as_identity(identity) if identity is not None else access)
        try:
            yield client
        finally:
            client.close()


def content(machine: Machine, path: str) -> bytes:
    """Read a file as the machine sees it: its symbolic links are absolute."""
    return machine.run("cat", path).out.encode()


def run(tool: str, machine: Machine, *arguments: str, check: bool = True) -> Ended:
    """Run a command of kubeadm or kubewright as root on the machine."""
    if tool == KUBEADM:
        return machine.run("kubeadm", *arguments, env={"KUBECONFIG": "/etc/kubernetes/admin.conf"}, check=check)
    return machine.run(*argv(*arguments), env=ENVIRONMENT, check=check)


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Call functions at the same time; returns their results in order. Their first error is raised when all have ended."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


@contextmanager
def both(parts: Parts, *, topic: str, names: Sequence[str] = ("one",)) -> Iterator[Mapping[str, Cluster]]:
    """Provide a cluster of either tool whose first machine is a control plane with uploaded certificates; the others have not joined."""
    with ExitStack() as stack:
        clusters = {
            tool: Cluster(tool, stack.enter_context(Bed(*names, bed=f"{topic}-{tool}", parts=parts, shared=SHARED)))
            for tool in (KUBEADM, KUBEWRIGHT)
        }
        at_once(*(lambda cluster=cluster: begin(cluster) for cluster in clusters.values()))
        yield clusters


def begin(cluster: Cluster) -> str:
    """Make the first machine a control plane; returns the output of `init`."""
    write(cluster.first, CONFIG, configuration(cluster.first))
    said = cluster.call(cluster.first, "init", "--config", CONFIG, "--upload-certs").out
    signed(cluster.first, TOKEN)
    return said


def service_account_token(cluster: Cluster, name: str) -> BearerToken:
    """Return a token of a service account in kube-system."""
    made = administer(cluster.first, "-n", "kube-system", "create", "token", name)
    return BearerToken(made.out.strip())
