"""`agent install` and `agent leave`: the agent as a service of this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import PurePosixPath

from kubewright.agent import installation, status_file
from kubewright.agent.configuration.flags import FLAGS, OURS, reason_ignored
from kubewright.agent.configuration.options import require_kubeconfig
from kubewright.base.change import Change
from kubewright.base.errors import APIError, CertificateError, CheckFailed, DocumentError, NotFound, ValidationError
from kubewright.cli.handlers import cluster_access, machine
from kubewright.cli.handlers.agent import PATHS, configuration_of, options_of
from kubewright.cli.parsing.inputs import absolute
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import write_result
from kubewright.host.seam import Host
from kubewright.kube import core
from kubewright.kube.api import KubeAPI
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.resources import NODE


def install(parsed: Parsed) -> int:
    """Check the flags as `agent run` would, then have systemd run it with those that have an effect."""
    host = machine.host()
    read = configuration_of(parsed, host)
    require_kubeconfig(options_of(parsed, read, host_name=host.facts.detected.host_name), host)
    for note in read.notes:
        sys.stderr.write(f"{note}\n")
    changes = installation.install(host, [*machine.program_words(), "agent", "run", *given_words(parsed)])
    _write(changes, form=parsed.text("output"))
    return 0


def given_words(parsed: Parsed) -> list[str]:
    """Return the flags of `agent run` that were given and have an effect, as words; paths from the root."""
    given = (flag.name for flag in (*FLAGS, *OURS) if flag.name in parsed.given and not reason_ignored(flag))
    return [f"--{name}={_text(name, parsed[name])}" for name in given]


def leave(parsed: Parsed) -> int:
    """End the service and remove what the node has, in its cluster and on this machine.

    A kubeconfig that is given is tried before anything is ended. What the cluster refuses after that is told at the end.
    """
    host = machine.host()
    root = PurePosixPath(absolute(parsed.text("root-dir")))
    status = status_file.read(host, root)  # where nothing is known, nothing is ended
    named = absolute(parsed.text("kubeconfig"))
    uid = _node_uid(host, PurePosixPath(named), status["node"]) if named else ""
    changes = installation.stop(host)
    status = status_file.read(host, root)
    if status_file.runs(status, host.processes):
        raise CheckFailed(f"an agent runs as process {status['pid']}", remedy=f"end it first: `kill {status['pid']}`")
    refused = ""
    try:
        with _client(host, PurePosixPath(named or status["kubeconfig"])) as api:
            for change in installation.remove_objects(api, status["node"], node=bool(named), uid=uid):
                changes.append(change)  # an error keeps what was done before it
    except (APIError, CertificateError, DocumentError, ValidationError) as error:
        refused = str(error)
    changes += installation.remove_files(machine.host(installation.own_layout(status, root)), status, root)
    _write(changes, form=parsed.text("output"))
    if refused or not named:
        why = f" ({refused})" if refused else ""
        sys.stderr.write(f"the Node {status['node']} is still in the cluster{why}: delete it with `kubectl delete node {status['node']}`\n")
    return 1 if refused else 0


def _node_uid(host: Host, kubeconfig: PurePosixPath, name: str) -> str:
    """Return the uid of a Node, '' if there is none. Raises APIError or CertificateError where the kubeconfig is of no use."""
    with _client(host, kubeconfig) as api:
        try:
            return str(core.metadata(api.get(NODE, name)).get("uid") or "")
        except NotFound:
            return ""


@contextmanager
def _client(host: Host, kubeconfig: PurePosixPath) -> Iterator[KubeAPI]:
    with closing(cluster_access.client(load_access(kubeconfig, read=host.read))) as api:
        yield api


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return absolute(str(value)) if name in PATHS else str(value)


def _write(changes: Sequence[Change], *, form: str) -> None:
    """Print what was changed."""
    made: Iterable[Change] = [change for change in changes if change]
    if form == "text":
        sys.stdout.write("".join(f"{change.action.value} {change.target}{_why(change)}\n" for change in made))
    else:
        write_result([change.as_map() for change in made], form=form)


def _why(change: Change) -> str:
    return f" ({change.reason})" if change.reason else ""
