"""`python -m tests.soak.agent [--only PART ...] [--minutes N]`: agents through half an hour of faults, and zones that fall silent; writes docs/soak-agent.md.

Exits 1 if anything failed. Needs tests, tests/controlplane and tests/unit/host on PYTHONPATH, as `make soak-agent` has it.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import re
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from agent_cluster import BOOTSTRAPPERS, AgentCluster, agent_cluster
from agent_process import Agent, condition, eventually, requests_of
from cri_kit import FakeRuntime, serving
from local_agents import LocalAgentCluster, local_agent_cluster
from zone_borders import SILENT, SIZES, borders, inhabitants
from zone_nodes import zones

from kubewright.apis.kubeadm.types import BootstrapToken
from kubewright.base.clock import SystemClock
from kubewright.base.randomness import SystemRandom
from kubewright.kube.client import KubeClient
from kubewright.kube.resources import SECRET
from kubewright.tokens import secrets, strings
from kubewright.tokens.strings import BootstrapTokenString

PAGE: Final = Path(__file__).parents[2] / "docs" / "soak-agent.md"
THEIRS: Final = "kube-controller-manager"
OURS: Final = "kubewright"
BORDERS: Final = "borders"
"""The part about the node lifecycle controller."""
SIGNED: Final = "4m"
"""How long certificates last; with five minutes of backdating an agent renews one after 80 to 190 s."""
AWAY: Final = 330.0
"""Seconds for which the API server is away once: longer than any certificate lasts."""
STALL: Final = 55.0
MEMORY: Final = 1.1
"""How many times the memory after the first third an agent may have in the end."""
APPROVAL: Final = "kubeadm:node-autoapprove-certificate-rotation"
SETTINGS: Final = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix://{socket}\n"
HEAD: Final = """\
# Soak: the node agent

Made by `make soak-agent` ([tests/soak/agent.py](../tests/soak/agent.py)); not by hand. Three agents as processes on a real API server, with certificates
of four minutes, while the API server is killed, agents are stopped for 55 s, requests are denied, the token is deleted, the container runtime goes, and
the API server is away for longer than certificates last. In the end every node is ready by the same process that began; no agent has made more
requests than rotations and faults, none has more descriptors or tasks than in the beginning, or more than 1.1 times the memory of the first third.

With kube-controller-manager the control plane is started by hand, with kubewright it is a local cluster of `up --controllers kubewright`.

| controllers | how much | outcome | seconds | taken |
|---|---|---|---|---|
"""
ZONES: Final = """
Zones that fall silent in part or in whole, under the node lifecycle controller with its own periods and rates (50 s, 60 s for a Node that never had a
status, 0.1 and 0.01 evictions a second), in nodes whose registration, status and leases are the agent's. In `make test-all` the same has higher rates
(`test_evictions_slow_down_at_55_percent_stop_in_zones_of_fifty_and_where_all_are_silent`).

| part | how much | outcome | seconds | taken |
|---|---|---|---|---|
"""


@dataclass
class Arena:
    """A cluster with its agents, and what was done to them."""

    cluster: AgentCluster | LocalAgentCluster
    api: KubeClient
    runtime: Path
    agents: list[Agent] = field(default_factory=list)
    token: BootstrapTokenString = field(default_factory=lambda: strings.generate(SystemRandom()))
    faults: dict[str, int] = field(default_factory=dict)
    serving: ExitStack = field(default_factory=ExitStack)

    def invite(self) -> None:
        """Make a token, and write it where the agents look for one."""
        token = self.token = strings.generate(SystemRandom())
        row = BootstrapToken(token=token.text, groups=[BOOTSTRAPPERS], usages=["authentication"])
        self.api.create(secrets.secret_object(row, clock=SystemClock()))
        for agent in self.agents:
            agent.invite(token)

    def runtime_serves(self) -> None:
        runtime = FakeRuntime()
        runtime.conditions = [("RuntimeReady", True), ("NetworkReady", True)]
        self.serving.enter_context(serving(runtime, self.runtime))

    def all_ready(self) -> None:
        """Wait until every node is ready and no agent in trouble."""
        for agent in self.agents:

            def well(agent: Agent = agent) -> bool:
                with suppress(Exception):
                    row = condition(self.api, agent.name)
                    return row.get("status") == "True" and agent.status()[1].get("trouble") == ""
                return False

            eventually(well, f"{agent.name} to be well after {list(self.faults)[-1:]}", agent, within=600)


def _cluster(controllers: str, path: Path) -> AbstractContextManager[AgentCluster | LocalAgentCluster]:
    """A control plane that is started by hand with kube-controller-manager's controllers, or a local cluster with ours."""
    if controllers == OURS:
        return local_agent_cluster(signing_duration=SIGNED)
    (path / "cluster").mkdir()
    return agent_cluster(path / "cluster", signing_duration=SIGNED)


