"""The commands for local clusters: `up`, `down`, `local`, `binaries`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kubewright import binaries
from kubewright.base.clock import SystemClock
from kubewright.base.durations import Duration, format_seconds
from kubewright.base.errors import CheckFailed, DocumentError, KubewrightError, UsageError
from kubewright.base.homes import expanded
from kubewright.base.messages import quoted, reason_of
from kubewright.base.plain_text import shell_word
from kubewright.base.versions import supported
from kubewright.binaries import BinarySources
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.parser import Parsed, as_called
from kubewright.cli.printers import streams
from kubewright.cli.printers.cluster_text import status_text, up_text
from kubewright.cli.printers.output import painter, table, write_output, write_result
from kubewright.cli.printers.progress import ReadStates, progress
from kubewright.local import mounts, published
from kubewright.local.cluster import kubeconfig
from kubewright.local.cluster import status as clusters
from kubewright.local.cluster.daemon_client import ControlClient
from kubewright.local.cluster.up import up as bring_up
from kubewright.local.paths import ClusterPaths, state_directory
from kubewright.local.programs import KUBECTL
from kubewright.local.record import OWN_CONTROLLERS, STOCK_CONTROLLERS
from kubewright.local.up_options import MOST_CONTROL_PLANES, UpOptions, most_nodes
from kubewright.local.whole import owner as machine_clusters

CONTROLLERS: Final = (STOCK_CONTROLLERS, OWN_CONTROLLERS)


def up(parsed: Parsed) -> int:
    """Start a cluster and print its parts."""
    where = _where(parsed, machines=parsed.flag("machines"))
    options = UpOptions(
        nodes=_within(parsed, "nodes", 0, most_nodes(machines=parsed.flag("machines"))),
        control_planes=_within(parsed, "control-planes", 1, MOST_CONTROL_PLANES),
        kubernetes_version=_version(parsed),
        config=_config(parsed.text("config")),
        controllers=_controllers(parsed),
        serving_certificates=parsed.text("serving-certificates") or None,
        client_certificates=parsed.text("client-certificates") or None,
        registry_config=_directory(parsed, "registry-config"),
        cni=parsed.text("cni") or None,
        within=_wait(parsed),
        machines=parsed.flag("machines"),
        publish=published.parse_all(parsed.strings("publish"), address=parsed.text("address") if "address" in parsed.given else ""),
        mounts=mounts.parse_all(parsed.strings("mount")) if "mount" in parsed.given else None,
        kubectl=True,
    )
    form = parsed.text("output")
    with progress(f"cluster {where.name}", form=form, look=_look(where)) as reporter:
        outcome = bring_up(where, options, sources=sources(parsed), reporter=reporter, clock=SystemClock())
    found = clusters.status(where)
    if form != "text":
        write_result({**found, "changes": [change.as_map() for change in outcome.changes]}, form=form)
        return 0
    shown = up_text(found, paint=painter(sys.stdout), seconds=outcome.total, changed=bool(outcome.changes))
    sys.stdout.write(as_called(shown))
    return 0


def _look(where: ClusterPaths) -> ReadStates:
    """Return a function that reads the states of a starting cluster's components and nodes."""
    control = ControlClient(where)

    def look() -> Mapping[str, str]:
        try:
            found = control.status()
        except KubewrightError:  # the daemon has not started yet, or is stopping: code that needs it reports that
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
    from kubewright.local.cluster.down import down as take_down

    where = _where(parsed)
    form = parsed.text("output")
    with progress(f"stopping cluster {where.name}", form=form) as reporter:
        done = take_down(where, keep_data=parsed.flag("keep-data"), reporter=reporter)
    kept_data, named = parsed.flag("keep-data") and done.existed, [str(path) for path in done.kubeconfigs]
    data = {"name": where.name, "existed": done.existed, "keptData": kept_data, "kubeconfigs": named}
    kept = "; its data is kept" if parsed.flag("keep-data") else ""
    said = f"is gone{kept} ({format_seconds(done.seconds)})" if done.existed else "does not exist; nothing to do"
    taken = "".join(f"its context was removed from {path}\n" for path in done.kubeconfigs)
    write_output(data, f"cluster {where.name} {said}\n{taken}", form=form)
    return 0


def _within(parsed: Parsed, name: str, least: int, most: int) -> int | None:
    """Return the given number, None if none was given. Raises UsageError if it is too small or too large."""
    number = parsed.number(name)
    if number is not None and not least <= number <= most:
        raise UsageError(f"--{name} {number} is not possible", remedy=f"choose {least} to {most}")
    return number


