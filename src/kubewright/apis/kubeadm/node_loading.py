"""From documents and flags to what `join`, `reset` and `upgrade` work from. Each reads its own kind and ignores the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from kubewright.apis.detected import Detected
from kubewright.apis.kubeadm import documents as files
from kubewright.apis.kubeadm import node_fields, v1beta3
from kubewright.apis.kubeadm.defaults import Machine
from kubewright.apis.kubeadm.node_defaults import join_defaults, reset_defaults
from kubewright.apis.kubeadm.node_types import JoinConfiguration, ResetConfiguration, UpgradeConfiguration
from kubewright.apis.kubeadm.node_validation import validate_join, validate_reset, validate_upgrade
from kubewright.apis.kubeadm.reading import Reading
from kubewright.base.randomness import SystemRandom
from kubewright.base.records import dataclass

if TYPE_CHECKING:
    from kubewright.base.yaml import Document

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class LoadedKind(Generic[T]):
    """A configuration that is complete and valid, and what the user should know about it."""

    configuration: T
    warnings: list[str]


def always(_: str, /) -> bool:
    """Take every path as one that exists."""
    return True


def load_join(
    documents: Sequence[Document],
    *,
    detected: Detected,
    change: Callable[[JoinConfiguration], JoinConfiguration] = lambda given: given,
    exists: Callable[[str], bool] = always,
    strict: bool = False,
    from_file: bool | None = None,
    allow_loopback_advertise: bool = False,
) -> LoadedKind[JoinConfiguration]:
    """Make the configuration that `join` works from.

    - `change` puts the values of flags into what the file says, or into an empty configuration; defaults come after it.
    - `exists` tells whether a file of this machine is there, for `discovery.file`.
    - the others as for `load_init`.

    Raises DocumentError when the documents cannot be told apart or there is no JoinConfiguration, and ValidationError with every field
    error at once.
    """
    reading = _reading(documents, files.JOIN, strict=strict, from_file=from_file)
    machine = _machine(detected, allow_loopback=allow_loopback_advertise)
    found = read_join(reading, machine, change=change, runs=True, exists=exists)
    return LoadedKind(configuration=found, warnings=reading.finish())


def load_reset(
    documents: Sequence[Document],
    *,
    detected: Detected,
    change: Callable[[ResetConfiguration], ResetConfiguration] = lambda given: given,
    strict: bool = False,
    from_file: bool | None = None,
) -> LoadedKind[ResetConfiguration]:
    """Make the configuration that `reset` works from, as `load_join` does."""
    reading = _reading(documents, files.RESET, strict=strict, from_file=from_file)
    found = read_reset(reading, _machine(detected), change=change, runs=True)
    return LoadedKind(configuration=found, warnings=reading.finish())


def load_upgrade(
    documents: Sequence[Document],
    *,
    change: Callable[[UpgradeConfiguration], UpgradeConfiguration] = lambda given: given,
    strict: bool = False,
    from_file: bool | None = None,
) -> LoadedKind[UpgradeConfiguration]:
    """Make the configuration that the upgrade commands work from, as `load_join` does."""
    reading = _reading(documents, files.UPGRADE, strict=strict, from_file=from_file)
    return LoadedKind(configuration=read_upgrade(reading, change=change), warnings=reading.finish())


def read_join(
    reading: Reading,
    machine: Machine,
    *,
    change: Callable[[JoinConfiguration], JoinConfiguration] = lambda given: given,
    runs: bool,
    exists: Callable[[str], bool],
) -> JoinConfiguration:
    """Decode, default and check. What is wrong stays in the reading."""
    decoder = v1beta3.decode_join if files.JOIN in reading.selection.old else node_fields.JOIN.decode
    given = reading.decode(files.JOIN, decoder) or JoinConfiguration()
    found = join_defaults(change(given), machine, reading.place(files.JOIN))
    validate_join(found, reading.place(files.JOIN), runs=runs, exists=exists)
    return found


def read_reset(
    reading: Reading,
    machine: Machine,
    *,
    change: Callable[[ResetConfiguration], ResetConfiguration] = lambda given: given,
    runs: bool,
) -> ResetConfiguration:
    """Decode, default and check. What is wrong stays in the reading."""
    given = reading.decode(files.RESET, node_fields.RESET.decode) or ResetConfiguration()
    found = reset_defaults(change(given), machine, reading.place(files.RESET))
    validate_reset(found, reading.place(files.RESET), runs=runs)
    return found


def read_upgrade(
    reading: Reading, *, change: Callable[[UpgradeConfiguration], UpgradeConfiguration] = lambda given: given
) -> UpgradeConfiguration:
    """Decode, default and check. What is wrong stays in the reading."""
    found = change(reading.decode(files.UPGRADE, node_fields.UPGRADE.decode) or UpgradeConfiguration())
    validate_upgrade(found, reading.place(files.UPGRADE))
    return found


def _reading(documents: Sequence[Document], kind: str, *, strict: bool, from_file: bool | None) -> Reading:
    reading = Reading(selection=files.select(documents, strict=strict, use=(kind,)), strict=strict)
    if documents if from_file is None else from_file:
        files.require(reading.selection, kind, source=documents[0].source if documents else "")
    return reading


def _machine(detected: Detected, *, allow_loopback: bool = False) -> Machine:
    return Machine(look=lambda: detected, random=SystemRandom(), allow_loopback=allow_loopback)
