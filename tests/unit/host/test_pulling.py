"""Which images are pulled, how often, in which order they are reported, and the effect of a failure on the others; the same for sandboxes."""

from __future__ import annotations

import threading

import pytest

from busy import HANGS
from kubewright.base.change import Action, Change
from kubewright.base.clock import SystemClock
from kubewright.base.errors import HostError, RuntimeSilent, RuntimeUnavailable
from kubewright.base.events import Progress, RecordingReporter, SilentReporter
from kubewright.host.cri.images_and_sandboxes import Pull, PullPolicy, pull_images, remove_sandboxes
from kubewright.host.cri.runtime import choose_socket
from kubewright.host.states import Sandbox


class Images:
    """A runtime with some images. `broken` maps an image or a sandbox to the number of times that it fails, and the error."""

    def __init__(self, *there: str, broken=None) -> None:
        self.there = set(there)
        self.broken = broken or {}
        self.told = []
        self.lock = threading.Lock()
        self.waits = None
        self.looks = []
        self.slow = 0

    def has_image(self, image):
        """Do not answer the first requests: as many as `slow` says."""
        self.looks.append(image)
        if len(self.looks) <= self.slow:
            raise RuntimeSilent(f"no answer about {image}")
        return image in self.there

    def _try(self, name):
        with self.lock:
            self.told.append(name)
            times, error = self.broken.get(name, (0, HostError))
            if times:
                self.broken[name] = (times - 1, error)
                raise error(f"{name} fails", remedy=f"mend {name}")

    def pull(self, image):
        if self.waits:
            self.waits.wait(HANGS)
        self._try(image)
        self.there.add(image)
        return Change(target=f"image {image}", action=Action.CREATE)

    def sandboxes(self):
        return [Sandbox(id=str(number), name=name, namespace="n") for number, name in enumerate("abc")]

    def remove_sandbox(self, sandbox):
        self._try(sandbox.name)
        return Change(target=sandbox.target, action=Action.DELETE)


class NoPause(SystemClock):
    def sleep(self, seconds):
        assert seconds == 0


class Pauses(SystemClock):
    def __init__(self) -> None:
        self.slept = []

    def sleep(self, seconds):
        self.slept.append(seconds)


def pull(runtime, *images: str, reporter=None, **how: object):
    changes = pull_images(images, runtime=runtime, how=Pull(**how), clock=NoPause(), reporter=reporter or SilentReporter())
    return [(change.target.removeprefix("image "), change.action) for change in changes]


@pytest.mark.parametrize(
    ("policy", "told", "changes"),
    [
        (PullPolicy.ALWAYS, ["a", "b"], [("a", Action.CREATE), ("b", Action.CREATE)]),
        (PullPolicy.IF_NOT_PRESENT, ["b"], [("a", Action.NONE), ("b", Action.CREATE)]),
        (PullPolicy.NEVER, [], []),
    ],
)
@pytest.mark.parametrize("serial", [True, False])
def test_the_policy_decides_what_is_pulled(policy, told, changes, serial):
    runtime = Images("a")
    assert pull(runtime, "a", "b", policy=policy, serial=serial) == changes
    assert sorted(runtime.told) == told


def test_policies_are_those_of_the_configuration():
    assert {policy.value for policy in PullPolicy} == {"Always", "IfNotPresent", "Never"}


@pytest.mark.parametrize("serial", [True, False])
def test_a_pull_is_tried_five_times_without_a_pause(serial):
    runtime = Images(broken={"a": (4, HostError)})
    assert pull(runtime, "a", "b", serial=serial) == [("a", Action.CREATE), ("b", Action.CREATE)]
    assert runtime.told.count("a") == 5
    runtime = Images(broken={"a": (5, HostError)})
    with pytest.raises(HostError, match="a fails"):
        pull(runtime, "a", "b", serial=serial)
    assert runtime.told.count("a") == 5


def test_a_runtime_that_does_not_answer_is_not_retried():
    runtime = Images(broken={"a": (5, RuntimeUnavailable)})
    with pytest.raises(RuntimeUnavailable):
        pull(runtime, "a")
    assert runtime.told == ["a"]


