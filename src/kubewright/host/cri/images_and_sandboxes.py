"""Bulk actions on a container runtime: pulling images, as kubeadm's check ImagePull does, and removing all pods, as `reset` does."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from kubewright.base.change import Action, Change
from kubewright.base.clock import Clock
from kubewright.base.errors import HostError, KubewrightError, RuntimeSilent, RuntimeUnavailable
from kubewright.base.events import Progress, Reporter
from kubewright.base.records import dataclass
from kubewright.base.wait import Backoff, retry, steady
from kubewright.host.failures import expected
from kubewright.host.seam import ContainerRuntime
from kubewright.host.states import Sandbox

if TYPE_CHECKING:
    from concurrent.futures import Future


T = TypeVar("T")

PULL_ATTEMPTS: Final = 5
"""How often an image is looked up, and how often it is pulled, without a pause in between (kubeadm's PullImageRetry)."""

REMOVE_ATTEMPTS: Final = 12
"""How often the removal of a sandbox, and the list, is tried. kubeadm's RemoveContainerRetry is 5, without pauses.

But a container cannot be removed while it is starting, which takes seconds on a busy machine.
"""
_PAUSES: Final = Backoff(first=0.1, factor=2.0, limit=1.0)

THREADS: Final = 8
"""How many sandboxes are stopped at the same time: each takes as long as its processes take to exit."""


class PullPolicy(enum.Enum):
    """When an image is pulled."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


@dataclass(frozen=True, kw_only=True)
class Pull:
    """How images are pulled.

    If `serial` is False, all at the same time. `tries_all`: serial pulls continue after a failure, as those of kubeadm's
    check ImagePull do and those of `config images pull` do not.
    """

    policy: PullPolicy = PullPolicy.IF_NOT_PRESENT
    serial: bool = True
    tries_all: bool = False
    attempts: int = PULL_ATTEMPTS


def pull_images(images: Sequence[str], *, runtime: ContainerRuntime, how: Pull, clock: Clock, reporter: Reporter) -> Iterator[Change]:
    """Pull images, and yield the change of each in the order given, as soon as it is known.

    The policy Never yields nothing.

    A serial pull ends with the error of the first image that fails, unless it tries all: then each of the others is
    tried once, because one registry is usually the cause. A parallel pull tries all.
    After that, one HostError names all that failed. A caller that stops early should close the runtime, which ends
    pulls in progress.
    """
    if how.policy is PullPolicy.NEVER:
        return
    one = _Puller(runtime, how=how, clock=clock, reporter=reporter, total=len(images))
    if not how.serial and len(images) > 1:
        with _threads(images, one.get) as running:
            yield from _all_of([future.result for future in running])
    elif how.tries_all:
        yield from _all_of([partial(one.get, image) for image in images])
    else:
        yield from map(one.get, images)


class _Puller:
    """Pulls images one after the other, or several at once, and counts them."""

    def __init__(self, runtime: ContainerRuntime, *, how: Pull, clock: Clock, reporter: Reporter, total: int) -> None:
        self._runtime = runtime
        self._how = how
        self._clock = clock
        self._reporter = reporter
        self._total = total
        self._attempts = how.attempts
        self._done: list[str] = []

    def get(self, image: str) -> Change:
        """Pull one image, unless it exists and the policy accepts that."""
        self._report_progress(image)
        try:
            change = self._get(image)
        except HostError:
            if self._how.serial:
                self._attempts = 1
            raise
        self._done.append(image)
        self._report_progress("")
        return change

    def _get(self, image: str) -> Change:
        if self._how.policy is PullPolicy.IF_NOT_PRESENT and self._tried(lambda: self._runtime.has_image(image)):
            return Change(target=f"image {image}", action=Action.NONE)
        return self._tried(lambda: self._runtime.pull(image))

    def _tried(self, call: Callable[[], T]) -> T:
        return retry(call, clock=self._clock, on=_worth_it, attempts=self._attempts, backoff=steady(0))

    def _report_progress(self, image: str) -> None:
        self._reporter.emit(Progress(task="pull images", done=len(self._done), total=self._total, unit="images", text=image))


def _worth_it(error: Exception) -> bool:
    return isinstance(error, HostError) and (isinstance(error, RuntimeSilent) or not isinstance(error, RuntimeUnavailable))


def _all_of(pulls: Sequence[Callable[[], Change]]) -> Iterator[Change]:
    """Yield the changes of the pulls that succeed; then raise the errors of the others as one. A missing runtime ends all."""
    failed: list[HostError] = []
    for pull in pulls:
        try:
            change = pull()
        except HostError as error:
            if not _worth_it(error):
                raise
            failed.append(error)
        else:
            yield change
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise HostError(
            f"{len(failed)} of {len(pulls)} images cannot be pulled",
            detail="\n".join(str(error) for error in failed),
            remedy=failed[0].remedy,
        ) from failed[0]


@contextmanager
def _threads(images: Sequence[str], get: Callable[[str], Change]) -> Iterator[list[Future[Change]]]:
    from concurrent.futures import ThreadPoolExecutor

    executor = ThreadPoolExecutor(max_workers=len(images), thread_name_prefix="pull")
    try:
        yield [executor.submit(get, image) for image in images]
    finally:
        executor.shutdown(wait=False, cancel_futures=True)  # after an interrupt, do not wait for a registry


@dataclass(frozen=True, kw_only=True)
class Removal:
    """The result for one sandbox: a change, or the error of the last attempt."""

    sandbox: Sandbox
    change: Change | None = None
    error: KubewrightError | None = None


def remove_sandboxes(runtime: ContainerRuntime, *, clock: Clock) -> list[Removal]:
    """Stop and remove all sandboxes, several at a time; a failure does not stop the others.

    Returns the results in the order of the runtime's list, which is requested again while the runtime does not answer.
    Raises HostError if there is no list.
    """
    listed = retry(runtime.sandboxes, clock=clock, on=RuntimeSilent, attempts=REMOVE_ATTEMPTS, backoff=_PAUSES)
    waiting = dict(enumerate(listed))
    removed: dict[int, Removal] = {}

    def work() -> None:
        while waiting:
            try:
                number, sandbox = waiting.popitem()
            except KeyError:  # another thread took the last one
                return
            removed[number] = _remove(sandbox, runtime=runtime, clock=clock)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(THREADS, len(waiting)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [removed[number] for number in sorted(removed)]


def remove_sandbox(sandbox: Sandbox, *, runtime: ContainerRuntime, clock: Clock) -> Change:
    """Stop and remove one sandbox. Raises HostError with the error of the last of `REMOVE_ATTEMPTS` attempts."""

    def remove() -> Change:
        return runtime.remove_sandbox(sandbox)

    return retry(remove, clock=clock, on=HostError, attempts=REMOVE_ATTEMPTS, backoff=_PAUSES)


def _remove(sandbox: Sandbox, *, runtime: ContainerRuntime, clock: Clock) -> Removal:
    try:
        return Removal(sandbox=sandbox, change=remove_sandbox(sandbox, runtime=runtime, clock=clock))
    except Exception as error:  # the error must end neither this thread nor the others
        return Removal(sandbox=sandbox, error=expected(error))
