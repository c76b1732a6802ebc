"""The commands for single machines of a cluster of whole machines."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kubewright.base.errors import HostError, UsageError
from kubewright.base.events import Progress, Reporter
from kubewright.base.messages import quoted
from kubewright.cli.handlers.local import sources
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.cluster_text import ports_text
from kubewright.cli.printers.output import painter, write_output
from kubewright.cli.printers.progress import progress
from kubewright.local import published
from kubewright.local.cluster import status as clusters
from kubewright.local.cluster.up import up as bring_up
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import CONTROL_PLANE, ClusterRecord
from kubewright.local.whole import entering, machines, members, owner, ports
from kubewright.local.whole.services import client, commands
from kubewright.local.whole.services.programs import Program
from kubewright.local.whole.status import state_of
from kubewright.machines.running import environment

_ADMINISTRATOR: Final = "/etc/kubernetes/admin.conf"


def shell(parsed: Parsed) -> int:
    """Run a shell or a command in a machine. In control planes, kubectl finds the API server."""
    name, *command = parsed.strings("words")
    paths, cluster = _cluster_of(parsed, name)
    _require_running(paths, cluster, name)
    administrator = {"KUBECONFIG": _ADMINISTRATOR} if cluster.machine(name) is not None else {}
    variables = {"TERM": os.environ.get("TERM", "dumb"), **administrator}
    program = Program(machine=name, command=tuple(command or ["bash", "-l"]), environment=variables)
    if os.geteuid() == 0:
        argv = entering.argv(paths, program)
        os.execvpe(argv[0], argv, environment())  # noqa: S606 - argument lists only
    return entering.attached(paths, program)


def kill(parsed: Parsed) -> int:
    """Cut the power of a machine."""
    return _changed(parsed, "kill", lambda paths, name, _: machines.kill(paths, name), done="was killed", not_done="did not run")


def stop(parsed: Parsed) -> int:
    """Shut a machine down."""
    return _changed(parsed, "stop", lambda paths, name, _: machines.stop(paths, name), done="has been shut down", not_done="did not run")


def start(parsed: Parsed) -> int:
    """Start a machine. Root decides which programs run in it: without a choice, they are those of the last `up`."""
    name, chosen = parsed.text("machine"), parsed.text("binaries-dir")
    if chosen:
        machines.require_root(f"local machine start {name} --binaries-dir {shlex.quote(chosen)}", to="choose the programs of machines")

    def begin(paths: ClusterPaths, name: str, reporter: Reporter) -> bool:
        return machines.start(paths, name, sources=sources(parsed), chosen=bool(chosen), reporter=reporter)

    return _changed(parsed, "start", begin, done="runs", not_done="ran already")


def pause(parsed: Parsed) -> int:
    """Freeze a machine."""
    return _changed(parsed, "pause", lambda paths, name, _: machines.pause(paths, name), done="is paused", not_done="was paused already")


def add(parsed: Parsed) -> int:
    """Add a machine, by default a worker with the lowest free number."""
    paths = _cluster_for(parsed, parsed.text("machine"))
    name, options = machines.addition(_whole(paths), parsed.text("machine"))
    machines.require_root(" ".join(["local machine add", *([name] if parsed.text("machine") else []), "--name", paths.name]))
    with progress(f"cluster {paths.name}", form=parsed.text("output")) as reporter:
        bring_up(paths, options, sources=sources(parsed), reporter=reporter)
    return _print_change(parsed, name, changed=True, said="has joined")


def remove(parsed: Parsed) -> int:
    """Remove a worker or a further control plane."""

    def take_out(paths: ClusterPaths, name: str, reporter: Reporter) -> bool:
        machines.remove(paths, name, reporter=reporter)
        return True

    return _changed(parsed, "remove", take_out, done="was removed", not_done="")


def load(parsed: Parsed) -> int:
    """Load an image archive into all running machines of a cluster, without root by its daemon."""
    from kubewright.local.whole import images

    paths = owner.paths_of(parsed.text("name"), state_dir=parsed.text("state-dir"))
    cluster, is_root = _whole(paths), os.geteuid() == 0
    running = machines.running(paths, cluster)
    with progress(f"cluster {paths.name}", form=parsed.text("output")) as reporter:
        reporter.emit(Progress(task=f"loading into {', '.join(machine.name for machine in running)}", done=0))
        spool = None if is_root else paths.root
        with images.archive(parsed.text("archive"), standard_input=sys.stdin.buffer, spool=spool) as file:
            found = images.load(running, file) if is_root else client.load(paths, Path(file.name).absolute())["images"]
    data = {"images": found, "machines": [machine.name for machine in running]}
    write_output(data, "".join(f"loaded {name}\n" for name in found), form=parsed.text("output"))
    return 0


def publish(parsed: Parsed) -> int:
    """Publish ports, or list those that are published."""
    paths = owner.paths_of(parsed.text("name"), state_dir=parsed.text("state-dir"))
    cluster = _whole(paths)
    add = published.parse_all(parsed.strings("ports"), address=parsed.text("address") if "address" in parsed.given else "")
    remove = parsed.strings("remove")
    if parsed.flag("list") and (add or remove):
        raise UsageError("--list lists ports and changes none", remedy="leave it out")
    found = ports.change(paths, add=add, remove=remove) if add or remove else cluster.published
    rows = ports.rows(found, client.status(paths))
    shown = ports_text(rows, paint=painter(sys.stdout)) if rows else "no port is published\n"
    write_output({"ports": rows}, shown, form=parsed.text("output"))
    return 0


def _whole(paths: ClusterPaths) -> ClusterRecord:
    """Return the record of a cluster of machines. Raises UsageError if there is none."""
    cluster = clusters.require(paths, start="sudo kubewright up --machines")
    machines.require_whole(paths, cluster)
    return cluster


def _changed(parsed: Parsed, verb: str, change: Callable[[ClusterPaths, str, Reporter], bool], *, done: str, not_done: str) -> int:
    name = parsed.text("machine")
    if os.geteuid() != 0 and verb in commands.CHANGES:
        return _changed_by_daemon(parsed, verb, name)
    machines.require_root(f"local machine {verb} {name}")
    paths, _ = _cluster_of(parsed, name)
    with progress(f"machine {name}", form=parsed.text("output")) as reporter:
        changed = change(paths, name, reporter)
    return _print_change(parsed, name, changed=changed, said=done if changed else not_done)


def _changed_by_daemon(parsed: Parsed, verb: str, name: str) -> int:
    """Make the cluster's daemon, which is root's, run the command; its output is that of the command."""
    paths, cluster = _cluster_of(parsed, name)
    machines.require_whole(paths, cluster)
    members.require_known(cluster, name)
    with progress(f"machine {name}", form=parsed.text("output")):
        ended = client.change(paths, verb, name, form=parsed.text("output"))
    sys.stderr.write(ended["err"])
    sys.stdout.write(ended["out"])
    return int(ended["code"])


def _print_change(parsed: Parsed, name: str, *, changed: bool, said: str) -> int:
    write_output({"machine": name, "changed": changed}, f"machine {name} {said}\n", form=parsed.text("output"))
    return 0


def _require_running(paths: ClusterPaths, cluster: ClusterRecord, name: str) -> None:
    """Raise UsageError for an unknown machine, HostError for one that is stopped or paused."""
    machine = members.machine_of(paths, cluster, name)
    if not machine.runs:
        state = state_of(machine).lower()
        raise HostError(f"machine {name} is {state}", remedy=f"`kubewright local machine start {name}` starts it")


def _cluster_for(parsed: Parsed, name: str) -> ClusterPaths:
    """Return the cluster to which a machine may be added: the one given with --name, else the one whose name is part of the machine's.

    Raises UsageError if there is none.
    """
    if not name or "name" in parsed.given:
        return owner.paths_of(parsed.text("name"), state_dir=parsed.text("state-dir"))
    prefix = name.rpartition("-")[0]
    for paths in owner.visible(parsed.text("state-dir")):
        if prefix in {f"{paths.name}-worker", f"{paths.name}-{CONTROL_PLANE}"}:
            return paths
    raise UsageError(f"there is no cluster for a machine {quoted(name)}", remedy="`kubewright local list` lists the clusters")


def _cluster_of(parsed: Parsed, name: str) -> tuple[ClusterPaths, ClusterRecord]:
    """Return the cluster of a machine: the one given with --name, else the one that has a machine of this name.

    Raises UsageError if there is none, HostError if a cluster that cannot be read may have it.
    """
    if "name" in parsed.given:
        paths = owner.paths_of(parsed.text("name"), state_dir=parsed.text("state-dir"))
        return paths, clusters.require(paths)
    unreadable = list[HostError]()
    for paths in owner.visible(parsed.text("state-dir")):
        try:
            cluster = clusters.require(paths)
        except HostError as error:
            unreadable.append(error)
            continue
        if cluster.is_whole and name in members.members(cluster):
            return paths, cluster
    if unreadable:
        raise unreadable[0]
    raise UsageError(
        f"there is no machine {quoted(name)}", remedy="`kubewright local status --name CLUSTER` lists the machines of a cluster"
    )
