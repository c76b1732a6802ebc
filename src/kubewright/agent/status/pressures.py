"""From measurements to pressure conditions. Pure.

Source: kubelet v1.36: pkg/kubelet/eviction. Nothing is evicted here, but the Node reports when its machine runs out
of a resource, as a kubelet's Node does.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from kubewright.base.durations import Duration
from kubewright.base.fields import FieldError, FieldErrorType, FieldPath
from kubewright.base.patterns import Pattern
from kubewright.base.quantity import Quantity
from kubewright.base.records import dataclass, field
from kubewright.host import usage
from kubewright.host.readers import FileReader
from kubewright.host.states import FileSystem
from kubewright.host.usage import Amount


@dataclass(frozen=True, kw_only=True)
class Measurable:
    """The sources of signals: the kernel's files and two file systems; None if they cannot be read."""

    files: FileReader
    nodefs: FileSystem | None
    imagefs: FileSystem | None


@dataclass(frozen=True, kw_only=True)
class Signal:
    """One signal: its name, how it is measured (None if it cannot be measured), and its default hard threshold, '' for none."""

    name: str
    measure: Callable[[Measurable], Amount | None]
    least: str = ""


@dataclass(frozen=True, kw_only=True)
class Pressure:
    """One pressure condition: its signals, and its reason and message when True, and when False.

    kube-controller-manager adds the taints of these conditions to the Node; a node may not.
    """

    type: str
    signals: tuple[Signal, ...]
    bad: tuple[str, str]
    good: tuple[str, str]


def _space(found: FileSystem | None) -> Amount | None:
    return None if found is None else Amount(capacity=found.capacity, available=found.available)


def _inodes(found: FileSystem | None) -> Amount | None:
    return None if found is None else Amount(capacity=found.inodes, available=found.inodes_free)