@contextmanager
def arena(controllers: str) -> Iterator[Arena]:
    """A cluster with such controllers, and three agents that are ready."""
    with tempfile.TemporaryDirectory(prefix="kw-soak-") as place, ExitStack() as stack:
        path = Path(place)
        cluster = stack.enter_context(_cluster(controllers, path))
        api = cluster.client()
        stack.callback(api.close)
        made = Arena(cluster, api, path / "runtime.sock")
        stack.callback(made.serving.close)
        made.runtime_serves()
        for number in range(1, 4):
            where = path / f"node-{number}"
            where.mkdir()
            made.agents.append(Agent(where, cluster, where.name, made.token, settings=SETTINGS.format(socket=made.runtime)))
            stack.callback(made.agents[-1].stop)
        made.invite()
        for agent in made.agents:
            agent.start()
        made.all_ready()
        yield made


def _killed(arena: Arena) -> None:
    arena.cluster.kill_server()
    time.sleep(5)
    arena.cluster.revive_server()


def _stopped(arena: Arena) -> None:
    for agent in arena.agents[:2]:
        agent.send(signal.SIGSTOP)
    time.sleep(STALL)
    for agent in arena.agents[:2]:
        agent.send(signal.SIGCONT)


def _denied(arena: Arena) -> None:
    """Deny the next request that an agent makes; the one after that is approved as ever."""
    kubectl = arena.cluster.kubectl
    kubectl("delete", "clusterrolebinding", APPROVAL)
    open_ones: list[str] = []

    def found() -> list[str]:
        rows = [row for agent in arena.agents for row in requests_of(arena.api, agent.name)]
        open_ones[:] = [row["metadata"]["name"] for row in rows if not (row.get("status") or {}).get("conditions")]
        return open_ones

    eventually(found, "an open request", arena.agents[0], within=300)
    kubectl("certificate", "deny", *open_ones)
    role = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"
    kubectl("create", "clusterrolebinding", APPROVAL, f"--clusterrole={role}", "--group=system:nodes")
    for name in found():  # who asked while nobody was allowed to is not looked at again
        kubectl("certificate", "approve", name)


def _without_runtime(arena: Arena) -> None:
    arena.serving.close()
    for agent in arena.agents:
        eventually(lambda agent=agent: condition(arena.api, agent.name)["status"] == "False", "a node that is not ready", agent, within=120)
    arena.runtime_serves()


def _without_token(arena: Arena) -> None:
    """The API server is away until all certificates have ended, and then nobody knows the token."""
    arena.api.delete(SECRET, f"bootstrap-token-{arena.token.id}", "kube-system")
    arena.cluster.kill_server()
    time.sleep(AWAY)
    arena.cluster.revive_server()
    for agent in arena.agents:
        eventually(lambda agent=agent: "Unauthorized" in agent.status()[1]["trouble"], "the refusal", agent, within=300)
    arena.invite()


FAULTS: Final[dict[str, Callable[[Arena], None]]] = {
    "API server killed": _killed,
    "agents stopped for 55 s": _stopped,
    "request denied": _denied,
    "runtime gone": _without_runtime,
    "token deleted, away for longer than certificates last": _without_token,
}


@dataclass(frozen=True)
class Used:
    """What an agent's process has."""

    descriptors: int
    tasks: int
    threads: int
    memory: int


def used(agent: Agent) -> Used:
    """Look at a process and at what it says itself."""
    place = Path(f"/proc/{agent.pid}")
    status = (place / "status").read_text()
    numbers = {name: int(re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)[1]) for name in ("Threads", "VmRSS")}  # type: ignore[index]
    with urllib.request.urlopen(f"http://{agent.health}:10248/metrics", timeout=10) as answer:
        [tasks] = re.findall(r"^kubewright_agent_tasks (\S+)", answer.read().decode(), re.MULTILINE)
    return Used(len(list((place / "fd").iterdir())), int(float(tasks)), numbers["Threads"], numbers["VmRSS"])


def _soak(controllers: str, minutes: float) -> tuple[str, str]:
    with arena(controllers) as ground:
        began = time.monotonic()
        pids = [agent.pid for agent in ground.agents]
        seen = [[used(agent) for agent in ground.agents]]
        rows = list(FAULTS.items())
        while (passed := time.monotonic() - began) < 60 * minutes or len(ground.faults) < len(rows):
            name, fault = rows[sum(ground.faults.values()) % len(rows)]
            ground.faults[name] = ground.faults.get(name, 0) + 1
            fault(ground)
            ground.all_ready()
            time.sleep(15)
            seen.append([used(agent) for agent in ground.agents])
            sys.stdout.write(f"{controllers} {passed:.0f} s: {name}: {seen[-1]}\n")
            sys.stdout.flush()
        return _judged(ground, pids, seen)