def _wait(parsed: Parsed) -> float:
    """Return the seconds to wait. Raises UsageError for zero, with which no cluster would ever be ready in time."""
    found = Duration.parse(parsed.text("wait")).seconds
    if found <= 0:
        raise UsageError(f"--wait {parsed.text('wait')} is not possible", remedy="choose a duration greater than 0, such as 2m")
    return found


def _directory(parsed: Parsed, name: str) -> str | None:
    """Return the absolute path of a given directory, '' for '', None without the flag. Raises UsageError if it is not a directory."""
    if not parsed.text(name):
        return "" if name in parsed.given else None
    path = expanded(parsed.text(name)).absolute()
    if not path.is_dir():
        raise UsageError(f"--{name}: {quoted(str(path))} is not a directory", remedy="pass one that exists")
    return str(path)


def _version(parsed: Parsed) -> str | None:
    return str(supported(parsed.text("kubernetes-version"))) if "kubernetes-version" in parsed.given else None


def _config(path: str) -> str | None:
    if not path:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError(
            f"cannot read --config {path}", detail=reason_of(error), remedy="pass an existing file that you can read"
        ) from error


_LIST: Final = (("name", "NAME"), ("state", "STATE"), ("nodes", "NODES"), ("kubernetesVersion", "KUBERNETES"), ("address", "ADDRESS"))


def _controllers(parsed: Parsed) -> str | None:
    given = parsed.text("controllers")
    if given not in {"", *CONTROLLERS}:
        raise UsageError(f"--controllers: {quoted(given)} has no controllers", remedy=f"choose {' or '.join(CONTROLLERS)}")
    return given or None


def _where(parsed: Parsed, *, machines: bool = False) -> ClusterPaths:
    """Return the paths of the cluster whose name is given, as an argument or with --name.

    A cluster of machines belongs to the user who called sudo. Raises UsageError if the two names differ. An empty argument
    is no name: `down "$CLUSTER"` without this variable does not mean the cluster `default`.
    """
    name, argument = parsed.text("name"), parsed.command.argument
    if argument is not None and argument.name == "cluster" and parsed["cluster"] is not None:
        if "name" in parsed.given and name != parsed.text("cluster"):
            raise UsageError(f"two clusters are specified, {parsed.text('cluster')} and {name}", remedy="leave --name out")
        name = parsed.text("cluster")
    return machine_clusters.paths_of(name, state_dir=parsed.text("state-dir"), new=machines)


def status(parsed: Parsed) -> int:
    """Show a cluster."""
    found = clusters.status(_where(parsed))
    if parsed.text("output") == "text":
        sys.stdout.write(as_called(status_text(found, paint=painter(sys.stdout))))
    else:
        write_result(found, form=parsed.text("output"))
    return 0


def list_clusters(parsed: Parsed) -> int:
    """List the clusters of this user."""
    directory = state_directory(parsed.text("state-dir"))
    rows = clusters.rows(machine_clusters.visible(parsed.text("state-dir")))
    shown = table(rows, columns=_LIST, paint=painter(sys.stdout)) if rows else f"no cluster exists in {directory}\n"
    write_output({"clusters": rows}, shown, form=parsed.text("output"))
    return 0


def env(parsed: Parsed) -> int:
    """Print the shell commands for using a cluster."""
    where = _where(parsed)
    values = clusters.environment(where)
    if parsed.text("output") != "text":
        write_result(values, form=parsed.text("output"))
        return 0
    for name, value in values.items():
        word = shell_word(value, what=f"the value of {name}")
        shown = f'{word}:"$PATH"' if name == "PATH" else word
        sys.stdout.write(f"export {name}={shown}\n")
    if "PATH" not in values and shutil.which(KUBECTL) is None:
        version = clusters.require(where).kubernetes_version
        inputs.warn([f"{KUBECTL} is not on PATH; `kubewright binaries fetch {KUBECTL} --kubernetes-version {version}` gets one"])
    return 0


def use(parsed: Parsed) -> int:
    """Make a cluster the current context of the user's kubeconfig. Raises UsageError as root for a cluster of another user."""
    where = _where(parsed)
    if (owner := machine_clusters.of_cluster(where)) is not None:
        raise UsageError(
            f"cluster {quoted(where.name)} belongs to user {owner.uid}, not to root",
            remedy=f"run `kubewright local use {where.name}` as this user, without sudo",
        )
    with progress(f"context of cluster {where.name}", form=parsed.text("output")) as reporter:
        path = kubeconfig.target(os.environ, clusters=where.root.parent, given=parsed.text("kubeconfig"))
        done = kubeconfig.use(where, path, reporter=reporter)
    if parsed.text("output") != "text":
        found = {"name": where.name, "context": done.context, "kubeconfig": str(done.kubeconfig), "changed": bool(done.change)}
        write_result(found, form=parsed.text("output"))
        return 0
    said = "is now" if done.change else "was already"
    sys.stdout.write(f"{done.context} {said} the current context of {done.kubeconfig}\n")
    named = os.environ.get("KUBECONFIG", "")
    if named and str(done.kubeconfig) not in named.split(os.pathsep) and not parsed.text("kubeconfig"):
        inputs.warn([f"in this shell KUBECONFIG names {named}; `unset KUBECONFIG` to use {done.kubeconfig}"])
    return 0


