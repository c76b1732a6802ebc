"""What etcd refuses, as errors that tell what to do; its own words are the only thing that tells many of them apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kubewright.base.errors import APIError, Unreachable


class EtcdError(APIError):
    """Etcd answered, and refused."""


class LearnerNotInSync(EtcdError):
    """A learner cannot vote yet: it has not caught up with the leader, or has not started."""


class TooManyLearners(EtcdError):
    """Etcd takes one learner at a time, and there is one."""


class MemberExists(EtcdError):
    """There is a member with this peer URL."""


class MemberNotFound(EtcdError):
    """There is no such member."""


class NotLearner(EtcdError):
    """The member votes already."""


class UnhealthyCluster(EtcdError):
    """Etcd changes no members while one of them is not connected to the others, or has just come."""


class NoQuorum(EtcdError):
    """Too few members are up: there is no leader, or nobody answers it."""


class StillLearning(EtcdError):
    """The member that was asked is a learner itself, and those answer next to nothing."""


PASSING: Final = (LearnerNotInSync, TooManyLearners, UnhealthyCluster, NoQuorum, StillLearning)
"""What time may mend."""

_QUORUM: Final = "see that more than half of the members run and reach each other on their peer ports (2380)"

_BY_WORDS: Final[tuple[tuple[str, type[EtcdError], str], ...]] = (
    ("in sync with leader", LearnerNotInSync, "wait until it has caught up; look at the log of its etcd if that takes long"),
    ("too many learner", TooManyLearners, "wait until the other learner votes, or remove it"),
    ("peer urls already exists", MemberExists, "use the member that is there, or remove it"),
    ("member id already exist", MemberExists, "use the member that is there, or remove it"),
    ("member not found", MemberNotFound, "list the members"),
    ("can only promote a learner", NotLearner, "nothing is left to do"),
    ("unhealthy cluster", UnhealthyCluster, "see that all members run; etcd waits five seconds after one has come"),
    ("not enough started members", UnhealthyCluster, "see that all members run"),
    ("not supported for learner", StillLearning, "ask another member"),
    ("no leader", NoQuorum, _QUORUM),
    ("leader changed", NoQuorum, _QUORUM),
    ("request timed out", NoQuorum, _QUORUM),
    ("not connected", NoQuorum, _QUORUM),
    ("server stopped", NoQuorum, "it may be restarting: try again"),
    ("deadline exceeded", NoQuorum, _QUORUM),
)
"""Words of a refusal (etcd v3.6, api/v3rpc/rpctypes/error.go), its class, and what to do. The first that fits counts."""


_UNAVAILABLE: Final = 14
"""gRPC's code for a server that cannot answer now."""


def refusal(answer: object, *, server: str, doing: str) -> EtcdError:
    """Make the error of an answer that is not a success."""
    body: dict[str, Any] = answer if isinstance(answer, dict) else {}
    said = str(body.get("message") or body.get("error") or "no reason given")[:500]
    what = f"etcd at {server} refused to {doing}"
    for words, kind, remedy in _BY_WORDS:
        if words in said.lower():
            return kind(what, detail=said, remedy=remedy)
    if body.get("code") == _UNAVAILABLE:
        return NoQuorum(what, detail=said, remedy=_QUORUM)
    return EtcdError(what, detail=said, remedy="look at the log of that etcd")


def nobody(failed: Sequence[APIError], *, doing: str) -> APIError:
    """Return the error for several members of which none did what it was asked for."""
    kind: type[APIError] = NoQuorum if any(isinstance(error, NoQuorum) for error in failed) else Unreachable
    return kind(f"none of {len(failed)} members of etcd can be asked to {doing}", detail="\n".join(map(str, failed)), remedy=_QUORUM)
