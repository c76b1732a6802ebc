"""systemd as the service manager of a machine, through `systemctl` and `journalctl`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import HostError
from kubewright.base.records import dataclass
from kubewright.host.facts import BOOTED
from kubewright.host.programs.commands import Commands, RealCommands
from kubewright.host.readers import FileReader
from kubewright.host.states import Kind, ServiceState

ASKED_WITHIN: Final = 10.0
DONE_WITHIN: Final = 120.0
"""Seconds per verb: a unit's own limits are 90 s by default (DefaultTimeoutStartSec)."""
LAST_LINES: Final = 6
"""How many lines of its journal are shown for a service that fails to start, including systemd's own lines about its exit."""

_LIVES: Final = PurePosixPath("/run/systemd/units")
_PROPERTIES: Final = ("LoadState", "ActiveState", "SubState", "UnitFileState", "NeedDaemonReload", "NRestarts")
_RUNNING: Final = frozenset({"active", "reloading", "activating"})
_WAITS_TO_BE_STARTED_AGAIN: Final = "auto-restart"
_ENABLED: Final = frozenset({"enabled", "enabled-runtime", "static", "alias", "indirect", "generated"})
"""The states that `systemctl is-enabled` reports for enabled units."""


@dataclass(frozen=True, kw_only=True)
class _Unit:
    loaded: str
    active: str
    sub: str
    file: str
    stale: bool
    restarts: int

    @property
    def again(self) -> bool:
        """Whether it waits for its next start, as a kubelet without a configuration does for ten seconds at a time."""
        return self.sub.startswith(_WAITS_TO_BE_STARTED_AGAIN)


def find(files: FileReader, *, environment: Mapping[str, str]) -> Systemd | None:
    """Return the service manager of this machine, None if systemd is not the init system (containers, other systems)."""
    booted = files.state(PurePosixPath(BOOTED))
    return Systemd(RealCommands(environment=environment), files=files) if booted is not None and booted.kind is Kind.DIRECTORY else None


class Systemd:
    """`host.seam.Services` through `systemctl`.

    Verbs that change something need root, and raise HostError with systemd's message.
    """

    def __init__(self, commands: Commands, *, files: FileReader | None = None) -> None:
        self._commands = commands
        self._files = files

    def state(self, name: str, /) -> ServiceState | None:
        unit = self._unit(name)
        if unit.loaded == "not-found":
            return None
        return ServiceState(
            running=unit.active in _RUNNING and not unit.again,
            enabled=unit.file in _ENABLED,
            stale=unit.stale,
            failed=unit.active == "failed" or unit.again,
            again=unit.again,
            restarts=unit.restarts,
            since=self._since(name),
        )

    def _since(self, name: str) -> float:
        """Return the last start of a unit: systemd creates a link then.

        The time is that of the file system, so that it is comparable with files.
        """
        found = self._files.state(_LIVES / f"invocation:{_file(name)}") if self._files is not None else None
        return found.modified if found is not None else 0.0

    def is_stopping(self) -> bool:
        with suppress(HostError):
            return self._commands.run(["systemctl", "is-system-running"], within=ASKED_WITHIN).out.strip() == "stopping"
        return False

    def last_lines(self, name: str, /, *, count: int) -> list[str]:
        """Return its journal since its last start, including systemd's own lines about it.

        Lines whose process has ended before journald read them lack the ID of the invocation (systemd 252, cgroup v1);
        they are found by the process.
        """
        try:
            found = self._properties(name, ("InvocationID", "ExecMainPID"))
            life, process = found["InvocationID"], found["ExecMainPID"]
            if not life:
                return []
            own = [f"_SYSTEMD_INVOCATION_ID={life}", "+", f"INVOCATION_ID={life}"]
            unattributed = ["+", f"_SYSTEMD_UNIT={_file(name)}", f"_PID={process}"] if process != "0" else []
            argv = ["journalctl", "--boot", "--quiet", "--no-pager", "--output=cat", f"--lines={count}"]
            ended = self._commands.run([*argv, *own, *unattributed], within=ASKED_WITHIN)
        except HostError:
            return []
        return ended.out.splitlines() if ended.code == 0 else []

    def start(self, name: str, /) -> None:
        """Start a unit, or restart one that waits for its next start, because `start` would leave it waiting."""
        self._do("restart" if self._unit(name).again else "start", name)

    def stop(self, name: str, /) -> None:
        self._do("stop", name)

    def restart(self, name: str, /) -> None:
        self._do("restart", name)

    def enable(self, name: str, /) -> None:
        self._do("enable", name)

    def disable(self, name: str, /) -> None:
        self._do("disable", name)

    def reload(self) -> None:
        self._do("daemon-reload")

    def _last_words(self, verb: str, name: str) -> str:
        """Return the output of a service that failed to start.

        `systemctl --quiet` leaves it to the journal, which may lag slightly.
        """
        if verb not in {"start", "restart"}:
            return ""
        with suppress(HostError):
            self._commands.run(["journalctl", "--sync"], within=ASKED_WITHIN)
        return "\n".join(self.last_lines(name, count=LAST_LINES))

    def _unit(self, name: str) -> _Unit:
        found = self._properties(name, _PROPERTIES)
        return _Unit(
            loaded=found["LoadState"],
            active=found["ActiveState"],
            sub=found["SubState"],
            file=found["UnitFileState"],
            stale=found["NeedDaemonReload"] == "yes",
            restarts=int(found["NRestarts"]) if found["NRestarts"].isdigit() else 0,
        )

    def _properties(self, name: str, names: Sequence[str]) -> dict[str, str]:
        """Return properties of a unit. Raises HostError if systemd does not report them all."""
        argv = ["systemctl", "show", f"--property={','.join(names)}", _file(name)]
        ended = self._commands.run(argv, within=ASKED_WITHIN)
        found = dict(line.split("=", 1) for line in ended.out.splitlines() if "=" in line)
        if ended.code or set(found) != set(names):
            raise HostError(
                f"systemd does not report the state of the service {name}",
                detail=ended.err.strip() or f"exit code {ended.code}",
                remedy=f"see what `{' '.join(argv)}` says",
            )
        return found

    def _do(self, verb: str, name: str = "") -> None:
        argv = ["systemctl", "--no-ask-password", "--quiet", verb, *([_file(name)] if name else [])]
        ended = self._commands.run(argv, within=DONE_WITHIN)
        if ended.code:
            raise HostError(
                f"systemd cannot {verb} the service {name}" if name else f"systemd cannot do {verb}",
                detail=ended.err.strip() or self._last_words(verb, name) or f"exit code {ended.code}",
                remedy=_remedy(name, ended.err),
            )


def _file(name: str) -> str:
    return name if "." in name else f"{name}.service"


def _remedy(name: str, said: str) -> str:
    if "masked" in said:
        return f"an administrator masked it; run `systemctl unmask {_file(name)}` to allow it again"
    if any(word in said for word in ("Access denied", "Interactive authentication", "Permission denied", "Operation not permitted")):
        return "run the command as root"
    if not name:
        return "see the messages of systemd in `journalctl -b`"
    return f"`systemctl status {_file(name)}` and `journalctl -u {_file(name)}` show why"
