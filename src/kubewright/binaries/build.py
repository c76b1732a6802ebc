"""Builds programs with Go from the modules of this package: static, stripped, stamped with their version, reproducible.

A build is a child process whose output is read line by line; it never outlives us, and its last lines are kept.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from kubewright.base.clock import Clock
from kubewright.base.errors import BinariesError, DiskFull
from kubewright.base.events import Reporter
from kubewright.base.records import dataclass
from kubewright.binaries import files, golang
from kubewright.binaries.golang import Go, Module
from kubewright.binaries.progress import Meter
from kubewright.binaries.settings import CACHE_VARIABLE
from kubewright.binaries.table import Family, Wanted, fill

TICK: Final = 1.0
"""Seconds without a line after which `idle` is called."""
LONGEST_SILENCE: Final = 1800
"""Ticks without a line after which the child is considered stuck: linking the largest program takes one minute on a slow machine."""
KEPT_LINES: Final = 200

_PACKAGE: Final = re.compile(r"[\w.~/+-]+")  # `go build -v` prints this for a package that it compiles
_DOWNLOADING: Final = "go: downloading "
_LAST_LINES: Final = 12

# Meanings of lines of Go's output, and the remedies.
_REMEDIES: Final = (
    (re.compile(r"signal: killed"), "the machine has too little memory for the linker: 4 GB are needed"),
    (re.compile(r"dial tcp|i/o timeout|no such host|proxyconnect|module lookup disabled|connection refused"),
     "let Go reach a module proxy (GOPROXY), or provide the binaries"),
    (re.compile(r"checksum mismatch|SECURITY ERROR"), "the module proxy serves code that differs from the release: use another one"),
    (re.compile(r"pkg-config|C compiler|gcc"), "install gcc, libc6-dev, libseccomp-dev and pkg-config"),
)  # fmt: skip


class Child:
    """One run of a program whose output (both streams, merged) is read line by line.

    The child has its own process group, which is killed if we stop early. If we are killed, the pipe breaks and ends
    the child at its next line; nothing that it still writes is used.
    """

    def __init__(self, argv: Sequence[str], *, cwd: Path, environment: Mapping[str, str]) -> None:
        self._argv = list(argv)
        self._cwd = cwd
        self._environment = dict(environment)
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)

    def run(self, *, line: Callable[[str], None], idle: Callable[[], None] = lambda: None) -> int:
        """Run to completion and return the exit status, negative for a signal.

        Raises BinariesError if it cannot be started or is silent for too long.
        """
        try:
            process = subprocess.Popen(
                self._argv,
                cwd=self._cwd,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise BinariesError(f"{self._argv[0]} cannot be run: {error.strerror}") from error
        try:
            self._read(process, line=line, idle=idle)
            return process.wait()
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _read(self, process: subprocess.Popen[bytes], *, line: Callable[[str], None], idle: Callable[[], None]) -> None:
        assert process.stdout is not None
        rest = b""
        for data in self._pieces(process.stdout.fileno(), idle=idle):
            *whole, rest = (rest + data).split(b"\n")
            for one in [*whole, *([rest] if rest and not data else [])]:
                text = one.decode(errors="replace")
                self.lines.append(text)
                line(text)
            if not data:
                return

    def _pieces(self, descriptor: int, *, idle: Callable[[], None]) -> Iterator[bytes]:
        """Yield the output as it comes, and an empty piece when it has ended. Calls `idle` while there is none."""
        silence = 0
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while True:
                if selector.select(TICK):
                    silence = 0
                    yield os.read(descriptor, 65536)
                    continue
                silence += 1
                if silence > LONGEST_SILENCE:
                    raise BinariesError(f"`{' '.join(self._argv[:2])}` said nothing for {LONGEST_SILENCE * TICK:.0f} s")
                idle()


@dataclass(frozen=True, kw_only=True)
class _Job:
    """The common values of all runs of Go for one build."""

    go: Go
    module: Module
    directory: Path
    environment: Mapping[str, str]
    names: str


class Build:
    """Builds programs into a work directory. The caller holds the cache's lock, so that one build runs at a time."""

    name = "build"

    def __init__(self, environment: Mapping[str, str], *, offline: bool, reporter: Reporter, clock: Clock) -> None:
        self._environment = environment
        self._offline = offline
        self._reporter = reporter
        self._clock = clock

    def obtain(self, family: Family, wanted: Sequence[Wanted], *, work: Path) -> tuple[dict[str, Path], str]:
        """Build programs of one family and version in one run, which uses all cores.

        Return their paths by name, and the builder. `work` is an empty directory. Raises BinariesError with the
        compiler's last lines, DiskFull, HostError.
        """
        version, architecture = wanted[0].version, wanted[0].architecture
        module = golang.find_module(family, version)
        go = golang.find_go(self._environment, need=module.go)
        directory = module.copy_to(work / "modules")
        output, temporary = work / "out", work / "tmp"
        files.make_directory(output)
        files.make_directory(temporary)
        names = ", ".join(one.name for one in wanted)
        environment = golang.build_environment(self._environment, family=family, architecture=architecture, offline=self._offline)
        environment.setdefault("GOTMPDIR", str(temporary))  # leftovers of a killed linker are removed with the work directory
        job = _Job(go=go, module=module, directory=directory, environment=environment, names=f"{names} {version}")
        packages = [one.program.package for one in wanted]
        stale = self._count(job, family, packages)
        self._run(job, [*_command(go, "build", family, module), "-v", "-o", f"{output}/", *packages], task="build", total=stale)
        return {one.name: output / one.program.output for one in wanted}, f"build {module.path.name} with {go}"

    def _count(self, job: _Job, family: Family, packages: Sequence[str]) -> int:
        """Return how many packages must be compiled. Downloads missing modules."""
        template = "{{if .Stale}}{{.ImportPath}}{{end}}"
        argv = [*_command(job.go, "list", family, job.module), "-deps", "-f", template, *packages]
        return self._run(job, argv, task="prepare", total=None)

    def _run(self, job: _Job, argv: Sequence[str], *, task: str, total: int | None) -> int:
        """Run Go and return how many packages it printed. Raises BinariesError, DiskFull."""
        child = Child(argv, cwd=job.directory, environment=job.environment)
        meter = Meter(f"{task} {job.names}", unit="packages", reporter=self._reporter, clock=self._clock, total=total)
        count = 0

        def line(text: str) -> None:
            nonlocal count
            if text.startswith(_DOWNLOADING):
                meter.at(count, text=text.removeprefix("go: "))
            elif _PACKAGE.fullmatch(text):
                count += 1
                meter.at(min(count, total) if total is not None else count, text=text)

        code = child.run(line=line, idle=lambda: meter.at(meter.done, text="linking" if total is not None and count >= total else ""))
        if code:
            raise failure(job.names, code, list(child.lines))
        meter.finish()
        return count


