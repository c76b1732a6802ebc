"""Getting images: which of them, how often it is tried, one after the other or all at once. As kubeadm's check ImagePull does it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from kubewright.base.change import Action, Change
from kubewright.base.clock import Clock
from kubewright.base.errors import HostError, RuntimeSilent, RuntimeUnavailable
from kubewright.base.events import Progress, Reporter
from kubewright.base.records import dataclass
from kubewright.base.retry import retry, steady
from kubewright.host.seam import ContainerRuntime

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

ATTEMPTS: Final = 5
"""How often an image is looked for, and how often it is pulled, without a pause between (kubeadm's PullImageRetry)."""


class Policy(enum.Enum):
    """When an image is pulled."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


@dataclass(frozen=True, kw_only=True)
class Pull:
    """How images are got. Not `serial`: all at the same time."""

    policy: Policy = Policy.IF_NOT_PRESENT
    serial: bool = True
    attempts: int = ATTEMPTS


def pull_images(images: Sequence[str], *, runtime: ContainerRuntime, how: Pull, clock: Clock, reporter: Reporter) -> Iterator[Change]:
    """Get images, and yield what changed for each in the order given, as soon as it is known. With the policy Never there is nothing.

    One after the other ends with the error of the first image that cannot be had. All at once tries every one of them and then raises one
    HostError that names all that failed. A caller that stops early should close the runtime, which ends what is under way.
    """
    if how.policy is Policy.NEVER:
        return
    one = _Puller(runtime, how=how, clock=clock, reporter=reporter, total=len(images))
    if how.serial or len(images) < 2:
        yield from map(one.get, images)
    else:
        yield from _together(images, one.get)


class _Puller:
    """Gets one image after the other, or several at once, and counts them."""

    def __init__(self, runtime: ContainerRuntime, *, how: Pull, clock: Clock, reporter: Reporter, total: int) -> None:
        self._runtime = runtime
        self._how = how
        self._clock = clock
        self._reporter = reporter
        self._total = total
        self._done: list[str] = []

    def get(self, image: str) -> Change:
        """Get one image, unless it is there and that suffices."""
        self._tell(image)
        change = self._get(image)
        self._done.append(image)
        self._tell("")
        return change

    def _get(self, image: str) -> Change:
        if self._how.policy is Policy.IF_NOT_PRESENT and self._tried(lambda: self._runtime.has_image(image)):
            return Change(target=f"image {image}", action=Action.NONE)
        return self._tried(lambda: self._runtime.pull(image))

    def _tried(self, call: Callable[[], T]) -> T:
        return retry(call, clock=self._clock, on=_worth_it, attempts=self._how.attempts, backoff=steady(0))

    def _tell(self, image: str) -> None:
        self._reporter.emit(Progress(task="pull images", done=len(self._done), total=self._total, unit="images", text=image))


def _worth_it(error: Exception) -> bool:
    return isinstance(error, HostError) and (isinstance(error, RuntimeSilent) or not isinstance(error, RuntimeUnavailable))


def _together(images: Sequence[str], get: Callable[[str], Change]) -> Iterator[Change]:
    failed: list[HostError] = []
    with _threads(images, get) as running:
        for future in running:
            try:
                change = future.result()
            except HostError as error:
                failed.append(error)
            else:
                yield change
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise HostError(
            f"{len(failed)} of {len(images)} images cannot be pulled",
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
        executor.shutdown(wait=False, cancel_futures=True)  # after an interrupt nobody waits for a registry
