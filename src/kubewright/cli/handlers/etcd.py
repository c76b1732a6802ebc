"""`etcd status` and `etcd member`: the members of a cluster's etcd; and the options of `etcd restore`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

from kubewright.base.clock import SystemClock
from kubewright.base.errors import Unreachable, UsageError
from kubewright.cli.handlers import machine
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import table, write_output, write_rows
from kubewright.etcd.api import Etcd, Member, NoQuorum
from kubewright.lifecycle.etcd import access, health, removal
from kubewright.lifecycle.etcd.access import EtcdFlags
from kubewright.lifecycle.etcd.health import ClusterHealth, MemberHealth
from kubewright.lifecycle.etcd.request import ReplaceOptions, RestoreOptions

_STATUS: Final = (
    ("name", "NAME"),
    ("id", "ID"),
    ("endpoint", "ENDPOINT"),
    ("role", "ROLE"),
    ("version", "VERSION"),
    ("size", "DB SIZE"),
    ("inUse", "IN USE"),
    ("raft", "RAFT TERM/INDEX"),
    ("state", "STATE"),
)
_MEMBERS: Final = (("name", "NAME"), ("id", "ID"), ("peerURLs", "PEER URLS"), ("clientURLs", "CLIENT URLS"), ("role", "ROLE"))


def status(parsed: Parsed) -> int:
    """Show the state of the members, then raise CheckFailed if something is wrong."""
    with connected(parsed) as etcd:
        found = health.look(etcd)
    shown = table([_row(one) for one in found.members], columns=_STATUS) + _summary(found)
    write_output(found.as_map(), shown, form=parsed.text("output"))
    sys.stdout.flush()
    found.require_healthy()
    return 0


def _row(one: MemberHealth) -> dict[str, object]:
    answered = not one.status.problem
    member_id = one.member.id if one.member else one.status.member_id
    return {
        "name": one.member.name if one.member else "",
        "id": f"{member_id:x}" if one.member or answered else "",
        "endpoint": one.status.endpoint,
        "role": _role_in_quorum(one),
        "version": one.status.version,
        "size": _megabytes(one.status.size) if answered else "",
        "inUse": _megabytes(one.status.in_use) if answered else "",
        "raft": f"{one.status.raft_term}/{one.status.raft_index}" if answered else "",
        "state": _state(one),
    }


def _role_in_quorum(one: MemberHealth) -> str:
    if one.leads:
        return "leader"
    if one.learner:
        return "learner"
    return "" if one.member is None and one.status.problem else "voter"


def _state(one: MemberHealth) -> str:
    if one.serves:
        return "serves"
    return "no answer" if one.status.problem else "no leader"


def _summary(found: ClusterHealth) -> str:
    if found.unknown:
        return "\nno endpoint returns the members\n"
    serving = f"{found.serving} of {len(found.voters)} voting members serve"
    return f"\n{serving}: {'etcd has' if found.has_majority else 'etcd does not have'} a majority\n"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def list_members(parsed: Parsed) -> int:
    """List the members as their quorum sees them, or without a quorum as a single member does."""
    with connected(parsed) as etcd:
        members, why = _listed(etcd)
    if why:
        inputs.warn([f"this is the list of one member, because etcd has no majority: {why}"])
    rows = [member_map(one) for one in members]
    if parsed.text("output") == "text":
        rows = [
            {**row, **{key: ", ".join(getattr(one, field)) for key, field in _URLS}, "role": _role(one)}
            for row, one in zip(rows, members, strict=True)
        ]
    write_rows(rows, columns=_MEMBERS, form=parsed.text("output"))
    return 0


def _listed(etcd: Etcd) -> tuple[list[Member], str]:
    """Return the members as their quorum sees them; else as a single member does, and the reason."""
    try:
        return etcd.members(), ""
    except (NoQuorum, Unreachable) as error:
        return etcd.members(agreed=False), error.what


_URLS: Final = (("peerURLs", "peer_urls"), ("clientURLs", "client_urls"))


def remove_member(parsed: Parsed) -> int:
    """Remove a member, if the user confirms."""
    form = parsed.text("output")
    with connected(parsed) as etcd:
        members, _ = _listed(etcd)
        member = removal.choose(members, parsed.text("member"))
        removal.require_removable(etcd, member, members)
        question = f"[etcd] Remove the member {member.shown} from etcd? [y/N]: "
        if not parsed.flag("yes") and inputs.ask(question, form=form).strip().lower() not in {"y", "yes"}:
            raise UsageError("no member was removed: the answer was not y", remedy="answer y, or use --yes")
        change = removal.remove(etcd, member, clock=SystemClock())
        left = [one for one in members if one.id != member.id]
    data = {"removed": member_map(member) if change else None, "members": [member_map(one) for one in left]}
    write_output(data, f"Removed the {change.target} from etcd\n" if change else f"{change.target}: {change.reason}\n", form=form)
    return 0


def _role(member: Member) -> str:
    return ("learner" if member.learner else "voter") + ("" if member.name else ", has never started")


def member_map(member: Member) -> dict[str, object]:
    """Return the form of a member in -o json."""
    return {
        "name": member.name,
        "id": member.hex_id,
        "peerURLs": list(member.peer_urls),
        "clientURLs": list(member.client_urls),
        "learner": member.learner,
    }


@contextmanager
def connected(parsed: Parsed) -> Iterator[Etcd]:
    """Yield a client for the members of the etcd that the flags, or this machine's files, name."""
    host = machine.host()
    with closing(access.connect(host, access.find(host, inputs.record(parsed, EtcdFlags)), clock=SystemClock())) as etcd:
        yield etcd


def restore_request(parsed: Parsed, *, only: tuple[str, ...]) -> RestoreOptions:
    """Return the options from the flags of `etcd restore`."""
    return inputs.record(
        parsed,
        RestoreOptions,
        file=inputs.absolute(parsed.text("file")),
        only=only,
        ask=functools.partial(inputs.ask, form=parsed.text("output")),
    )


def replace_request(parsed: Parsed, *, only: tuple[str, ...]) -> ReplaceOptions:
    """Return the options from the flags of `etcd member replace`."""
    return inputs.record(parsed, ReplaceOptions, only=only, ask=functools.partial(inputs.ask, form=parsed.text("output")))
