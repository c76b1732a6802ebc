"""A cluster as text for people: the output of `up` and `local status`. Pure: from the map that `-o json` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubewright.base.durations import format_seconds
from kubewright.base.plain_text import shell_word
from kubewright.cli.printers.output import Paint, table
from kubewright.cli.printers.reporters import MILESTONES

MOST_NODES: Final = 12
"""If there are more nodes than this, only those that are not ready are listed."""

_COMPONENTS: Final = (
    ("machine", "MACHINE"),
    ("address", "ADDRESS"),
    ("name", "COMPONENT"),
    ("state", "STATE"),
    ("restarts", "RESTARTS"),
    ("memory", "MEMORY"),
    ("pid", "PID"),
)
_WIDEST: Final = 100
"""Characters of a reason that fit next to the rest of a row."""


def _parts(found: Mapping[str, Any], paint: Paint) -> list[str]:
    """Return the tables that `up` and `local status` show alike, '' for those without rows."""
    return [
        _head(found),
        _problem(found),
        _components(found, paint),
        _machines(found, paint),
        _ports(found, paint),
        _mounts(found, paint),
        _nodes(found["nodes"], paint),
    ]


def up_text(found: Mapping[str, Any], *, paint: Paint, seconds: float, changed: bool) -> str:
    """Return the output of `up`: the parts of the cluster, the time it took, and how to use it."""
    said = "is up" if changed else "was up already; nothing changed"
    used = shell_word(found["kubeconfig"], what="the path of the kubeconfig")
    parts = [
        *_parts(found, paint),
        _times(found["timings"]) if changed else "",
        _played(found, paint),
        f"cluster {found['name']} {said} ({format_seconds(seconds)})\nexport KUBECONFIG={used}\n",
    ]
    return "\n".join(part for part in parts if part)


def status_text(found: Mapping[str, Any], *, paint: Paint) -> str:
    """Return the status: machines and components, nodes, times, changed flags and simulated parts."""
    parts = [
        *_parts(found, paint),
        _times(found["timings"]),
        _list("flags that differ from kubeadm's", [_flag(row) for row in found["changedFlags"]], paint),
        _list("simulated", found["simulated"], paint),
    ]
    return "\n".join(part for part in parts if part)


def _head(found: Mapping[str, Any]) -> str:
    nodes = found["nodes"]
    ready = f"{nodes['ready']} of {nodes['total']} nodes ready"
    network = ", --cni none" if found.get("cni") == "none" else ""
    return f"cluster {found['name']}: {found['state']}, Kubernetes {found['kubernetesVersion']}, {ready}{network}\n"


def _problem(found: Mapping[str, Any]) -> str:
    return f"{found['problem']}\n" if found.get("problem") else ""


def _components(found: Mapping[str, Any], paint: Paint) -> str:
    rows = [
        {**component, "machine": machine["name"], "address": machine["address"], "memory": _megabytes(component["rssBytes"])}
        for machine in found["machines"]
        for component in machine["components"]
    ]
    return table(rows, columns=_COMPONENTS, paint=paint) if rows else ""


def _machines(found: Mapping[str, Any], paint: Paint) -> str:
    """Return the table of whole machines, with their Nodes; '' for a cluster of processes."""
    if found.get("kind") != "machines":
        return ""
    nodes = {node["name"]: node["phase"] for node in found["nodes"]["list"]}
    rows = [
        {**machine, "address": ", ".join(machine["addresses"]), "node": nodes.get(machine["name"], "")} for machine in found["machines"]
    ]
    columns = (("name", "MACHINE"), ("address", "ADDRESS"), ("role", "ROLE"), ("state", "STATE"), ("node", "NODE"))
    return table(rows, columns=columns, paint=paint)


def _ports(found: Mapping[str, Any], paint: Paint) -> str:
    return ports_text(found["ports"], paint=paint) if found.get("ports") else ""


def ports_text(ports: Sequence[Mapping[str, Any]], *, paint: Paint) -> str:
    """Return the table of the published ports of a cluster of machines."""
    rows = [{**row, "state": "listens" if row["listens"] else "stopped"} for row in ports]
    columns = (("address", "ADDRESS"), ("port", "PORT"), ("protocol", "PROTOCOL"), ("target", "TARGET"), ("state", "STATE"))
    return table(rows, columns=columns, paint=paint)


def _mounts(found: Mapping[str, Any], paint: Paint) -> str:
    rows = [{**row, "mode": "read-only" if row["readOnly"] else "read-write"} for row in found.get("mounts", ())]
    return table(rows, columns=(("source", "DIRECTORY"), ("target", "IN MACHINES"), ("mode", "MODE")), paint=paint) if rows else ""


def _nodes(nodes: Mapping[str, Any], paint: Paint) -> str:
    listed: Sequence[Mapping[str, Any]] = nodes.get("list", ())
    if listed and "phase" in listed[0] and "pods" not in listed[0]:  # shown with the machines
        return ""
    shown = listed if len(listed) <= MOST_NODES else [node for node in listed if not node["ready"]][:MOST_NODES]
    if not shown:
        return ""
    columns = [("name", "NODE"), ("phase", "STATE"), ("pods", "PODS")]
    if any(node.get("trouble") for node in shown):
        columns.append(("why", "WHY"))
    text = table([{**node, "why": _short(node.get("trouble", ""))} for node in shown], columns=columns, paint=paint)
    rest = len(listed) - len(shown)
    return f"{text}... and {rest} more\n" if rest else text


def _times(timings: Mapping[str, float]) -> str:
    spans = [f"{MILESTONES.get(name, name)} {format_seconds(seconds)}" for name, seconds in timings.items()]
    return f"times: {', '.join(spans)}\n" if spans else ""


def _played(found: Mapping[str, Any], paint: Paint) -> str:
    name = "" if found["name"] == "default" else f" --name {found['name']}"
    text = f"The control plane is real; pods are simulated, not run: see `kubewright local status{name}`."
    return paint("faint", text) + "\n" if found["simulated"] else ""


def _list(title: str, rows: Sequence[str], paint: Paint) -> str:
    return f"{paint('heading', title)}:\n" + "".join(f"  {row}\n" for row in rows) if rows else ""


def _flag(row: Mapping[str, str]) -> str:
    return f"{row['component']} --{row['flag']}={row['value']}"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.0f} MB"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDEST else f"{line[: _WIDEST - 3]}..."
