"""The `up` and `down` commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from kubewright import binaries
from kubewright.base.clock import SystemClock
from kubewright.base.durations import Duration, format_seconds
from kubewright.base.errors import DocumentError, KubewrightError, UsageError
from kubewright.base.versions import supported
from kubewright.base.yaml.preloading import preload
from kubewright.cli.output import write_result
from kubewright.cli.parser import Parsed, as_called
from kubewright.cli.reporting import progress
from kubewright.cli.watching import Look
from kubewright.local.paths import ClusterPaths, cluster_paths

MOST_NODES = 30_000
MOST_CONTROL_PLANES = 7
"""What etcd's documentation calls the sensible greatest number of members."""


def up(parsed: Parsed) -> int:
    """Bring a cluster up and print what it consists of."""
    from kubewright.local.up import UpOptions
    from kubewright.local.up import up as bring_up

    preload()
    where = cluster_paths(parsed.text("name"), state_dir=parsed.text("state-dir"))
    wish = UpOptions(
        nodes=_within(parsed, "nodes", 0, MOST_NODES),
        control_planes=_within(parsed, "control-planes", 1, MOST_CONTROL_PLANES),
        kubernetes_version=_version(parsed),
        config=_config(parsed.text("config")),
        within=Duration.parse(parsed.text("wait")).seconds,
        kubectl=True,
    )
    sources = binaries.sources_from(os.environ, directory=parsed.text("binaries-dir") or None)
    form = parsed.text("output")
    with progress(f"cluster {where.name}", form=form, look=_look(where)) as reporter:
        outcome = bring_up(where, wish, sources=sources, reporter=reporter, clock=SystemClock())
    from kubewright.local.status import status

    found = status(where)
    if form != "text":
        write_result({**found, "changes": [change.as_map() for change in outcome.changes]}, form=form)
        return 0
    from kubewright.cli.clustertext import up_text
    from kubewright.cli.colours import painter

    shown = up_text(found, paint=painter(sys.stdout), seconds=outcome.total, changed=bool(outcome.changes))
    sys.stdout.write(as_called(shown))
    return 0


def _look(where: ClusterPaths) -> Look:
    """Return what looks at the components and nodes of a cluster that is on its way up."""
    from kubewright.local.daemon_client import ControlClient

    control = ControlClient(where)

    def look() -> Mapping[str, str]:
        try:
            found = control.status()
        except KubewrightError:  # the daemon is not there yet, or about to go: whoever needs it says so
            return {}
        nodes = found["nodes"]
        several = len({component["machine"] for component in found["components"]}) > 1
        states = {_subject(component, several=several): component["state"] for component in found["components"]}
        return {**states, "nodes": f"{nodes['ready']} of {nodes['total']} ready"} if nodes["total"] else states

    return look


def _subject(component: Mapping[str, str], *, several: bool) -> str:
    return f"{component['machine']}/{component['name']}" if several else component["name"]


def down(parsed: Parsed) -> int:
    """Stop a cluster and remove it."""
    from kubewright.local.down import down as take_down

    where = cluster_paths(parsed.text("name"), state_dir=parsed.text("state-dir"))
    form = parsed.text("output")
    with progress(f"stopping cluster {where.name}", form=form) as reporter:
        done = take_down(where, keep_data=parsed.flag("keep-data"), reporter=reporter)
    if form != "text":
        kept_data, named = parsed.flag("keep-data") and done.existed, [str(path) for path in done.kubeconfigs]
        write_result({"name": where.name, "existed": done.existed, "keptData": kept_data, "kubeconfigs": named}, form=form)
        return 0
    kept = "; its data is kept" if parsed.flag("keep-data") else ""
    said = f"is gone{kept} ({format_seconds(done.seconds)})" if done.existed else "does not exist; nothing to do"
    taken = "".join(f"its context was taken out of {path}\n" for path in done.kubeconfigs)
    sys.stdout.write(f"cluster {where.name} {said}\n{taken}")
    return 0


def _within(parsed: Parsed, name: str, least: int, most: int) -> int | None:
    """Return a number that was given, None if none was. Raises UsageError for one that is too small or too large."""
    number = parsed.number(name)
    if number is not None and not least <= number <= most:
        raise UsageError(f"--{name} {number} is not possible", remedy=f"choose {least} to {most}")
    return number


def _version(parsed: Parsed) -> str | None:
    return str(supported(parsed.text("kubernetes-version"))) if "kubernetes-version" in parsed.given else None


def _config(path: str) -> str | None:
    if not path:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError(f"cannot read --config {path}", detail=str(error), remedy="give the path of a kubeadm configuration") from error