def _command(go: Go, verb: str, family: Family, module: Module) -> list[str]:
    return [
        go.path,
        verb,
        "-mod=readonly",
        "-trimpath",
        "-buildvcs=false",
        *([f"-tags={','.join(family.tags)}"] if family.tags else []),
        f"-ldflags={linker_flags(family, module)}",
    ]


def linker_flags(family: Family, module: Module) -> str:
    """Return the linker's flags: no symbol table, no debug information, the version stamps."""
    return " ".join(["-s -w", *(f"-X {variable}={fill(value, version=module.version)}" for variable, value in family.stamps)])


def failure(names: str, code: int, lines: Sequence[str]) -> BinariesError | DiskFull:
    """Return the error for a failed run of Go, based on its exit status and output."""
    words = [line for line in lines if line.strip() and not _PACKAGE.fullmatch(line) and not line.startswith(_DOWNLOADING)]
    detail = "\n".join(words[-_LAST_LINES:])
    if any("no space left on device" in line or "disk quota exceeded" in line for line in words):
        return DiskFull(
            f"there is not enough space to build {names}",
            detail=detail,
            remedy=f"free 7 GB, or set GOCACHE, GOMODCACHE, TMPDIR and {CACHE_VARIABLE} to another disk",
        )
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit status {code}"
    remedy = next((remedy for pattern, remedy in _REMEDIES if any(pattern.search(line) for line in words)), "")
    if code == -9 and not remedy:
        remedy = _REMEDIES[0][1]
    return BinariesError(f"go {ended} while building {names}", detail=detail, remedy=remedy)