def _judged(ground: Arena, pids: list[int], seen: list[list[Used]]) -> tuple[str, str]:
    count = sum(ground.faults.values())
    assert [agent.pid for agent in ground.agents] == pids
    third = seen[max(1, len(seen) // 3)]
    made, renewed = 0, 0
    for number, agent in enumerate(ground.agents):
        requests, certificates = (
            len(requests_of(ground.api, agent.name)),
            len(list((agent.place / "root" / "pki").glob("kubelet-client-2*"))),
        )
        assert requests <= certificates + count, f"{agent.name}: {requests} requests, {certificates} certificates, {count} faults"
        first, last = seen[0][number], seen[-1][number]
        assert last.descriptors <= first.descriptors + 1, f"{agent.name}: descriptors {[row[number].descriptors for row in seen]}"
        assert last.tasks <= first.tasks + 1, f"{agent.name}: tasks {[row[number].tasks for row in seen]}"
        assert last.memory <= MEMORY * third[number].memory, f"{agent.name}: memory {[row[number].memory for row in seen]}"
        assert "Traceback" not in agent.log()
        made, renewed = made + requests, renewed + certificates
    told = ", ".join(f"{name} {times} ×" for name, times in ground.faults.items())
    most = max(row.memory for row in seen[-1]) / 1024
    ends = ", ".join(f"{row.descriptors} descriptors and {row.tasks} tasks" for row in seen[-1][:1])
    begins = ", ".join(f"{row.descriptors} and {row.tasks}" for row in seen[0][:1])
    return told, f"{made} requests for {renewed} certificates; {ends} (at the start {begins}); {most:.0f} MiB at most in the end"


def _borders(_name: str, _minutes: float) -> tuple[str, str]:
    """The limits of the node lifecycle controller, with kube-controller-manager's own constants."""

    async def run(place: Path) -> dict[str, int]:
        with agent_cluster(place, manager=("--node-monitor-period=5s",)) as cluster:
            log = cluster.place / "kube-controller-manager.log"
            async with zones(cluster, inhabitants, every=10.0) as ground:
                return await borders(ground, log=log.read_text, grace=50, startup=60, within=900)

    with tempfile.TemporaryDirectory(prefix="kw-soak-") as place:
        counts = asyncio.run(run(Path(place)))
    told = ", ".join(f"{SILENT[zone]} of {size}" for zone, size in SIZES.items())
    shown = ", ".join(f"{counts[zone]} of {SILENT[zone]}" for zone in SIZES)
    return f"silent: {told}; then all", f"evicted when the zones at the full rate were done: {shown}; none where all were silent"


PARTS: Final[dict[str, Callable[[str, float], tuple[str, str]]]] = {THEIRS: _soak, OURS: _soak, BORDERS: _borders}


def main(arguments: Sequence[str]) -> int:
    """Run all parts, or some, and write a row for each; rows of those that were not run stay."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.agent")
    parser.add_argument("--only", action="append", choices=tuple(PARTS), help="only this part; may be repeated")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long, with each kind of controllers (30)")
    asked = parser.parse_args(arguments)
    failed = False
    for name in asked.only or PARTS:
        began = time.monotonic()
        try:
            how_much, outcome = PARTS[name](name, asked.minutes)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            how_much, outcome, failed = "", f"**failed**: {type(error).__name__}: {error}".replace("\n", " ").replace("|", "/")[:400], True
        row = f"| {name} | {how_much} | {outcome} | {time.monotonic() - began:.0f} | {datetime.now(UTC):%Y-%m-%d} |"
        sys.stdout.write(row + "\n")
        with PAGE.open("a", encoding="utf-8") as held:  # parts may run side by side
            fcntl.flock(held, fcntl.LOCK_EX)
            PAGE.write_text(page({**known(PAGE.read_text(encoding="utf-8")), name: row}), encoding="utf-8")
    return 1 if failed else 0


def known(text: str) -> dict[str, str]:
    """Return the rows of a page by their names."""
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines() if line.startswith("| ")}
    return {name: line for name, line in rows.items() if name in PARTS}


def page(rows: Mapping[str, str]) -> str:
    """Render the page."""
    tables = ((HEAD, (THEIRS, OURS)), (ZONES, (BORDERS,)))
    return "".join(head + "".join(f"{rows[name]}\n" for name in names if name in rows) for head, names in tables)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
