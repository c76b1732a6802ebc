"""What `up`, `local status` and `binaries list` print for a person: complete, aligned, and coloured only on request."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.cli.main import main
from kubewright.cli.printers.cluster_text import status_text, up_text
from kubewright.cli.printers.output import painter, table, takes_colours


class Terminal:
    def __init__(self, *, tty: bool) -> None:
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


PLAIN = painter(Terminal(tty=False), {})
PAINTED = painter(Terminal(tty=True), {"TERM": "xterm"})


def component(name: str, state: str = "Ready") -> dict[str, object]:
    return {"name": name, "pid": 4711, "state": state, "restarts": 0, "rssBytes": 52_400_000}


def node(name: str, *, ready: bool = True, trouble: str = "") -> dict[str, object]:
    return {"name": name, "phase": "Ready" if ready else "Joining", "ready": ready, "pods": 2, "trouble": trouble}


def found(*, name: str = "demo", nodes: int = 2, broken: int = 0) -> dict[str, object]:
    rows = [
        node(f"{name}-worker-{number}", ready=number > broken, trouble="" if number > broken else "no\nroute")
        for number in range(1, nodes + 1)
    ]
    return {
        "name": name,
        "state": "Ready",
        "problem": "",
        "kubernetesVersion": "v1.36.3",
        "kubeconfig": "/state/admin.conf",
        "machines": [
            {"name": f"{name}-control-plane", "address": "127.0.0.11", "components": [component("etcd"), component("kube-apiserver")]}
        ],
        "nodes": {"ready": nodes - broken, "total": nodes, "list": rows},
        "timings": {"apiReady": 2.71, "nodesReady": 3.04},
        "changedFlags": [{"component": "etcd", "flag": "heartbeat-interval", "value": "10"}],
        "simulated": ["containers are not run"],
    }


def test_up_prints_machines_components_nodes_times_and_next_steps():
    assert up_text(found(), paint=PLAIN, seconds=3.1, changed=True) == (
        "cluster demo: Ready, Kubernetes v1.36.3, 2 of 2 nodes ready\n"
        "\n"
        "MACHINE              ADDRESS      COMPONENT        STATE   RESTARTS   MEMORY   PID\n"
        "demo-control-plane   127.0.0.11   etcd             Ready   0          52 MB    4711\n"
        "demo-control-plane   127.0.0.11   kube-apiserver   Ready   0          52 MB    4711\n"
        "\n"
        "NODE            STATE   PODS\n"
        "demo-worker-1   Ready   2\n"
        "demo-worker-2   Ready   2\n"
        "\n"
        "times: API server ready 2.7s, all nodes ready 3.0s\n"
        "\n"
        "The control plane is real; pods are simulated, not run: see `kubewright local status --name demo`.\n"
        "\n"
        "cluster demo is up (3.1s)\n"
        "export KUBECONFIG=/state/admin.conf\n"
    )


def test_an_up_without_changes_reports_that_and_shows_no_old_times():
    text = up_text(found(name="default"), paint=PLAIN, seconds=0.4, changed=False)
    assert "times:" not in text
    assert ": see `kubewright local status`" in text
    assert text.endswith("\ncluster default was up already; nothing changed (0.40s)\nexport KUBECONFIG=/state/admin.conf\n")


def test_a_status_shows_changed_flags_and_simulated_parts():
    text = status_text(found(), paint=PLAIN)
    assert "\nflags that differ from kubeadm's:\n  etcd --heartbeat-interval=10\n" in text
    assert text.endswith("\nsimulated:\n  containers are not run\n")
    assert "export" not in text


def test_a_cluster_that_does_not_run_still_has_a_status():
    stopped = {**found(), "state": "Stopped", "problem": "its daemon has ended", "nodes": {"ready": 0, "total": 4}, "timings": {}}
    stopped["machines"] = [{"name": "demo-control-plane", "address": "127.0.0.11", "components": []}]
    text = status_text(stopped, paint=PLAIN)
    assert text.startswith("cluster demo: Stopped, Kubernetes v1.36.3, 0 of 4 nodes ready\n\nits daemon has ended\n\nflags that differ")


def test_a_cluster_without_a_network_plugin_says_what_it_waits_for():
    waiting = {**found(), "state": "NotReady", "cni": "none", "problem": "no network plugin runs on demo-control-plane"}
    for text in (status_text(waiting, paint=PLAIN), up_text(waiting, paint=PLAIN, seconds=9, changed=True)):
        assert text.startswith(
            "cluster demo: NotReady, Kubernetes v1.36.3, 2 of 2 nodes ready, --cni none\n\nno network plugin runs on demo"
        )


def test_only_unready_nodes_of_many_are_listed():
    text = status_text(found(nodes=100, broken=2), paint=PLAIN)
    assert "NODE            STATE     PODS   WHY\ndemo-worker-1   Joining   2      no route\n" in text
    assert "demo-worker-3" not in text
    assert "\n... and 98 more\n" in text
    assert "demo-worker" not in status_text(found(nodes=100), paint=PLAIN)


def test_a_long_reason_is_cut():
    nodes = {"ready": 0, "total": 1, "list": [node("one", ready=False, trouble="x" * 500)]}
    lines = status_text({**found(), "nodes": nodes}, paint=PLAIN).splitlines()
    assert max(map(len, lines)) < 130


def test_colours_change_nothing_but_colours():
    plain, painted = (up_text(found(broken=1), paint=paint, seconds=1, changed=True) for paint in (PLAIN, PAINTED))
    assert "\x1b[32mReady\x1b[0m" in painted
    assert "\x1b[1mMACHINE\x1b[0m" in painted
    assert re.sub(r"\x1b\[[0-9]+m", "", painted) == plain


@pytest.mark.parametrize(
    ("tty", "environment", "wanted"),
    [
        (True, {"TERM": "xterm"}, True),
        (True, {}, True),
        (False, {"TERM": "xterm"}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colours_are_used_only_on_terminals_that_allow_them(tty, environment, wanted):
    assert takes_colours(Terminal(tty=tty), environment) is wanted
    assert (painter(Terminal(tty=tty), environment)("state", "Ready") != "Ready") is wanted


CELLS = st.one_of(st.none(), st.integers(), st.text(max_size=12), st.text("a \n\r\x1b\x85\x9b\u2028-", max_size=12))


@given(rows=st.lists(st.fixed_dictionaries({"a": CELLS, "state": CELLS}), max_size=5))
def test_every_row_is_one_line_and_columns_are_aligned_with_their_headings(rows):
    columns = [("a", "FIRST"), ("state", "SECOND"), ("lacking", "THIRD")]
    lines = table(rows, columns=columns).splitlines()
    assert len(lines) == len(rows) + 1
    place = lines[0].index("SECOND")
    assert [line[place - 3 : place] for line in lines] == ["   "] * len(lines)
    assert [line == line.rstrip() for line in lines] == [True] * len(lines)
    assert [line.isprintable() for line in lines] == [True] * len(lines)
    painted = table(rows, columns=columns, paint=PAINTED)
    assert re.sub(r"\x1b\[[0-9]+m", "", painted) == "".join(f"{line}\n" for line in lines)


def test_the_list_of_binaries_fits_a_screen_and_has_commits_for_unreleased_programs(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["binaries", "list"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert max(map(len, rows)) <= 100
    [wireguard] = [row.split() for row in rows if row.startswith("wireguard-go")]
    assert re.fullmatch("[0-9a-f]{12}", wireguard[1])
