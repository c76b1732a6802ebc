"""`python -m tests.soak.hub [--only PART ...]`: what may happen to a hub and to nodes that join, with large numbers; writes docs/soak-hub.md.

Exits 1 if anything failed. Needs tests, tests/controlplane and tests/unit/enrollment on PYTHONPATH, as `make soak-hub` has it.
"""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import hub_hostile
import hub_killing
import own_network
from hub_process import HubProcess, hub_process, kubeconfig
from local_kit import eventually
from server_kit import RunningServer, api_server
from tests.soak.parts import Soak

from kubewright.base.errors import APIError
from kubewright.kube.client import KubeClient
from kubewright.kube.resources import CONFIG_MAP

KILLS: Final = 50
HOSTILE: Final = 5_000
_SECRETS: Final = "hubs/one"
CROWD: Final = 1_000
"""Requests of one cluster beyond which those that were refused go at once."""
DELAY: Final = 10.0
"""Seconds that a good join may take beside hostile requests: far more than it does, far less than a queue of all of them."""
MEMORY: Final = 64.0
"""MiB by which the hub may grow."""
HEAD: Final = """\
# Soak: the hub

Made by `make soak-hub` ([tests/soak/hub.py](../tests/soak/hub.py)); not by hand. A hub and nodes as processes on a real API server. After each kill the same
command has to end well: the machine has the files of its one record, a further run changes nothing, no name and no address has two holders. `make test-all` does the
same with smaller numbers.
"""


@contextmanager
def arena(state: str = "") -> Iterator[tuple[Path, HubProcess, RunningServer, dict[str, Any]]]:
    """An API server, a hub that serves it, and a token. The state is in a file, or in Secrets of the same API server."""
    with (
        own_network.entered(),
        tempfile.TemporaryDirectory(prefix="kubewright-soak-") as directory,
        api_server(_made(Path(directory) / "server")) as server,
        hub_process(_prepared(Path(directory) / "state", server, state), server, state=state) as hub,
    ):
        hub.add("--kubernetes-version", "v1.36.3", "--key-algorithm", "ECDSA-P256")
        created = hub.data("token", "create", "a", "--ttl", "6h")
        client = KubeClient(server.access())
        eventually(lambda: _published(client), "the hub to publish its key", within=60)
        client.close()
        yield Path(directory), hub, server, dict(created)


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _prepared(place: Path, server: RunningServer, state: str) -> Path:
    """Make what a hub's state needs that is in Secrets."""
    _made(place)
    if state:
        key = _made(place / "hub") / "state.key"
        key.touch(0o600)
        key.write_text(f"{secrets.token_hex(32)}\n")
        (place / "state.conf").write_text(kubeconfig(server, "kubernetes-admin", "system:masters"))
        with closing(KubeClient(server.access())) as admin:
            admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hubs"}})
    return place


def _published(client: KubeClient) -> bool:
    try:
        return bool(client.get(CONFIG_MAP, "oneinfra-join", "oneinfra-system"))
    except APIError:
        return False


def _kills() -> tuple[str, str]:
    seed = secrets.randbelow(2**31)
    with arena() as (place, hub, server, created):
        found = hub_killing.killed(hub, server, place, created, rounds=KILLS, seed=seed)
    return _told(found, "killed")


def _replicas() -> tuple[str, str]:
    seed = secrets.randbelow(2**31)
    with arena(f"secrets:{_SECRETS}") as (place, hub, server, created):
        other = HubProcess(hub.place, server, hub.state, name="other")
        other.start()
        try:
            found = hub_killing.killed(hub, server, place, created, rounds=KILLS, seed=seed, replicas=(other,))
            assert "Traceback" not in other.log
        finally:
            other.kill()
    return _told(found, "two hubs with their state in Secrets; killed, or paused for longer than a lease,")


def _told(found: hub_killing.Killing, how: str) -> tuple[str, str]:
    told = ", ".join(f"the {victim} {count} times" for victim, count in sorted(found.kills.items()))
    what = f"{found.joined} joins, {hub_killing.TOGETHER} at a time; {how} at random moments (seed {found.seed}): {told}"
    return what, "each joined, one record each"


def _hostile() -> tuple[str, str]:
    with arena() as (_, hub, server, created):
        found = hub_hostile.beset(hub, server, created["token"], count=HOSTILE)
    assert set(found.ends) == {"Malformed", "Replayed", hub_hostile.REJECTED}, found.ends
    assert found.left <= CROWD, found.told
    assert found.memory <= MEMORY, found.told
    assert found.beside <= DELAY, found.told
    return f"{HOSTILE:,} hostile requests of somebody with a token", found.told


SOAK: Final = Soak(
    name="tests.soak.hub",
    page=Path(__file__).parents[2] / "docs" / "soak-hub.md",
    head=HEAD,
    parts={"kills": _kills, "replicas": _replicas, "hostile": _hostile},
)

if __name__ == "__main__":
    sys.exit(SOAK.main(sys.argv[1:]))