PRESSURES: Final = (
    Pressure(
        type="MemoryPressure",
        signals=(Signal(name="memory.available", least="100Mi", measure=lambda machine: usage.memory(machine.files)),),
        bad=("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        good=("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ),
    Pressure(
        type="DiskPressure",
        signals=(
            Signal(name="nodefs.available", least="10%", measure=lambda machine: _space(machine.nodefs)),
            Signal(name="nodefs.inodesFree", least="5%", measure=lambda machine: _inodes(machine.nodefs)),
            Signal(name="imagefs.available", least="15%", measure=lambda machine: _space(machine.imagefs)),
            Signal(name="imagefs.inodesFree", least="5%", measure=lambda machine: _inodes(machine.imagefs)),
        ),
        bad=("KubeletHasDiskPressure", "kubelet has disk pressure"),
        good=("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ),
    Pressure(
        type="PIDPressure",
        signals=(Signal(name="pid.available", measure=lambda machine: usage.process_ids(machine.files)),),
        bad=("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        good=("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ),
)
SIGNALS: Final[Mapping[str, str]] = {signal.name: row.type for row in PRESSURES for signal in row.signals}
"""Each signal, and the condition that it leads to."""
HARD_EVICTION: Final[Mapping[str, str]] = {signal.name: signal.least for row in PRESSURES for signal in row.signals if signal.least}
"""The kubelet's default hard eviction thresholds. Configuring one of them drops all others."""

GRACE: Final = "evictionSoftGracePeriod"
RECLAIM: Final = "evictionMinimumReclaim"
UNMEASURED: Final = ("allocatableMemory.available", "containerfs.available", "containerfs.inodesFree")
"""The kubelet's signals about its own pods. There are no pods here."""
_NO_AMOUNT: Final = "must be an amount like 100Mi, or a percentage like 10%"
_NUMBER: Final = Pattern(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """The minimum that must be available: an amount, or a percentage of the capacity.

    `reclaim` is how much more must be available for the condition to end.
    """

    signal: str
    least: str
    reclaim: str = ""

    @property
    def is_off(self) -> bool:
        """Whether the threshold is a percentage that disables it."""
        return is_off(self.least)

    def is_met(self, amount: Amount, *, already: bool) -> bool:
        """Whether too little is available. `already`: that was so at the last measurement."""
        least = eviction_amount(self.least, amount.capacity)
        if already and self.reclaim:
            least += eviction_amount(self.reclaim, amount.capacity)
        return least > amount.available


@dataclass(frozen=True, kw_only=True)
class PressureState:
    """The thresholds that are met, and when each condition was last observed, in seconds of a monotonic clock."""

    met: frozenset[Threshold] = frozenset()
    seen: Mapping[str, float] = field(default_factory=dict)

    def measured(self, thresholds: Iterable[Threshold], amounts: Mapping[str, Amount], *, now: float) -> PressureState:
        """Return the state after a measurement. A signal that could not be measured does not meet its threshold.

        A soft threshold counts from the first moment: its grace period delays evictions only.
        """
        found = (one for one in thresholds if one.signal in amounts and not one.is_off)
        met = frozenset(one for one in found if one.is_met(amounts[one.signal], already=one in self.met))
        return PressureState(met=met, seen={**self.seen, **{SIGNALS[one.signal]: now for one in met}})

    def conditions(self, *, now: float, hold: float) -> frozenset[str]:
        """Return the conditions that are true: seen less than `hold` seconds ago (`evictionPressureTransitionPeriod`)."""
        return frozenset(name for name, at in self.seen.items() if now - at < hold or any(SIGNALS[one.signal] == name for one in self.met))


def is_off(threshold: str) -> bool:
    """Whether a threshold is a percentage that disables it: then nothing is reserved for it either."""
    return threshold.endswith("%") and float(threshold[:-1]) in {0.0, 100.0}


def eviction_amount(threshold: str, total: int) -> int:
    """Return an eviction threshold in bytes; a percentage is of `total`.

    The kubelet keeps a percentage as a 32-bit float, so 10 % of 100 GiB is 160 bytes more than arithmetic says.
    """
    if not threshold.endswith("%"):
        return math.ceil(Quantity.parse(threshold).value)
    (single,) = struct.unpack("f", struct.pack("f", float(threshold[:-1]) / 100))
    return math.floor(float(total) * float(single))


def measure(machine: Measurable) -> dict[str, Amount]:
    """Measure every signal that can be measured."""
    found = {signal.name: signal.measure(machine) for row in PRESSURES for signal in row.signals}
    return {name: amount for name, amount in found.items() if amount is not None}


def thresholds(hard: Mapping[str, str], soft: Mapping[str, str], reclaim: Mapping[str, str]) -> tuple[Threshold, ...]:
    """Return all thresholds whose signals are measured."""
    rows = [*hard.items(), *soft.items()]
    return tuple(Threshold(signal=name, least=least, reclaim=reclaim.get(name, "")) for name, least in rows if name in SIGNALS)


def threshold_errors(found: Mapping[str, Mapping[str, str]]) -> Iterator[FieldError]:
    """Yield what the kubelet refuses in the eviction fields of its configuration: by field, signal to text (eviction.ParseThresholdConfig)."""
    for name, values in found.items():
        for signal, text in values.items():
            path = FieldPath(name).key(signal)
            if signal not in SIGNALS and signal not in UNMEASURED:
                yield FieldError(path=path, type=FieldErrorType.UNSUPPORTED, value=signal, reason=f"must be one of {', '.join(SIGNALS)}")
            elif reason := _PROBLEMS.get(name, _threshold_problem)(text):
                yield FieldError(path=path, type=FieldErrorType.INVALID, value=text, reason=reason)
    for signal in found.get("evictionSoft", {}):
        if signal not in found.get(GRACE, {}):
            path = FieldPath(GRACE).key(signal)
            yield FieldError(path=path, type=FieldErrorType.REQUIRED, reason="each threshold of evictionSoft needs its grace period")


def _threshold_problem(text: str) -> str:
    """Return why a threshold is refused: an amount of 0 is, a percentage of 0 disables the threshold."""
    try:
        if text.endswith("%"):
            return "" if 0 <= _percentage(text) <= 100 else "must be between 0% and 100%"
        return "" if Quantity.parse(text).nanos > 0 else "must be more than 0"
    except ValueError:
        return _NO_AMOUNT


def _reclaim_problem(text: str) -> str:
    """Return why a minimum reclaim is refused: a percentage of 0 is, an amount of 0 changes nothing."""
    try:
        if text.endswith("%"):
            return "" if _percentage(text) > 0 else "must be more than 0%"
        return "" if Quantity.parse(text).nanos >= 0 else "must not be negative"
    except ValueError:
        return _NO_AMOUNT


def _percentage(text: str) -> float:
    """Read a percentage. Raises ValueError for texts that only Python reads as a number."""
    if _NUMBER.fullmatch(text.removesuffix("%")) is None:
        raise ValueError(text)
    return float(text.removesuffix("%"))


def _grace_problem(text: str) -> str:
    try:
        return "" if Duration.parse(text) >= 0 else "must not be negative"
    except ValueError as error:
        return str(error)


_PROBLEMS: Final[Mapping[str, Callable[[str], str]]] = {GRACE: _grace_problem, RECLAIM: _reclaim_problem}
"""The rule for the values of a field; the other fields contain thresholds."""
