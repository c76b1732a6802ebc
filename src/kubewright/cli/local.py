"""The `local` commands: but for `use` they look, and change nothing."""

from __future__ import annotations

import sys
from typing import Final

from kubewright.base.errors import UsageError
from kubewright.cli.clustertext import status_text
from kubewright.cli.colours import painter
from kubewright.cli.output import table, write_result
from kubewright.cli.parser import Parsed, as_called
from kubewright.cli.reporting import progress
from kubewright.local import status as looking
from kubewright.local.paths import ClusterPaths, cluster_paths, state_directory

_LIST: Final = (("name", "NAME"), ("state", "STATE"), ("nodes", "NODES"), ("kubernetesVersion", "KUBERNETES"), ("address", "ADDRESS"))


def _where(parsed: Parsed) -> ClusterPaths:
    return cluster_paths(parsed.text("name"), state_dir=parsed.text("state-dir"))


def status(parsed: Parsed) -> int:
    """Show a cluster."""
    found = looking.status(_where(parsed))
    if parsed.text("output") == "text":
        sys.stdout.write(as_called(status_text(found, paint=painter(sys.stdout))))
    else:
        write_result(found, form=parsed.text("output"))
    return 0


def list_clusters(parsed: Parsed) -> int:
    """List the clusters of this user."""
    directory = state_directory(parsed.text("state-dir"))
    rows = looking.clusters(directory)
    if parsed.text("output") == "text":
        sys.stdout.write(table(rows, columns=_LIST, paint=painter(sys.stdout)) if rows else f"there is no cluster in {directory}\n")
    else:
        write_result({"clusters": rows}, form=parsed.text("output"))
    return 0


def env(parsed: Parsed) -> int:
    """Print what a shell evaluates to use a cluster."""
    import shlex

    where = _where(parsed)
    values = looking.environment(where)
    if parsed.text("output") != "text":
        write_result(values, form=parsed.text("output"))
        return 0
    for name, value in values.items():
        shown = f'{shlex.quote(value)}:"$PATH"' if name == "PATH" else shlex.quote(value)
        sys.stdout.write(f"export {name}={shown}\n")
    return 0


def use(parsed: Parsed) -> int:
    """Make a cluster the current context of the user's kubeconfig."""
    import os

    from kubewright.local import kubeconfig

    named = parsed.text("cluster")
    if named and "name" in parsed.given and named != parsed.text("name"):
        raise UsageError(f"two clusters are named, {named} and {parsed.text('name')}", remedy="leave --name out")
    where = cluster_paths(named or parsed.text("name"), state_dir=parsed.text("state-dir"))
    with progress(f"context of cluster {where.name}", form=parsed.text("output")) as reporter:
        done = kubeconfig.use(where, kubeconfig.target(os.environ, given=parsed.text("kubeconfig")), reporter=reporter)
    if parsed.text("output") != "text":
        found = {"name": where.name, "context": done.context, "kubeconfig": str(done.kubeconfig), "changed": bool(done.change)}
        write_result(found, form=parsed.text("output"))
        return 0
    said = "is now" if done.change else "was already"
    sys.stdout.write(f"{done.context} {said} the current context of {done.kubeconfig}\n")
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