def logs(parsed: Parsed) -> int:
    """Print the log of a component, or of the daemon."""
    tail = parsed.number("tail")
    if tail is not None and tail < -1:
        raise UsageError(f"--tail {tail} is not possible", remedy="choose a number of lines, or -1 for all")
    lines = clusters.log(
        _where(parsed),
        parsed.text("component"),
        machine=parsed.text("machine"),
        tail=None if tail is None or tail < 0 else tail,
        follow=parsed.flag("follow"),
    )
    streams.copy_log(lines)
    return 0


def export(parsed: Parsed) -> int:
    """Write the state of a cluster to a directory."""
    from kubewright.local.export.export import export as write

    where = _where(parsed)
    with progress(f"cluster {where.name}", form=parsed.text("output")) as reporter:
        done = write(where, expanded(parsed.text("directory")), reporter=reporter)
    if parsed.text("output") != "text":
        found = {"directory": str(done.directory), "files": list(done.files), "problems": list(done.problems)}
        write_result(found, form=parsed.text("output"))
        return 0
    inputs.warn(done.problems)
    sys.stdout.write(f"wrote {len(done.files)} files to {done.directory}; check them for secrets of your own before you publish them\n")
    return 0


def sources(parsed: Parsed) -> BinarySources:
    """Return the sources that the flags and the environment allow."""
    flags = frozenset(flag.name for flag in parsed.command.flags)
    return binaries.sources_from(os.environ, directory=parsed.text("binaries-dir") or None, flags=flags)


def list_binaries(parsed: Parsed) -> int:
    """List every program with its path and source."""
    version = str(supported(parsed.text("kubernetes-version")))
    rows = [row.as_map() for row in binaries.listing(version=version, sources=sources(parsed))]
    listed = [_cells(row) for row in rows]
    shown = ("name", "version", "present", "size", "source", *(["reason"] if any(row["reason"] for row in listed) else []))
    write_output({"binaries": rows}, table(listed, columns=[(key, key.upper()) for key in shown]), form=parsed.text("output"))
    return 0


def _cells(row: Mapping[str, object]) -> dict[str, object]:
    """Return a program's row of the table. The reason that no directory contains it is left out, because it is obvious."""
    reason = str(row.get("reason") or "")
    return {
        **row,
        "version": _short(str(row["version"])),
        "present": "yes" if row["present"] else "no",
        "size": _megabytes(row.get("size")),
        "reason": "" if reason.startswith("not in ") else reason,
    }


def _short(version: str) -> str:
    """Return the commit of a pseudo-version, which has no release (go.dev/ref/mod, pseudo-versions); other versions unchanged."""
    return version.rpartition("-")[2] if version.startswith("v0.0.0-") else version


def _megabytes(size: object) -> str:
    return f"{size / 1e6:.1f} MB" if isinstance(size, int) and size else ""


def fetch(parsed: Parsed) -> int:
    """Fetch programs into the cache, and print their paths."""
    version = str(supported(parsed.text("kubernetes-version")))
    form = parsed.text("output")
    with progress("getting binaries", form=form) as reporter:
        found = binaries.ensure(parsed.strings("program") or binaries.DEFAULT, version=version, sources=sources(parsed), reporter=reporter)
    rows = [binary.as_map() for binary in found.values()]
    shown = table(rows, columns=[(key, key.upper()) for key in ("name", "version", "source", "path")])
    write_output({"binaries": rows}, shown, form=form)
    return 0


def verify(parsed: Parsed) -> int:
    """Hash programs again. Raises CheckFailed if one has changed."""
    version = str(supported(parsed.text("kubernetes-version")))
    found = binaries.verify(parsed.strings("program"), version=version, sources=sources(parsed))
    rows: list[dict[str, object]] = [{"name": one.binary.name, "ok": not one.fault, "detail": one.fault} for one in found]
    shown = table(rows, columns=[("name", "NAME"), ("ok", "OK"), ("detail", "DETAIL")])
    write_output({"binaries": rows}, shown, form=parsed.text("output"))
    bad = [one.binary.name for one in found if one.fault]
    if bad:
        raise CheckFailed(
            f"{', '.join(bad)} changed since it was fetched",
            remedy="remove it from the cache and fetch it again with `kubewright binaries fetch`",
        )
    return 0
