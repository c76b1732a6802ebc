"""Static pod manifests that are written later, so that no component starts before what it needs is there.

A kubelet starts all static pods that it finds at once. A kube-apiserver that comes before its etcd waits a second for its next try, and a
kube-controller-manager that is refused its first lease comes back two to four seconds later. So a manifest is kept until its condition
holds, and a thread writes it then, beside the phases that go on.
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
"""Tells whether a component may start. What it raises of the tree of errors means: not yet."""


class DeferredManifests:
    """Keeps new manifests until their conditions hold, which are checked in their order; one that is on the machine already is written at once.

    Leaving the context drops what was not written: the same command again writes it.
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
        """Keep manifests for their conditions from now on; before that, and those without one, are written at once."""
        self._conditions = conditions

    def take(self, component: str, manifest: File, /) -> bool:
        """Take over a manifest to write it later. False: it is to be written now."""
        if component not in self._conditions or self._host.state(manifest.path) is not None:
            return False
        with self._guard:
            self._waiting[component] = manifest
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="deferred-manifests", daemon=True)
            self._thread.start()
        return True

    def check(self) -> None:
        """Raise what went wrong with a manifest that was taken over."""
        if self._error is not None:
            raise self._error

    def finish(self) -> list[Change]:
        """Write what is left: whatever it waited for is there. Returns all that was written, and raises what went wrong."""
        with self._guard:  # a write that is under way ends first
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
        except KubewrightError:  # whatever could not be asked: it is asked again
            return False

    def _try(self, component: str) -> None:
        try:
            self._write(component)
        except BaseException:  # `check` and `finish` raise it
            self._stopped.set()

    def _write(self, component: str) -> None:
        """Write a manifest, unless the other thread has just done so. An error is kept before the guard is given back: `finish` checks then."""
        with self._guard:
            manifest = self._waiting.pop(component, None)
            if manifest is None:
                return
            try:
                self._changes.append(self._host.ensure(manifest))
            except BaseException as error:
                self._error = error
                raise
