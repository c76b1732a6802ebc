"""System users and groups in the files of /etc: finding, adding and removing them (pure functions), and locking the files.

The rules are kubeadm's for its rootless control plane (kubeadm v1.36: util/users/users_linux.go): ids from the system's
range in /etc/login.defs, the lowest free ones first; users that cannot log in, each with a group of the same name.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import HostError, TryAgain
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass
from kubewright.host.desired import Accounts, File
from kubewright.host.failures import explaining
from kubewright.host.readers import FileReader
from kubewright.host.states import FileState

NO_SHELL: Final = "/bin/false"
PASSWD: Final = "passwd"  # noqa: S105 - the name of a file
GROUP: Final = "group"
LOGIN_DEFS: Final = "login.defs"
_FIELDS: Final = {PASSWD: 7, GROUP: 4}
_DEFAULT: Final = (100, 999)
_REMEDY: Final = "fix or remove the entry, then run the same command again"

_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Entry:
    """A line of passwd or group. Only users have `group` and `shell`, only groups have `members`."""

    name: str
    id: int
    group: int = -1
    shell: str = ""
    members: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ids:
    """The ids of users and groups, by name."""

    users: Mapping[str, int]
    groups: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class ChangedAccounts:
    """The two files after a change, and the names of the accounts that were added or removed."""

    passwd: str
    group: str
    users: tuple[str, ...]
    groups: tuple[str, ...]


def find_accounts(files: FileReader, etc: PurePosixPath, wanted: Accounts) -> Ids | None:
    """Return the ids of the accounts, None if one of them does not exist.

    Raises HostError for files that cannot be read.
    """
    users = {one.name: one.id for one in _entries(read_accounts(files, etc / PASSWD), PASSWD)}
    groups = {one.name: one.id for one in _entries(read_accounts(files, etc / GROUP), GROUP)}
    if not set(wanted.users) <= set(users) or not set(wanted.groups) <= set(groups):
        return None
    return Ids(users={name: users[name] for name in wanted.users}, groups={name: groups[name] for name in wanted.groups})


def read_accounts(files: FileReader, path: PurePosixPath) -> str:
    """Return the content of passwd or group.

    Raises HostError if the file is missing: nothing is known about users then.
    """
    content = files.read(path)
    if content is None:
        raise HostError(f"{path} is missing: the users of a rootless control plane cannot be made", remedy=f"restore {path}")
    return content.decode("utf-8", errors="surrogateescape")


def add_accounts(passwd: str, group: str, *, login_defs: str, wanted: Accounts) -> ChangedAccounts:
    """Add the accounts that are missing. Raises HostError if an existing one has other properties, or no id is free."""
    limits = Limits.parse(login_defs)
    users, groups = _entries(passwd, PASSWD), _entries(group, GROUP)
    for name in wanted.users:
        _check_user(name, users, groups, limits)
    for name, members in wanted.groups.items():
        _check_group(name, members, groups, limits)
    new_groups = _missing(wanted.groups, groups)
    new_users = _missing(wanted.users, users)
    gids = dict(zip(new_groups, _free(groups, limits.groups, len(new_groups)), strict=True))
    uids = dict(zip(new_users, _free(users, limits.users, len(new_users)), strict=True))
    of_group = {one.name: one.id for one in groups} | gids
    return ChangedAccounts(
        passwd=_appended(passwd, [f"{name}:x:{uids[name]}:{of_group[name]}:::{NO_SHELL}" for name in new_users]),
        group=_appended(group, [f"{name}:x:{gids[name]}:{','.join(wanted.groups[name])}" for name in new_groups]),
        users=tuple(new_users),
        groups=tuple(new_groups),
    )


def remove_accounts(passwd: str, group: str, *, unwanted: Accounts) -> ChangedAccounts:
    """Remove accounts; all other lines stay as they are, readable or not."""
    return ChangedAccounts(
        passwd=_without(passwd, unwanted.users),
        group=_without(group, unwanted.groups),
        users=tuple(name for name in unwanted.users if _without(passwd, [name]) != passwd),
        groups=tuple(name for name in unwanted.groups if _without(group, [name]) != group),
    )


def _without(text: str, names: Iterable[str]) -> str:
    unwanted = set(names)
    return "".join(line for line in text.splitlines(keepends=True) if line.partition(":")[0].strip() not in unwanted)


@dataclass(frozen=True)
class Limits:
    """The id ranges of system users and groups, both ends included."""

    users: tuple[int, int] = _DEFAULT
    groups: tuple[int, int] = _DEFAULT

    @classmethod
    def parse(cls, text: str) -> Limits:
        """Read login.defs. Raises HostError for a value that is not a number."""
        found = {"SYS_UID_MIN": _DEFAULT[0], "SYS_UID_MAX": _DEFAULT[1], "SYS_GID_MIN": _DEFAULT[0], "SYS_GID_MAX": _DEFAULT[1]}
        for name, value in re.findall(rf"^({'|'.join(found)})[ \t]*(.*?)[ \t\r]*$", text, re.MULTILINE):
            if not re.fullmatch(r"\d{1,10}", value, re.ASCII):
                raise HostError(
                    f"{name} of login.defs is {quoted(value)}, which is not a number", remedy=f"write it like `{name} {found[name]}`"
                )
            found[name] = int(value)
        uid_min, uid_max, gid_min, gid_max = found.values()
        return cls((uid_min, uid_max), (gid_min, gid_max))


def _entries(text: str, kind: str) -> list[Entry]:
    return [_entry(line.strip(), kind, at) for at, line in enumerate(text.splitlines(), 1) if line.strip()]


def _entry(line: str, kind: str, at: int) -> Entry:
    fields = line.split(":")
    numbers = fields[2:4] if kind == PASSWD else fields[2:3]
    if len(fields) != _FIELDS[kind] or not all(re.fullmatch(r"-?\d+", number, re.ASCII) for number in numbers):
        raise HostError(
            f"line {at} of the file {kind} cannot be read", detail=f"it does not have the format of {kind}(5)", remedy="fix that line"
        )
    if kind == PASSWD:
        return Entry(fields[0], int(fields[2]), group=int(fields[3]), shell=fields[6])
    return Entry(fields[0], int(fields[2]), members=tuple(fields[3].split(",")))


def _check_user(name: str, users: Iterable[Entry], groups: Iterable[Entry], limits: Limits) -> None:
    user = next((one for one in users if one.name == name), None)
    if user is None:
        return
    own = next((one.name for one in groups if one.id == user.group), None)
    if not limits.users[0] <= user.id <= limits.users[1]:
        raise _unfit(f"user {name} has the ID {user.id}", f"IDs of system users are {limits.users[0]} to {limits.users[1]} here")
    if user.shell != NO_SHELL:
        raise _unfit(f"user {name} has the shell {quoted(user.shell)}", f"it must be {NO_SHELL}, to prevent logins")
    if own != name:
        raise _unfit(f"user {name} is in the group {quoted(user.group if own is None else own)}", f"it must be the group {name}")


def _check_group(name: str, members: Sequence[str], groups: Iterable[Entry], limits: Limits) -> None:
    group = next((one for one in groups if one.name == name), None)
    if group is None:
        return
    if not limits.groups[0] <= group.id <= limits.groups[1]:
        raise _unfit(f"group {name} has the ID {group.id}", f"IDs of system groups are {limits.groups[0]} to {limits.groups[1]} here")
    if group.members != tuple(members):
        raise _unfit(f"group {name} has the members {quoted(','.join(group.members))}", f"they must be {quoted(','.join(members))}")


def _unfit(what: str, detail: str) -> HostError:
    return HostError(what, detail=detail, remedy=_REMEDY)


def _missing(wanted: Iterable[str], there: Iterable[Entry]) -> list[str]:
    names = {one.name for one in there}
    return [name for name in wanted if name not in names]


def _free(there: Iterable[Entry], limits: tuple[int, int], count: int) -> list[int]:
    taken = {one.id for one in there}
    free = [number for number in range(limits[0], limits[1] + 1) if number not in taken][:count]
    if len(free) < count:
        raise HostError(
            f"fewer than {count} IDs are free for system accounts",
            detail=f"the range is {limits[0]} to {limits[1]}",
            remedy="widen the range in /etc/login.defs, or remove unused accounts",
        )
    return free


def _appended(text: str, lines: Sequence[str]) -> str:
    if not lines:
        return text
    return text + ("" if text.endswith("\n") or not text else "\n") + "\n".join(lines) + "\n"


@contextmanager
def lock_accounts(*paths: PurePosixPath) -> Iterator[None]:
    """Hold the lock of each file as kubeadm does (F_SETLK).

    Raises TryAgain if another process holds one, HostError if a file is missing.
    """
    with ExitStack() as stack:
        for path in paths:
            with explaining("lock", path):
                opened = os.open(path, _OPEN)
                stack.callback(os.close, opened)
                _lock(opened, path)
        yield


def _lock(opened: int, path: PurePosixPath) -> None:
    try:
        fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        raise TryAgain(f"{path} is locked: another program is changing users", remedy="run the same command again") from error


def replacement(path: PurePosixPath, text: str, found: FileState | None) -> File:
    """Return a file of accounts with new content and the mode and owner of the existing file."""
    content = text.encode("utf-8", errors="surrogateescape")
    if found is None:
        return File(path=path, content=content, mode=0o644)
    return File(path=path, content=content, mode=found.mode, owner=found.owner, group=found.group)
