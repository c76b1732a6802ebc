"""Replicas of the controllers as processes with a local cluster whose API server keeps an audit log, and what they did according to it."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_kit import Bench, bench, eventually

from kubewright.kube.client import KubeClient
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, LEASE
from kubewright.manifests import controllers

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "controllers"))

from controllers_kit import CLIENT_USAGES, request

NAME = controllers.NAME
CLIENT_KUBELET = "kubernetes.io/kube-apiserver-client-kubelet"
EACH = 80
"""Requests of one round."""
TIMES = ("--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2500ms", "--leader-elect-retry-period=200ms")
CONFIG = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
apiServer:
  extraArgs:
  - {{name: audit-policy-file, value: {directory}/policy.yaml}}
  - {{name: audit-log-path, value: {directory}/audit.log}}
  extraVolumes:
  - {{name: audit, hostPath: {directory}, mountPath: {directory}, pathType: Directory}}
"""
LATE = 10
"""One in so many requests of a round is sent when its leader has been interrupted."""
IN_FLIGHT = 8
"""The most requests that a replica has in flight, one per connection.

If the sender or the server is killed, or the connection is cut, they may be carried out and still be cancelled in the
audit log.
"""
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "verbs": ["update"], "resources": [{"group": "certificates.k8s.io"}]}, {"level": "None"}],
}


