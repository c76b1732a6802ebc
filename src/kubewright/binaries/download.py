"""Downloads the files of a release: mirrors first, then the primary host.

A file is used only after its SHA-256 was verified.

The SHA-256 is pinned in the version table, or else read from the release's checksum file on the primary host, never
from a mirror. Interrupted downloads are resumed: an unfinished file is named after its expected digest, so another host
can continue it.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from kubewright.base.clock import Clock
from kubewright.base.errors import BinariesError, DiskFull, Unreachable
from kubewright.base.events import Reporter
from kubewright.binaries import artifacts, files
from kubewright.binaries.artifacts import LARGEST, Artifact
from kubewright.binaries.progress import Meter
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import Stream

PARTIAL: Final = "partial"
"""Directory below the cache's root for unfinished downloads."""
CONNECT_LIMIT: Final = 3.0
FIRST_ANSWER_LIMIT: Final = 10.0
"""Seconds for the first response of the primary host, including name resolution: a machine without a route must not wait."""
STALL: Final = 30.0
CHECKSUM_LARGEST: Final = 1 << 20
RETRIES: Final = 3
"""How many attempts may follow one without a byte of progress; attempts that make progress do not count."""
WINDOW: Final = 60.0
SLOWEST: Final = 1024
"""Bytes per second over WINDOW below which a download counts as stalled, although bytes still arrive."""
KEPT_FOR: Final = 7 * 86400.0
_RETRY_STATUSES: Final = frozenset({429, 500, 502, 503, 504})
_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")


class Fetcher(Protocol):
    """The HTTP client for downloads (kubewright.http.sync.Downloads): follows redirects within limits, never to plain HTTP."""

    def get(self, url: str, /, *, start: int = 0, most: int | None = None, within: float | None = None) -> AbstractContextManager[Stream]:
        """Open a URL from byte `start` on; `most` limits the body, `within` the total seconds. Raises Unreachable."""
        ...


class _NoAnswerError(BinariesError):
    """A host gave no usable response."""


class _UnfinishedError(Exception):
    """An attempt ended early, for a reason that may not affect another attempt."""

    def __init__(self, error: BinariesError) -> None:
        super().__init__(str(error))
        self.error = error


class Downloads:
    """Downloads files of releases into the cache's directory for unfinished ones. The caller holds the cache's lock."""

    name = "download"

    def __init__(self, fetcher: Fetcher, *, root: Path, mirrors: tuple[str, ...], reporter: Reporter, clock: Clock) -> None:
        self._fetcher = fetcher
        self._directory = root / PARTIAL
        self._mirrors = mirrors
        self._reporter = reporter
        self._clock = clock
        self._primary_failed: BinariesError | None = None

    def obtain(self, artifact: Artifact) -> Path:
        """Return the path of the complete file, after verifying its SHA-256. The caller moves or removes it.

        Raises BinariesError with the reason for each host, and DiskFull. A primary host that could not be reached is
        not tried again.
        """
        expected = artifact.pinned or self._published(artifact)
        files.make_directory(self._directory)
        part = self._directory / f"{expected}.part"
        with files.writing(part):
            _drop_foreign(part)
        failures: list[str] = []
        for url in (*(artifact.at(mirror) for mirror in self._mirrors), artifact.url):
            try:
                self._fetch(url, part, expected=expected, label=artifact.label, primary=url == artifact.url)
            except DiskFull:
                part.unlink(missing_ok=True)
                raise
            except BinariesError as error:
                failures.append(str(error))
            else:
                return part
        raise BinariesError("\n".join(failures))

    def _published(self, artifact: Artifact) -> str:
        """Read the digest from the release's own checksum file, at the primary host only."""
        url = artifact.checksum_url
        with self._asking_primary():
            status, body = _within(FIRST_ANSWER_LIMIT, lambda: self._read(url), url=url)
        if status != 200:
            raise _bad_status(url, status)
        try:
            return artifacts.digest_in(body.decode("ascii", errors="replace"), file_name=urlsplit(artifact.url).path.rpartition("/")[2])
        except ValueError as error:
            raise BinariesError(f"{url} {error}") from error

    @contextmanager
    def _asking_primary(self) -> Iterator[None]:
        """Remember that a primary host gave no response, and do not try it again."""
        if self._primary_failed is not None:
            raise self._primary_failed
        try:
            yield
        except _NoAnswerError as error:
            self._primary_failed = error
            raise

    def _read(self, url: str) -> tuple[int, bytes]:
        with self._fetcher.get(url, most=CHECKSUM_LARGEST, within=FIRST_ANSWER_LIMIT) as answer:
            return answer.status, answer.read()

    def _fetch(self, url: str, part: Path, *, expected: str, label: str, primary: bool) -> None:
        with self._asking_primary() if primary else nullcontext():
            self._complete(url, part, expected=expected, label=label)

    def _complete(self, url: str, part: Path, *, expected: str, label: str) -> None:
        """Complete `part` from one address, in as many attempts as make sense."""
        left, pause, furthest = RETRIES, 0.5, _size(part)
        while True:
            before = _size(part)
            try:
                self._transfer(url, part, label=label)
                self._check(url, part, expected=expected, resumed=before > 0)
            except _UnfinishedError as attempt:
                # Only bytes beyond the furthest position are progress: otherwise a host that sends wrong bytes in
                # pieces would be retried forever.
                left = RETRIES if _size(part) > furthest else left - 1
                furthest = max(furthest, _size(part))
                if left <= 0:
                    raise attempt.error from attempt
                self._clock.sleep(pause)
                pause = min(pause * 2, 5.0)
            else:
                return

    def _check(self, url: str, part: Path, *, expected: str, resumed: bool) -> None:
        found = files.sha256(part)
        if found == expected:
            return
        part.unlink()
        error = BinariesError(f"{url} has the wrong content: its SHA-256 is {found}, expected {expected}")
        if resumed:  # the earlier part may have been wrong
            raise _UnfinishedError(error)
        raise error

    def _transfer(self, url: str, part: Path, *, label: str) -> None:
        start = _size(part)
        try:
            with self._fetcher.get(url, start=start, most=LARGEST - start) as answer:
                offset = _offset(url, answer, start=start)
                if offset is None:  # nothing is left to be sent: the digest decides
                    return
                meter = Meter(f"download {label}", unit="bytes", reporter=self._reporter, clock=self._clock, total=_total(answer, offset))
                with files.writing(part):
                    self._copy(answer, part, offset=offset, meter=meter, url=url)
        except Unreachable as error:
            raise _translated(url, error) from error

    def _copy(self, answer: Stream, part: Path, *, offset: int, meter: Meter, url: str) -> None:
        if not offset:
            part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | (0 if offset else os.O_CREAT | os.O_EXCL), 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.truncate(offset)
            file.seek(offset)
            speed = _Speed(offset, now=self._clock.monotonic())
            for chunk in answer.chunks():
                file.write(chunk)
                meter.at(file.tell())
                if speed.is_too_low(file.tell(), now=self._clock.monotonic()):
                    raise _UnfinishedError(BinariesError(f"{url} sends less than {SLOWEST} bytes a second"))
        meter.finish()


