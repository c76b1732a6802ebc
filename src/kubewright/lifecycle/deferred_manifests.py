"""Static pod manifests that are written later, so that no component starts before its dependencies are available.

A kubelet starts all static pods that it finds at once. A kube-apiserver that starts before its etcd waits a second for
its next attempt, and a kube-controller-manager that is refused its first lease retries two to four seconds later.
Therefore a manifest is held back until its condition is met, and then written by a thread, concurrently with the
following phases.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Change
from kubewright.base.errors import KubewrightError

if TYPE_CHECKING:
    from kubewright.host.desired import File
    from kubewright.host.seam import Host


_LOOK: Final = 0.02
"""Seconds between two checks of the conditions."""

StartCondition = Callable[[], bool]
"""Returns whether a component may start. KubewrightErrors mean: not yet."""


class DeferredManifests:
    """Holds new manifests back until their conditions are met, which are checked in order.

    An existing one is written at once. Leaving the context drops manifests that were not written: the same command
    writes them again.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._conditions: Mapping[str, StartCondition] = {}
        self._waiting: dict[str, File] = {}
        self._changes: list[Change] = []
        self._error: BaseException | None = None
        self._stopped = threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> DeferredManifests:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def hold(self, conditions: Mapping[str, StartCondition]) -> None:
        """Hold back manifests with these conditions from now on.

        Before that, and without a condition, manifests are written at once.
        """
        self._conditions = conditions

    def take(self, component: str, manifest: File, /) -> bool:
        """Take over a manifest to write it later. False: the caller must write it now."""
        if component not in self._conditions or self._host.state(manifest.path) is not None:
            return False
        with self._guard:
            self._waiting[component] = manifest
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="deferred-manifests", daemon=True)
            self._thread.start()
        return True

    def check(self) -> None:
        """Raise the error of a manifest that was taken over."""
        if self._error is not None:
            raise self._error

    def finish(self) -> list[Change]:
        """Write the remaining manifests, because their conditions are met.

        Returns all changes, and raises the first error.
        """
        with self._guard:  # a write in progress is completed first
            waiting = list(self._waiting)
        self.check()
        for component in waiting:
            self._write(component)
            self.check()
        self._stopped.set()
        return list(self._changes)

    def _work(self) -> None:
        while not self._stopped.wait(_LOOK):
            with self._guard:
                waiting = [component for component in self._conditions if component in self._waiting]
            for component in waiting:
                if not self._stopped.is_set() and self._due(component):
                    self._try(component)

    def _due(self, component: str) -> bool:
        try:
            return self._conditions[component]()
        except KubewrightError:  # the condition could not be evaluated: try again
            return False

    def _try(self, component: str) -> None:
        try:
            self._write(component)
        except BaseException:  # `check` and `finish` raise it
            self._stopped.set()

    def _write(self, component: str) -> None:
        """Write a manifest, unless the other thread has just done so.

        An error is stored before the guard is released: `finish` checks then.
        """
        with self._guard:
            manifest = self._waiting.pop(component, None)
            if manifest is None:
                return
            try:
                self._changes.append(self._host.ensure(manifest))
            except BaseException as error:
                self._error = error
                raise
