"""The state of a hub, opened for its commands and its daemon."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any, Final, TypeVar

from kubewright.apis.kubeconfig import parse
from kubewright.base import yaml
from kubewright.base.clock import SystemClock, rfc3339
from kubewright.base.durations import Duration
from kubewright.base.errors import UsageError
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass
from kubewright.cli.handlers import cluster_access
from kubewright.cli.handlers.hub import stores
from kubewright.cli.handlers.hub.stores import State, StateInFile, StateOptions
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.flag_documents import FlagDocument
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import write_output
from kubewright.cli.rows.hub import RUN_FLAGS
from kubewright.enrollment.state.clusters import TenantCluster
from kubewright.enrollment.state.store import TAKEN_OVER, Event, HubStore, Retention
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access
from kubewright.kube.kubeconfigs import access_from_kubeconfig

CONFIG: Final = FlagDocument(api_version="hub.kubewright/v1alpha1", kind="HubConfiguration", command="hub run", flags=RUN_FLAGS)
Store = TypeVar("Store", bound=HubStore)


@contextmanager
def store(parsed: Parsed) -> Iterator[HubStore]:
    """Open the state for a command."""
    with closing(open_store(parsed)) as found:
        yield found


def exists(parsed: Parsed) -> bool:
    """Whether opening the state creates nothing."""
    return state_of(parsed).exists()


def open_store(parsed: Parsed, *, forced: bool = False) -> HubStore:
    """Open the state for a command; create it if it does not exist. Raises HostError if that is not possible."""
    return state_of(parsed).open(event("", TAKEN_OVER), forced=forced)


def state_of(parsed: Parsed) -> State:
    """Return the state that flags and configuration file name. Raises UsageError."""
    return stores.state_of(inputs.complete(CONFIG.with_file(parsed), StateOptions))


def file_of(parsed: Parsed) -> StateInFile:
    """Return the state, which must be in a file. Raises UsageError."""
    found = state_of(parsed)
    if not isinstance(found, StateInFile):
        raise UsageError(
            "the state is in Secrets, and not in a file", remedy="copies of the management cluster's etcd have it: copy and restore that"
        )
    return found


@dataclass(frozen=True, kw_only=True)
class JournalOptions:
    """The limits of the journal that `hub run` keeps."""

    keep_journal: Duration
    keep_journal_lines: int


def retention(parsed: Parsed) -> Retention:
    """Return how much of the journal is kept. Raises UsageError for a limit of zero."""
    options = inputs.complete(parsed, JournalOptions)
    if options.keep_journal_lines <= 0:
        raise UsageError("--keep-journal-lines has to be more than 0", remedy="write a number like 100000")
    return Retention(age=timedelta(seconds=options.keep_journal.seconds), lines=options.keep_journal_lines)


def cluster(found: HubStore, name: str) -> TenantCluster:
    """Return a cluster of the hub. Raises UsageError if there is none of that name."""
    for one in found.clusters():
        if one.name == name:
            return one
    raise UsageError(f"the hub serves no cluster {quoted(name)}", remedy="`kubewright hub cluster list` shows them")


def event(name: str, what: str, *, node: str = "", **details: Any) -> Event:
    """Return a line of the journal about a command of a person."""
    return Event(at=rfc3339(SystemClock().now()), cluster=name, event=what, node=node, details={**details, "user": os.getuid()})


def print_result(parsed: Parsed, done: Event) -> int:
    """Print the result of a command, as a line or as a line of the journal; return the exit code."""
    about = " ".join(word for word in (done.cluster, done.node) if word)
    data = {name: value for name, value in done.document().items() if name != "number"}
    write_output(data, f"{about}: {done.event}\n" if about else f"{done.event}\n", form=parsed.text("output"))
    return 0


def access(cluster: TenantCluster) -> Access:
    """Return the access of the hub to a cluster. Raises ValidationError for an unusable kubeconfig."""
    return access_from_kubeconfig(parse(yaml.load_one(cluster.kubeconfig, source=f"the kubeconfig of {cluster.name}")))


def client(cluster: TenantCluster) -> KubeClient:
    """Return a client of a cluster, as the hub's user there."""
    return cluster_access.client(access(cluster))