def test_a_slow_runtime_is_asked_again_for_an_image():
    runtime = Images("a")
    runtime.slow = 4
    assert pull(runtime, "a", "b") == [("a", Action.NONE), ("b", Action.CREATE)]
    assert runtime.looks == ["a"] * 5 + ["b"]
    assert runtime.told == ["b"]
    runtime = Images("a")
    runtime.slow = 5
    with pytest.raises(RuntimeSilent, match="no answer about a"):
        pull(runtime, "a")
    assert runtime.looks == ["a"] * 5


def test_a_missing_runtime_is_asked_once_for_an_image():
    class Gone(Images):
        def has_image(self, image):
            self.looks.append(image)
            raise RuntimeUnavailable("nobody listens")

    runtime = Gone()
    with pytest.raises(RuntimeUnavailable):
        pull(runtime, "a")
    assert (runtime.looks, runtime.told) == (["a"], [])


def test_a_pull_without_an_answer_of_a_slow_runtime_is_retried():
    runtime = Images(broken={"a": (1, RuntimeSilent)})
    assert pull(runtime, "a") == [("a", Action.CREATE)]
    assert runtime.told == ["a", "a"]


def test_serial_pulls_end_at_the_first_failure():
    runtime = Images(broken={"b": (5, HostError)})
    done = []
    with pytest.raises(HostError, match="b fails"):
        done.extend(pull_images("abc", runtime=runtime, how=Pull(), clock=NoPause(), reporter=SilentReporter()))
    assert "c" not in runtime.told


@pytest.mark.parametrize("how", [Pull(serial=False), Pull(serial=True, tries_all=True)])
def test_pulls_that_try_every_image_report_all_failures(how):
    runtime = Images(broken={"a": (5, HostError), "c": (5, HostError)})
    seen = []
    with pytest.raises(HostError) as caught:
        seen.extend(pull_images("abcd", runtime=runtime, how=how, clock=NoPause(), reporter=SilentReporter()))
    assert caught.value.what == "2 of 4 images cannot be pulled"
    assert caught.value.detail == "a fails\nc fails"
    assert caught.value.remedy == "mend a"
    assert [change.target for change in seen] == ["image b", "image d"]
    assert runtime.there == {"b", "d"}


def test_after_a_failure_further_images_are_tried_once_each():
    runtime = Images(broken={"a": (9, HostError), "c": (9, HostError)})
    with pytest.raises(HostError, match="2 of 3 images"):
        pull(runtime, "a", "b", "c", tries_all=True)
    assert runtime.told == [*"aaaaa", "b", "c"]


def test_without_a_runtime_one_image_is_tried():
    runtime = Images(broken=dict.fromkeys("abc", (5, RuntimeUnavailable)))
    with pytest.raises(RuntimeUnavailable):
        pull(runtime, "a", "b", "c", tries_all=True)
    assert runtime.told == ["a"]


def test_parallel_pulls_run_concurrently_and_are_reported_in_order():
    runtime = Images()
    runtime.waits = threading.Barrier(3)
    assert [name for name, _ in pull(runtime, "c", "a", "b", serial=False)] == ["c", "a", "b"]


def test_progress_is_reported():
    reporter = RecordingReporter()
    pull(Images("a"), "a", "b", reporter=reporter)
    told = [(event.done, event.total, event.text) for event in reporter.events if isinstance(event, Progress)]
    assert told == [(0, 2, "a"), (1, 2, ""), (1, 2, "b"), (2, 2, "")]


def test_a_failing_sandbox_removal_does_not_prevent_the_others():
    runtime = Images(broken={"a": (4, HostError), "b": (99, HostError)})
    clock = Pauses()
    found = list(remove_sandboxes(runtime, clock=clock))
    first = [0.1, 0.2, 0.4, 0.8]  # what is just being started can be removed a moment later
    assert sorted(clock.slept) == sorted([*first, *first, *[1.0] * 7])
    assert [removal.change.target if removal.change else str(removal.error) for removal in found] == ["pod n/a", "b fails", "pod n/c"]
    assert [runtime.told.count(name) for name in "abc"] == [5, 12, 1]


def test_several_runtimes_are_an_error_that_lists_them():
    assert choose_socket([]) == "unix:///var/run/containerd/containerd.sock"
    assert choose_socket(["unix:///a"]) == "unix:///a"
    with pytest.raises(HostError) as caught:
        choose_socket(["unix:///a", "unix:///b"])
    assert caught.value.detail == "unix:///a, unix:///b"
    assert "--cri-socket" in caught.value.remedy