class _Speed:
    """The speed of a download, measured once in each `WINDOW`."""

    def __init__(self, position: int, *, now: float) -> None:
        self._position = position
        self._measured_at = now

    def is_too_low(self, position: int, *, now: float) -> bool:
        """Whether a window has just ended in which fewer than `SLOWEST` bytes a second arrived."""
        if now - self._measured_at < WINDOW:
            return False
        received = position - self._position
        self._position, self._measured_at = position, now
        return received < SLOWEST * WINDOW


def forget_old(root: Path, *, now: datetime) -> None:
    """Remove unfinished downloads that have not been continued for a week. The caller holds the cache's lock."""
    for part in (root / PARTIAL).glob("*.part"):
        if now.timestamp() - part.lstat().st_mtime > KEPT_FOR:
            part.unlink(missing_ok=True)


def _drop_foreign(part: Path) -> None:
    """Remove the file at the path of an unfinished download if an earlier run of ours did not write it."""
    with suppress(FileNotFoundError):
        found = part.lstat()
        ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == 1 and not found.st_mode & 0o022
        if not ours:
            part.unlink()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _offset(url: str, answer: Stream, *, start: int) -> int | None:
    """Return the offset of a response's body in the file; None if nothing is left to be sent.

    Raises BinariesError, _UnfinishedError.
    """
    if answer.status == 200:
        return 0
    if answer.status == 206:
        found = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", ""))
        if found is None or int(found[1]) != start:
            raise BinariesError(f"{url} sent another part of the file than requested")
        return start
    if answer.status == 416 and start:
        return None
    error = _bad_status(url, answer.status)
    raise _UnfinishedError(error) if answer.status in _RETRY_STATUSES else error


def _total(answer: Stream, offset: int) -> int | None:
    length = answer.headers.get("content-length", "")
    return offset + int(length) if length.isascii() and length.isdigit() else None


def _bad_status(url: str, status: int) -> BinariesError:
    meaning = {403: "access is refused", 404: "the file does not exist", 407: "the proxy requires a user and a password"}.get(status)
    return BinariesError(f"{url} answered {status}" + (f": {meaning}" if meaning else ""))


def _translated(url: str, error: Unreachable) -> Exception:
    """Convert an error of the transport into an error of this source, or into a reason for another attempt."""
    own = _NoAnswerError(f"{url}: {error.detail or error.what}", remedy=error.remedy)
    again = isinstance(error, NoAnswer) and error.reason in {Reason.RESET, Reason.TIMED_OUT, Reason.TRUNCATED}
    return _UnfinishedError(own) if again else own


def _within(seconds: float, work: Callable[[], tuple[int, bytes]], *, url: str) -> tuple[int, bytes]:
    """Run the first request to a host with a time limit in seconds.

    It runs in a separate thread, because the resolver has no configurable timeout; the thread is abandoned and ends by
    its own timeouts.
    Raises BinariesError if there is no response, otherwise whatever `work` raises.
    """
    results: list[tuple[int, bytes]] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:  # passed to the waiting thread, which raises it
            errors.append(error)

    thread = threading.Thread(target=run, name="kubewright-first-answer", daemon=True)
    thread.start()
    thread.join(seconds)
    if results:
        return results[0]
    if not errors:
        raise _NoAnswerError(f"{url}: no answer within {seconds:.0f} s")
    if isinstance(errors[0], Unreachable):
        raise _NoAnswerError(f"{url}: {errors[0].detail or errors[0].what}", remedy=errors[0].remedy) from errors[0]
    raise errors[0]
