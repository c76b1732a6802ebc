"""Starting a cluster: `up` compared with the script, then the nodes, a second `up`, and `down`.

A round is one pair; which half comes first alternates, so that neither always has the warmer machine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.bench import admin, by_hand
from tests.bench.by_hand import ByHand, Prepared
from tests.bench.model import Result, figure, ratios
from tests.bench.results import result
from tests.bench.setup import ADMIN, Setup, kubernetes_directory
from tests.bench.timeline import record

from kubewright.local.cluster.status import read_timings
from kubewright.local.paths import ClusterPaths

NODES: Final = 3
TARGET_RATIO: Final = 1.15
TARGET_NODES: Final = 1.0
TARGET_SECOND: Final = 1.0
TARGET_DOWN: Final = 2.0

Row = dict[str, Any]


def run(setup: Setup, rounds: int) -> Result:
    """Measure this many pairs."""
    state = setup.work / "state"
    prepared, timeline = _prepare(setup, state)
    rows = []
    for number in range(rounds):
        halves: list[Callable[[], Row]] = [lambda: _script(prepared), lambda: _up(setup, state)]
        row: Row = {"scriptFirst": number % 2 == 0}
        for half in halves if number % 2 == 0 else reversed(halves):
            row |= half()
        rows.append(row)
        setup.say(
            f"start {number + 1}/{rounds}: by hand {row['script']:.2f} s, up {row['apiReady']:.2f} s, "
            f"nodes {row['nodesAfter']:.2f} s later, again {row['again']:.2f} s, down {row['down']:.2f} s"
        )
    figures = (
        ratios("`up` to API ready, relative to the script", rows, "apiReady", "script", target=TARGET_RATIO),
        figure("`up` to API ready", rows, "apiReady"),
        figure("the script to API ready", rows, "script"),
        figure("from there to 3 nodes Ready and the default service account", rows, "nodesAfter", target=TARGET_NODES),
        figure("the script: from there to the default service account", rows, "scriptAccountAfter"),
        figure("what `up` says of API ready, less what was seen", rows, "ownApiReadyDiffers"),
        figure("what `up` says of nodes Ready, less what was seen", rows, "ownNodesReadyDiffers"),
        figure("a second `up`", rows, "again", target=TARGET_SECOND),
        figure("`down`", rows, "down", target=TARGET_DOWN),
    )
    return result("start", figures, rows, extra={"timeline": timeline})


def _prepare(setup: Setup, state: Path) -> tuple[Prepared, Row]:
    """Create a cluster once: for the script's files, for the picture, and to warm the page cache for both sides."""
    root = state / "default"
    timeline = record(setup, state, nodes=NODES)
    prepared = by_hand.prepare(root / "machines" / "default-control-plane", setup.work / "hand", programs=setup.programs)
    setup.run("down", "--state-dir", str(state))
    return prepared, timeline


def _script(prepared: Prepared) -> Row:
    with ByHand(prepared) as script:
        times = script.start()
    return {
        "script": times.api_ready,
        "scriptEtcd": times.etcd,
        "scriptAccountAfter": times.service_account - times.api_ready,
    }


def _up(setup: Setup, state: Path) -> Row:
    root = state / "default"
    running = setup.start("up", "--state-dir", str(state), "--nodes", str(NODES))
    try:
        client, ready = admin.api_ready(
            kubernetes_directory(root) / ADMIN,
            hopeless=lambda: running.last_lines() if running.has_ended() else "",
        )
        nodes, _ = admin.nodes_ready(client, NODES + 1)
        account = admin.service_account_ready(client)
        client.close()
        ended = running.wait()
    finally:
        running.kill()
    own = read_timings(ClusterPaths(root))
    again = setup.run("up", "--state-dir", str(state))
    down = setup.run("down", "--state-dir", str(state))
    return {
        "apiReady": ready - running.began,
        "nodesReady": nodes - running.began,
        "nodesAfter": max(nodes, account) - ready,
        "command": ended.seconds,
        "ownApiReadyDiffers": own["apiReady"] - (ready - running.began),
        "ownNodesReadyDiffers": own["nodesReady"] - (max(nodes, account) - running.began),
        "again": again.seconds,
        "down": down.seconds,
    }
