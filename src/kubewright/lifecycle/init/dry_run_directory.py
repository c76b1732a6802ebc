"""Where `init --dry-run` writes (spec/kubeadm.md 2.5): a directory that the environment names, or a new one that is removed again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.layout import Layout
from kubewright.base.errors import UsageError
from kubewright.base.randomness import Random
from kubewright.host.desired import Directory
from kubewright.host.files import Files
from kubewright.host.seam import Host

VARIABLE: Final = "KUBEADM_INIT_DRYRUN_DIR"
PREFIX: Final = "kubeadm-init-dryrun"
_TRIES: Final = 20


@contextmanager
def directory(
    writer: Host, *, environment: Mapping[str, str], root: bool, random: Random, remove: Callable[[PurePosixPath], None] | None = None
) -> Iterator[PurePosixPath]:
    """Give the directory of one dry run.

    The one that KUBEADM_INIT_DRYRUN_DIR names stays; a new one is removed at the end. As root it is below /etc/kubernetes/tmp, else below
    $XDG_STATE_HOME/kubewright/dryrun. Raises UsageError for a relative name.
    """
    named = environment.get(VARIABLE, "")
    if named:
        yield _absolute(named)
        return
    made = _new(writer, parent(writer.layout, environment=environment, root=root), random)
    try:
        yield made
    finally:
        (remove or _remove)(made)


def parent(layout: Layout, *, environment: Mapping[str, str], root: bool) -> PurePosixPath:
    """Return the directory in which directories of dry runs are made."""
    return layout.kubernetes / "tmp" if root else state_home(environment) / "dryrun"


def lock_directory(layout: Layout, *, environment: Mapping[str, str], root: bool) -> PurePosixPath:
    """Return where the lock of a machine lies: that of all users, or, for who may not write there, of one."""
    return layout.run if root else state_home(environment)


def state_home(environment: Mapping[str, str]) -> PurePosixPath:
    """Return the directory for what kubewright keeps for a user. Raises UsageError where neither it nor a home directory is known."""
    named = environment.get("XDG_STATE_HOME", "")
    if named.startswith("/"):  # the specification says to ignore a relative one
        return PurePosixPath(named) / "kubewright"
    home = environment.get("HOME", "")
    if not home.startswith("/"):
        raise UsageError("no home directory is known", remedy="set HOME or XDG_STATE_HOME")
    return PurePosixPath(home) / ".local" / "state" / "kubewright"


def _absolute(named: str) -> PurePosixPath:
    if not named.startswith("/"):
        raise UsageError(f"{VARIABLE}={named} is not an absolute path", remedy="give a full path")
    return PurePosixPath(named)


def _new(writer: Host, above: PurePosixPath, random: Random) -> PurePosixPath:
    for _ in range(_TRIES):
        made = above / f"{PREFIX}{int.from_bytes(random.token_bytes(4), 'big')}"
        if writer.state(made) is None:
            writer.ensure(Directory(path=above, mode=0o700))
            writer.ensure(Directory(path=made, mode=0o700))
            return made
    raise UsageError(f"there is no free name for a directory in {above}", remedy=f"remove what is left over of earlier dry runs in {above}")


def _remove(made: PurePosixPath) -> None:
    Files(durable=False).remove(made, below=[made])
