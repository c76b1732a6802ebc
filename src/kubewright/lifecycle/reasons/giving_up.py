"""When waiting is pointless: rules over two looks at a machine, as a table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from kubewright.base.records import dataclass, field, replace
from kubewright.lifecycle.reasons import words
from kubewright.lifecycle.reasons.seen import Seen

ENDS: Final = 3
"""Ends of a component after which nobody goes on waiting for it, as in a local cluster."""
KUBELET_STARTS: Final = 2
"""Failed starts of the kubelet: a unit waits ten seconds between two."""
PULLS: Final = 2
"""Failed pulls of one image."""
_PULL: Final = "PullImage from image service failed"
_NEVER: Final = "with pull policy of Never"
"""A kubelet's words about images (k8s.io/cri-client, pkg/kubelet/images)."""


@dataclass(frozen=True, kw_only=True)
class Hopeless:
    """Why waiting is pointless, and what to do. `component` is whose last words belong to it, '' for the kubelet."""

    what: str
    remedy: str
    component: str = ""


@dataclass(frozen=True, kw_only=True)
class Looks:
    """The first look of a wait and the latest one; `began` is when the wait began, in seconds since 1970.

    `earlier` has for each component that was seen how often it had ended before. `pulls` are the kubelet's lines about failed pulls in all looks: there may be minutes, and a thousand other lines, between two.
    """

    first: Seen
    latest: Seen
    began: float
    earlier: Mapping[str, int] = field(default_factory=dict)
    pulls: frozenset[str] = frozenset()

    @classmethod
    def begin(cls, seen: Seen, *, began: float) -> Looks:
        """Return what there is after the first look."""
        return cls(first=seen, latest=seen, began=began, earlier=_earlier(seen, began), pulls=_pulls(seen))

    def and_then(self, seen: Seen) -> Looks:
        """Return what there is after one more look. Last words that tell something are kept until there are others."""
        kept = seen if words.telling(seen.words) else replace(seen, words=self.latest.words)
        earlier = {**_earlier(seen, self.began), **self.earlier}
        return replace(self, latest=kept, earlier=earlier, pulls=self.pulls | _pulls(seen))


def hopeless(looks: Looks) -> Hopeless | None:
    """Return the first rule that says that waiting is pointless."""
    return next((found for rule in RULES if (found := rule(looks)) is not None), None)


def _kubelet(looks: Looks) -> Hopeless | None:
    before, after = looks.first.kubelet, looks.latest.kubelet
    if after is None or not after.failed:
        return None
    starts = after.restarts - (before.restarts if before is not None else 0) + 1
    if after.again and starts < KUBELET_STARTS:
        return None
    return Hopeless(what="the kubelet does not stay up", remedy=_remedy(KUBELET_REMEDIES, looks.latest.words, _KUBELET_OTHERWISE))


def _crash_loop(looks: Looks) -> Hopeless | None:
    """Later components may end because an earlier one is not there, so the first that does not stay up is the one to tell.

    One that had ended often before, in another run, has to end once more: what it lacked may have come.
    """
    for component in looks.latest.components:
        if component.runs or not component.ends:
            continue
        if component.ends >= ENDS and component.ends > looks.earlier.get(component.name, 0):
            return Hopeless(what=f"{component.name} does not stay up", remedy="", component=component.name)
        return None
    return None


def _earlier(seen: Seen, began: float) -> Mapping[str, int]:
    return {component.name: component.ends_before(began) for component in seen.components if component.lives}


def _image(looks: Looks) -> Hopeless | None:
    for component in looks.latest.components:
        if component.image_missing and _in_vain(looks, component.image):
            return Hopeless(
                what=f"the image {component.image} of {component.name} is not on this machine, and cannot be pulled",
                remedy="import it into the container runtime, or let the runtime reach its registry (imageRepository names another one),"
                " then run the same command again",
            )
    return None


def _in_vain(looks: Looks, image: str) -> bool:
    """Whether the kubelet has tried in earnest, or is not allowed to try."""
    if any(_NEVER in line and image in line for line in looks.latest.words):
        return True
    return sum(image in line for line in looks.pulls) >= PULLS


def _pulls(seen: Seen) -> frozenset[str]:
    return frozenset(line for line in seen.words if _PULL in line)


RULES: Final[tuple[Callable[[Looks], Hopeless | None], ...]] = (_kubelet, _crash_loop, _image)

_AGAIN: Final = "then run the same command again"
_ANEW: Final = "correct the configuration; `kubewright reset`, then `kubewright init` or `join` with it"
_KUBELET_OTHERWISE: Final = f"mend what it complains about (`journalctl -u kubelet` has all of it), {_AGAIN}"
COMPONENT_OTHERWISE: Final = f"mend what it complains about, {_AGAIN}"

KUBELET_REMEDIES: Final = (
    ("failed to parse kubelet flag", f"nodeRegistration.kubeletExtraArgs has an argument that the kubelet does not know: {_ANEW}"),
    ("unknown flag", f"nodeRegistration.kubeletExtraArgs has an argument that the kubelet does not know: {_ANEW}"),
    ("failed to validate kubelet configuration", f"the KubeletConfiguration does not fit this kubelet: {_ANEW}"),
    ("failed to load kubelet config file", f"the KubeletConfiguration does not fit this kubelet: {_ANEW}"),
    ("running with swap on", f"switch swap off (`swapoff -a`, and /etc/fstab), or set failSwapOn: false, {_AGAIN}"),
    ("cgroup v1", "the kubelet refuses cgroup v1: boot the machine with cgroup v2, or set failCgroupV1: false in the KubeletConfiguration"),
    ("unable to locate executable", f"install the kubelet where its unit looks for it (`systemctl cat kubelet`), {_AGAIN}"),
    ("failed at step exec", f"install the kubelet where its unit looks for it (`systemctl cat kubelet`), {_AGAIN}"),
    ("validate service connection", f"start the container runtime (`systemctl status containerd` or `crio` says why it ended), {_AGAIN}"),
    ("address already in use", f"end what holds the kubelet's port (`ss -ltnp` names it), {_AGAIN}"),
    ("no space left on device", f"free some space (`df -h` and `df -i` show it), {_AGAIN}"),
)
"""A text in the last words, in small letters, and the remedy; the first row that fits."""

COMPONENT_REMEDIES: Final = (
    ("no space left on device", f"free some space (`df -h` and `df -i` show it), {_AGAIN}"),
    ("address already in use", f"end what holds the port (`ss -ltnp` names it), {_AGAIN}"),
    ("unknown flag", f"extraArgs has an argument that it does not know: {_ANEW}"),
    ("flag provided but not defined", f"extraArgs has an argument that it does not know: {_ANEW}"),
    ("invalid argument", f"extraArgs has a value that it does not take: {_ANEW}"),
    ("permission denied", f"see the owner and the mode of the file that it names, {_AGAIN}"),
    ("read-only file system", f"remount the file system that it names, {_AGAIN}"),
)
"""The same for components."""


def remedy_of_component(lines: Sequence[str]) -> str:
    """Return what to do about a component that ends again and again, from its last words."""
    return _remedy(COMPONENT_REMEDIES, lines, COMPONENT_OTHERWISE)


def _remedy(rows: Iterable[tuple[str, str]], lines: Iterable[str], otherwise: str) -> str:
    said = "\n".join(lines).lower()
    return next((remedy for text, remedy in rows if text in said), otherwise)