@dataclass(eq=False)
class Replica:
    """One process of the controllers, with its log."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def identity(self) -> str:
        """Its identity as leader, '' if it never led."""
        found = re.findall(r"(\S+) leads by the lease", self.log.read_text())
        return found[-1] if found else ""

    def signed(self, start: str, *, verb: str = "signed") -> int:
        """How many requests whose names have this prefix it has signed, or approved."""
        return len(re.findall(rf"{start}-\d+ of \S+ is {verb}", self.log.read_text()))

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)


class Replicas:
    """A cluster without its own controllers, and the replicas that run in their place."""

    def __init__(self, cluster: Bench) -> None:
        self.cluster = cluster
        [kubeconfig] = cluster.paths().machines.glob(f"*/kubernetes/{NAME}.conf")
        self.kubeconfig = kubeconfig
        self._running: list[Replica] = []
        self._made = 0

    def start(self, *flags: str, **environment: str) -> Replica:
        self._made += 1
        log = self.cluster.root / f"replica-{self._made}.log"
        pki = self.kubeconfig.parent / "pki"
        argv = [
            *(sys.executable, "-m", "kubewright", "controllers", "run", f"--kubeconfig={self.kubeconfig}", "--kube-api-qps=1000"),
            *("--kube-api-burst=1000", f"--cluster-signing-cert-file={pki / 'ca.crt'}", f"--cluster-signing-key-file={pki / 'ca.key'}"),
            *(*TIMES, "--v=2", *flags),
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(argv, stdout=output, stderr=output, env={**os.environ, **environment})
        self._running.append(Replica(process, log))
        return self._running[-1]

    @property
    def alive(self) -> int:
        """How many are running."""
        return sum(one.process.poll() is None for one in self._running)

    def others_alive(self, leader: Replica) -> int:
        """How many are running in addition to a leader."""
        return sum(one.process.poll() is None for one in self._running if one is not leader)

    def leader(self, api: KubeClient) -> Replica | None:
        """Return the replica that holds the lease."""
        leases = [one for one in api.list(LEASE, "kube-system") if one["metadata"]["name"] == NAME]
        holder = leases[0]["spec"].get("holderIdentity") if leases else ""
        return next((one for one in self._running if holder and one.identity == holder), None)

    def stop(self) -> None:
        for one in self._running:
            if one.process.poll() is None:
                one.send(signal.SIGCONT)
                one.send(signal.SIGTERM)
                one.process.wait(600)
        self._running.clear()


def audited_cluster() -> Iterator[Bench]:
    """The body of fixtures: a cluster without its own controllers, whose audit log shows who decided what."""
    for found in bench():
        directory = found.root / "audit"
        directory.mkdir()
        (directory / "policy.yaml").write_text(json.dumps(POLICY))
        found.up(nodes=0, controllers="kubewright", config=CONFIG.format(directory=directory))
        [manifest] = found.paths().machines.glob(f"*/kubernetes/manifests/{NAME}.yaml")
        manifest.unlink()
        eventually(lambda cluster=found: NAME not in cluster.components(), "the cluster's own controllers to end")
        yield found


def body(name: str) -> dict[str, Any]:
    spec = {"request": base64.b64encode(request()).decode(), "signerName": CLIENT_KUBELET, "usages": list(CLIENT_USAGES)}
    return {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}, "spec": spec}


def issued(api: KubeClient) -> set[str]:
    found = api.list(CERTIFICATE_SIGNING_REQUEST)
    return {one["metadata"]["name"] for one in found if (one.get("status") or {}).get("certificate")}


@dataclass(frozen=True)
class Work:
    """What replicas do in an interrupted round: how requests come about, which are done, and what is written about each.

    `verb` is the word in the log, `flags` are those of the replicas.
    """

    send: Callable[[KubeClient, Sequence[str]], object]
    done: Callable[[KubeClient], set[str]]
    verb: str
    writes: tuple[str, ...]
    flags: tuple[str, ...] = ()
    prepare: Callable[[KubeClient, Sequence[str]], object] = lambda _api, _names: None


SIGNING = Work(
    send=lambda api, names: [api.create(body(name)) for name in names], done=issued, verb="signed", writes=("approval", "status")
)


def decisions(cluster: Bench, *, code: int = 200) -> Counter[tuple[str, str]]:
    """Count the writes that the API server accepted (or answered otherwise), by name and subresource, from its audit log."""
    found: Counter[tuple[str, str]] = Counter()
    lines = (cluster.root / "audit" / "audit.log").read_text().rpartition("\n")[0].splitlines()  # the last one may be incomplete
    for event in map(json.loads, lines):
        if event["responseStatus"]["code"] == code and event["user"]["username"] == NAME:
            found[event["objectRef"]["name"], event["objectRef"]["subresource"]] += 1
    return found


def _in_the_middle(replicas: Replicas, api: KubeClient, names: Sequence[str], work: Work, *, least: int) -> Replica | None:
    """Wait until the leader, whichever it is by then, has signed or approved some requests of a round.

    Returns None if all of them are done: the leader has lost its lease on a slow machine, and the next one had less to do.
    """
    found: list[Replica] = []
    start = names[0].rpartition("-")[0]

    def begun() -> bool:
        _revive(replicas, *work.flags)
        leader = replicas.leader(api)
        if leader is not None and leader.process.poll() is None and leader.signed(start, verb=work.verb) >= least:
            found.append(leader)
        return bool(found) or work.done(api) >= set(names)

    eventually(begun, "the leader to be in the middle of its work")
    return found[0] if found else None


def _revive(replicas: Replicas, *flags: str) -> None:
    """Start a replica if all have ended, because none could renew its lease in time."""
    if not replicas.alive:
        replicas.start("--secure-port=0", *flags)


def _is_followed(leader: Replica, replicas: Replicas, api: KubeClient, *flags: str) -> bool:
    """Whether another replica leads. One is started if the other has ended as well: on a slow machine it led before, and lost its lease."""
    if not replicas.others_alive(leader):
        replicas.start("--secure-port=0", *flags)
    return replicas.leader(api) not in (None, leader)


@contextmanager
def _sending(api: KubeClient, names: Sequence[str], work: Work) -> Iterator[Sequence[str]]:
    """Send the requests of a round; the last of them after the block, so that no leader is done before the block has interrupted it.

    Yields the names of the others.
    """
    early, late = names[: -len(names) // LATE], names[-len(names) // LATE :]
    interrupted = threading.Event()

    def send() -> None:
        work.send(api, early)
        interrupted.wait()
        work.send(api, late)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield early
    finally:
        interrupted.set()
        sender.join()


def interrupted_rounds(
    cluster: Bench,
    api: KubeClient,
    replicas: Replicas,
    rounds: Sequence[signal.Signals],
    *,
    each: int = EACH,
    work: Work = SIGNING,
) -> int:
    """Stop or kill the leader in the middle of each round of requests; each must be decided exactly once.

    Returns in how many rounds that happened: on a slow machine a leader may lose its lease before.
    """
    names: list[str] = []
    by_leaders: list[int] = []
    for number, how in enumerate(rounds):
        while replicas.alive < 2:  # a replica that could not renew its lease in time, on a slow machine, has ended as well
            replicas.start("--secure-port=0", *work.flags)
        mine = tuple(f"round-{number}-{index:03d}" for index in range(each))
        names += mine
        work.prepare(api, mine)
        with _sending(api, mine, work) as early:
            leader = _in_the_middle(replicas, api, early, work, least=3 + 7 * (number % 8))
            if leader is not None:
                leader.send(how)
        if leader is None:
            continue
        eventually(lambda stopped=leader: _is_followed(stopped, replicas, api, *work.flags), "another leader")
        if how == signal.SIGSTOP:
            leader.send(signal.SIGCONT)
        assert leader.process.wait(600) in ({1} if how == signal.SIGSTOP else {1, -how})
        if how == signal.SIGSTOP:
            assert "was not renewed in time" in leader.log.read_text()
        by_leaders.append(leader.signed(f"round-{number}", verb=work.verb))

    def done() -> bool:
        _revive(replicas, *work.flags)
        return work.done(api) >= set(names)

    eventually(done, f"every request to be {work.verb}")
    require_once(cluster, names, lost=IN_FLIGHT * rounds.count(signal.SIGKILL), writes=work.writes)
    assert len(names) == each * len(rounds)
    assert min(by_leaders, default=each) < each, "no leader was interrupted"
    return len(by_leaders)


def require_once(cluster: Bench, names: Sequence[str], *, lost: int = 0, writes: Sequence[str] = SIGNING.writes) -> None:
    """Require that each was approved by one write, and signed by one if the replicas sign.

    The audit log may lack `lost` writes, whose connection or server was cut at the time. It has a line about a write
    only after the server has answered, and others may see the change before.
    """

    def missing() -> list[tuple[str, str]]:
        found = decisions(cluster)
        return [(name, part) for name in names for part in writes if not found[name, part]]

    with suppress(AssertionError):
        eventually(lambda: len(missing()) <= lost, "the audit log to have every decision")
    assert len(missing()) <= lost, f"nobody decided {missing()}"
    twice = {one: count for one, count in decisions(cluster).items() if one[0] in names and one[1] in writes and count > 1}
    assert not twice, f"decided more than once: {twice}"
