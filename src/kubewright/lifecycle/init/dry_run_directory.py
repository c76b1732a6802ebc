"""Where a dry run writes (spec/kubeadm.md 2.5): a directory that the environment names, or a new one that is removed again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import UsageError
from kubewright.base.randomness import Random
from kubewright.host.desired import Directory
from kubewright.host.removing import remove_tree
from kubewright.host.seam import Host

VARIABLE: Final = "KUBEADM_INIT_DRYRUN_DIR"
PREFIX: Final = "kubeadm-init-dryrun"
JOIN_VARIABLE: Final = "KUBEADM_JOIN_DRYRUN_DIR"
JOIN_PREFIX: Final = "kubeadm-join-dryrun"
_TRIES: Final = 20


@contextmanager
def directory(
    writer: Host,
    *,
    environment: Mapping[str, str],
    random: Random,
    remove: Callable[[PurePosixPath], None] | None = None,
    variable: str = VARIABLE,
    prefix: str = PREFIX,
) -> Iterator[PurePosixPath]:
    """Give the directory of one dry run.

    The one that the variable names stays; a new one is removed at the end. As root it is below /etc/kubernetes/tmp, else below
    $XDG_STATE_HOME/kubewright/dryrun. Raises UsageError for a relative name.
    """
    named = environment.get(variable, "")
    if named:
        yield _absolute(named, variable)
        return
    made = _free(writer, parent(writer, environment=environment), random, prefix)
    try:
        writer.ensure(Directory(path=made.parent, mode=0o700))
        writer.ensure(Directory(path=made, mode=0o700))
        yield made
    finally:
        (remove or _remove)(made)


def parent(host: Host, *, environment: Mapping[str, str]) -> PurePosixPath:
    """Return the directory in which directories of dry runs are made."""
    return host.layout.kubernetes / "tmp" if _is_root(host) else state_home(environment) / "dryrun"


def lock_directory(host: Host, *, environment: Mapping[str, str]) -> PurePosixPath:
    """Return where the lock of a machine lies: that of all users, or, for who may not write there, of one."""
    return host.layout.run if _is_root(host) else state_home(environment)


def _is_root(host: Host) -> bool:
    return host.facts.user == 0


def state_home(environment: Mapping[str, str]) -> PurePosixPath:
    """Return the directory for what kubewright keeps for a user. Raises UsageError where neither it nor a home directory is known."""
    named = environment.get("XDG_STATE_HOME", "")
    if named.startswith("/"):  # the specification says to ignore a relative one
        return PurePosixPath(named) / "kubewright"
    home = environment.get("HOME", "")
    if not home.startswith("/"):
        raise UsageError("no home directory is known", remedy="set HOME or XDG_STATE_HOME")
    return PurePosixPath(home) / ".local" / "state" / "kubewright"


def _absolute(named: str, variable: str) -> PurePosixPath:
    if not named.startswith("/"):
        raise UsageError(f"{variable}={named} is not an absolute path", remedy="give a full path")
    return PurePosixPath(named)


def _free(writer: Host, above: PurePosixPath, random: Random, prefix: str) -> PurePosixPath:
    for _ in range(_TRIES):
        made = above / f"{prefix}{int.from_bytes(random.token_bytes(4), 'big')}"
        if writer.state(made) is None:
            return made
    raise UsageError(f"there is no free name for a directory in {above}", remedy=f"remove what is left over of earlier dry runs in {above}")


def _remove(made: PurePosixPath) -> None:
    remove_tree(made)
