"""The workers of `up`: which get a token, and which are not touched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubewright.base import yaml
from kubewright.base.change import Action, Change
from kubewright.base.clock import FakeClock
from kubewright.base.randomness import SeededRandom
from kubewright.base.wait import InstantWaiter
from kubewright.kube.recording import RecordingKube
from kubewright.kube.resources import CONFIG_MAP
from kubewright.local.cluster import configuration
from kubewright.local.cluster.daemon_client import Daemon
from kubewright.local.cluster.machine import machine_host
from kubewright.local.cluster.up_phases import join_nodes
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.manifests import node_policy
from kubewright.pki import ensure, specs
from kubewright.pki.store import MemoryStore

FIRST = LocalMachineRecord(name="one-control-plane", address="127.0.0.11")
CONFIG = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nencryptionAlgorithm: ECDSA-P256\n"


class ADaemon:
    """The control socket of a daemon with workers in these phases; it records which it is to admit."""

    def __init__(self, phases: dict[str, str], *, outside: Sequence[str]) -> None:
        self._nodes = {"list": [{"name": name, "phase": phase} for name, phase in phases.items()], "outside": list(outside)}
        self.joining: list[str] = []
        self.tokens: list[str] = []

    def status(self) -> dict[str, Any]:
        return {"nodes": self._nodes}

    def join(self, *, nodes: Sequence[str], server: str, token: str, pins: Sequence[str]) -> None:
        self.joining += nodes
        self.tokens.append(token)


def run(
    tmp_path: Path, daemon: ADaemon, *, there: Sequence[str], workers: int, kube: RecordingKube | None = None, **more: str
) -> list[Change]:
    """Run the phase in a cluster whose API has these Nodes. `more` are fields of its record."""
    paths, clock, random = ClusterPaths(tmp_path / "one"), FakeClock(), SeededRandom(1)
    host = machine_host(paths, FIRST.name, programs={}, daemon=Daemon(paths))
    loaded = configuration.load(
        CONFIG, machine=FIRST, layout=host.layout, version="v1.36.3", detected=host.facts.detected, random=random
    ).configuration
    certificates = MemoryStore()
    ensure.ensure(certificates, specs.certificates_for(loaded, FIRST.addresses)[0], ensure.IssuingSources(clock, random))
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in there]
    api = kube or RecordingKube()
    for node in nodes:
        api.create(node)
    context = SimpleNamespace(
        run=SimpleNamespace(within=1.0, cluster=ClusterRecord(name="one", id="1" * 32, machines=(FIRST,), nodes=workers, **more)),
        waiter=InstantWaiter(),
        control=daemon,
        api=api,
        joins=None,
        random=random,
        clock=clock,
        configuration=loaded,
        addresses=FIRST.addresses,
        certificates=certificates,
    )
    return [step for step in join_nodes(cast("Any", context)) if isinstance(step, Change)]


@pytest.mark.parametrize("phase", ["New", "Joining", "Stopped"])
def test_workers_of_an_interrupted_run_get_a_token_again(tmp_path: Path, phase: str) -> None:
    daemon = ADaemon({"one-worker-1": "Ready", "one-worker-2": phase}, outside=["one-worker-2"])
    changes = run(tmp_path, daemon, there=["one-worker-1"], workers=3)
    assert daemon.joining == ["one-worker-2", "one-worker-3"]
    assert len(daemon.tokens) == 1
    assert [change.target for change in changes if change.target.startswith("node ")] == ["node one-worker-2", "node one-worker-3"]


def test_with_strict_client_certificates_each_worker_has_its_token_in_the_policy_and_a_name_that_is_free(tmp_path: Path) -> None:
    daemon, kube = ADaemon({"one-worker-1": "Ready", "one-worker-2": "New"}, outside=["one-worker-2"]), RecordingKube()
    strict = {"serving_certificates": "strict", "client_certificates": "strict"}
    kube.create(
        node_policy.config_map(f"kind: NodeApprovalPolicy\nclients: strict\nsources: [{{file: {{nodes: [{{node: {FIRST.name}}}]}}}}]\n")
    )
    changes = run(tmp_path, daemon, there=["one-worker-1", "one-worker-2"], workers=3, kube=kube, **strict)
    assert (daemon.joining, len(set(daemon.tokens))) == (["one-worker-2", "one-worker-3"], 2)
    rows = yaml.load(kube.get(CONFIG_MAP, node_policy.NAME, "kube-system")["data"][node_policy.KEY])["sources"][0]["file"]["nodes"]
    tokens = {row["node"]: row["tokens"] for row in rows if "tokens" in row}
    assert tokens == {name: [token[:6]] for name, token in zip(daemon.joining, daemon.tokens, strict=True)}
    assert [change.target for change in changes if change.action is Action.DELETE] == ["node one-worker-2"]  # its machine has no key for it


def test_restarted_workers_with_certificates_need_no_token(tmp_path: Path) -> None:
    daemon = ADaemon({"one-worker-1": "New", "one-worker-2": "Registering", "one-worker-3": "Ready"}, outside=[])
    assert run(tmp_path, daemon, there=["one-worker-3"], workers=3) == []
    assert daemon.joining == []
