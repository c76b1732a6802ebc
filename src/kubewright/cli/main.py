"""The entry point: from argv to an exit code. Users never see a traceback; an unexpected error exits with 70.

SIGHUP, SIGINT and SIGTERM end a command by an exception in the main thread, so that it can clean up.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final
from weakref import ref

from kubewright.base.errors import HostError, Interrupted, KubewrightError, Stopped, interruption
from kubewright.cli.parsing import parser
from kubewright.cli.printers import streams
from kubewright.cli.rows.commands import ROOT, TABLE, VERSION, Table, imported
from kubewright.cli.rows.model import DIFF, KUBEADM, Command

_STOPPING: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class Stops:
    """Raises the first signal; while its exception is propagating, others have no effect.

    Signals often come in twos and threes: a closed terminal, systemd, a user who presses Ctrl-C again. SIGQUIT and
    SIGKILL skip the clean-up. An exception that got lost because it was raised where none can be (`__del__`) no longer
    counts: the next signal is raised again.
    """

    def __init__(self) -> None:
        self._raised: ref[Stopped] | None = None

    def install(self) -> None:
        """Handle the signals from now on, except those that this process was started to ignore (nohup, background jobs of a script)."""
        for number in _STOPPING:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._stop)

    def _stop(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _let_go()
        if self._raised is None or self._raised() is None:
            raise self._noted(Stopped(number))  # not assigned to a variable: this frame would keep it alive

    def _noted(self, stop: Stopped) -> Stopped:
        self._raised = ref(stop)
        return stop


def _let_go() -> None:
    """Redirect outputs without a reader to /dev/null: write errors would abort the clean-up."""
    import select

    poll = select.poll()
    for descriptor in (1, 2):
        poll.register(descriptor, select.POLLOUT)
    for descriptor, seen in poll.poll(0):
        if seen & (select.POLLERR | select.POLLHUP):
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)


def open_streams() -> None:
    """Give /dev/null to standard streams that are closed (`>&-`), as Go's runtime does.

    Otherwise the next file that is opened would get the number of one, and what we and our children write to it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - until the process ends


BUG = 70
"""EX_SOFTWARE of sysexits.h: an error that should have been a KubewrightError."""


def main(argv: Sequence[str] | None = None, *, table: Table = TABLE) -> int:
    """Run one command of a table and return its exit code."""
    program = parser.program_name()
    verbosity = 0
    command = ROOT
    try:
        streams.secure()
        found = parser.find(sys.argv[1:] if argv is None else argv, table=table)
        command = found.command
        parsed = parser.read(found, program=program)
        verbosity = parsed.number("v") or 0
        if verbosity > 0:
            _start_log(parsed, verbosity)
        return _run_command(parsed, program=program)
    except KubewrightError as error:
        return _fail(error, command, verbosity=verbosity)
    except KeyboardInterrupt as stop:
        return _stopped(stop, command)
    except BrokenPipeError:
        # The reader of our output is gone, for example `| head`; keep the interpreter from complaining when it flushes.
        sys.stdout = None
        return 141
    except Exception as error:  # the last resort: a bug must not show a traceback
        if isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt):
            # CPython ran the handler of a second signal while the first one's exception was set, and reports that
            # instead
            return _stopped(error.__cause__, command)
        known = _of_the_system(error)
        return _bug(error, verbosity=verbosity) if known is None else _fail(known, command, verbosity=verbosity)


def _run_command(parsed: parser.Parsed, *, program: str) -> int:
    for notice in parsed.notices:
        sys.stderr.write(f"{notice}\n")
    if parsed.command is ROOT and VERSION.name in parsed.given and parsed.flag(VERSION.name) and not parsed.wants_help:
        return _version(program)
    if not parsed.command.handler or parsed.wants_help:
        return _help(parsed, program=program)
    if parsed.text("rootfs"):
        _change_root(parsed.text("rootfs"), handler=parsed.command.handler)
    handler: Callable[[parser.Parsed], int] = imported(parsed.command.handler)
    return handler(parsed)


def _of_the_system(error: Exception) -> HostError | None:
    """Return our error for one that any command may run into: there is no current directory any more, or no space for the output."""
    if not isinstance(error, OSError) or error.filename is not None:
        return None
    try:
        os.getcwd()  # noqa: PTH109 - without importing pathlib
    except FileNotFoundError:
        return HostError("the current directory does not exist any more", remedy="run the command in another one")
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}:
        return HostError("the output cannot be written", detail=error.strerror or "", remedy="write it to a disk with free space")
    return None


def _start_log(parsed: parser.Parsed, verbosity: int) -> None:
    """Set up the log, and record the command: the names of flags, not their values."""
    import logging

    import kubewright
    from kubewright.base import logs

    logs.configure(verbosity)
    flags = " ".join(f"--{name}" for name in sorted(parsed.given)) or "no flags"
    logs.verbose(logging.getLogger(__name__), 1, 'kubewright %s: "%s" with %s', kubewright.__version__, parsed.command.path, flags)


def _version(program: str) -> int:
    from kubewright.cli.handlers import light_commands

    light_commands.own(program)
    return 0


def _help(parsed: parser.Parsed, *, program: str) -> int:
    """Print help; a group that was called without a sub-command fails after it, as in kubeadm."""
    from kubewright.cli.printers import helptext

    sys.stdout.write(helptext.render(parsed.command, program=program, table=parsed.table))
    if parsed.wants_help or parsed.command.shows_help:
        return 0
    called = " ".join((program, *parsed.command.words))
    sys.stderr.write(f"error: missing sub-command; {called} needs one of those above\n")
    return 1 if parsed.command.exit_scheme == KUBEADM else 2


def _change_root(path: str, *, handler: str) -> None:
    from kubewright.cli import rootfs

    rootfs.enter(path, handler=handler)


def _fail(error: KubewrightError, command: Command, *, verbosity: int) -> int:
    from kubewright.cli.printers.failure import write_error

    is_kubeadms = command.exit_scheme == KUBEADM
    has_phases = command.workflow is not None and bool(command.workflow.phases)
    write_error(error, verbosity=verbosity, kubeadm=is_kubeadms, phases=is_kubeadms and has_phases)
    if is_kubeadms:
        return error.exit_code if isinstance(error, Interrupted) else 1
    return max(error.exit_code, 2) if command.exit_scheme == DIFF else error.exit_code


def _stopped(stop: KeyboardInterrupt, command: Command) -> int:
    return _fail(interruption(stop, remedy="run the same command again to continue"), command, verbosity=0)


def _bug(error: Exception, *, verbosity: int) -> int:
    from kubewright.cli.printers.failure import write_bug

    write_bug(error, verbosity=verbosity)
    return BUG


def run() -> None:
    """Exit the process with the exit code of `main`.

    It exits immediately when everything is written: shutting down the interpreter with some hundred modules takes 80
    ms, as long as many commands.
    """
    open_streams()
    Stops().install()
    try:
        code = main()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except BrokenPipeError:
        code = 141
    except OSError as error:
        known = _of_the_system(error)
        code = _bug(error, verbosity=0) if known is None else _fail(known, ROOT, verbosity=0)
    except KeyboardInterrupt as stop:  # the command had ended; only its output is incomplete
        code = interruption(stop, remedy="").exit_code
    os._exit(code)
