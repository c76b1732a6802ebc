"""The `local` commands: they look, and change nothing."""

from __future__ import annotations

import sys
from typing import Any

from kubewright.base.durations import format_seconds
from kubewright.cli.output import table, write_result
from kubewright.cli.parser import Parsed
from kubewright.local import status as looking
from kubewright.local.places import Places, places, state_directory


def _where(parsed: Parsed) -> Places:
    return places(parsed.text("name"), state_dir=parsed.text("state-dir"))


def status(parsed: Parsed) -> int:
    """Show a cluster."""
    found = looking.status(_where(parsed))
    if parsed.text("output") == "text":
        sys.stdout.write(status_text(found))
    else:
        write_result(found, form=parsed.text("output"))
    return 0


def status_text(found: dict[str, Any]) -> str:
    """Lay a status out for a person: machines and components, nodes, what is changed and simulated."""
    rows = [
        {**component, "machine": machine["name"], "address": machine["address"], "memory": f"{component['rssBytes'] / 1e6:.0f} MB"}
        for machine in found["machines"]
        for component in machine["components"]
    ]
    columns = ("machine", "address", "name", "pid", "state", "restarts", "memory")
    nodes = found["nodes"]
    ready = f"{nodes['ready']} of {nodes['total']} nodes ready"
    parts = [
        f"cluster {found['name']}: {found['state']}, Kubernetes {found['kubernetesVersion']}, {ready}\n",
        f"{found['problem']}\n" if found["problem"] else "",
        table(rows, columns=[(key, "COMPONENT" if key == "name" else key.upper()) for key in columns]) if rows else "",
        _list("times", [f"{name} {format_seconds(seconds)}" for name, seconds in found["timings"].items()]),
        _list("changed flags", [f"{row['component']} --{row['flag']}={row['value']}" for row in found["changedFlags"]]),
        _list("simulated", found["simulated"]),
    ]
    return "\n".join(part for part in parts if part)


def _list(title: str, rows: list[str]) -> str:
    return f"{title}:\n" + "".join(f"  {row}\n" for row in rows) if rows else ""


def list_clusters(parsed: Parsed) -> int:
    """List the clusters of this user."""
    rows = looking.clusters(state_directory(parsed.text("state-dir")))
    if parsed.text("output") == "text":
        sys.stdout.write(table(rows, columns=[(key, key.upper()) for key in ("name", "state", "nodes", "kubernetesVersion", "address")]))
    else:
        write_result({"clusters": rows}, form=parsed.text("output"))
    return 0


def env(parsed: Parsed) -> int:
    """Print what a shell evaluates to use a cluster."""
    import shlex

    where = _where(parsed)
    values = looking.environment(where)
    for name, value in values.items():
        shown = f'{shlex.quote(value)}:"$PATH"' if name == "PATH" else shlex.quote(value)
        sys.stdout.write(f"export {name}={shown}\n")
    return 0


def logs(parsed: Parsed) -> int:
    """Print the log of a component, or of the daemon."""
    tail = parsed.number("tail")
    lines = looking.log(
        _where(parsed),
        parsed.text("component"),
        machine=parsed.text("machine"),
        tail=None if tail is None or tail < 0 else tail,
        follow=parsed.flag("follow"),
    )
    for chunk in lines:
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    return 0
