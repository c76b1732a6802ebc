"""Flags of components as tables: rows give kubeadm's defaults; a machine's overrides replace them; the user's arguments win over both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath

from kubewright.apis.addresses import Addresses
from kubewright.apis.detected import Detected
from kubewright.apis.kubeadm.types import Arg, ClusterConfiguration, Configuration
from kubewright.apis.layout import Layout
from kubewright.base.records import dataclass, field

Value = str | int | PurePosixPath | None


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What the manifest of one component is made from. `extra_args` are the user's for this component, `overrides` the machine's."""

    configuration: Configuration
    layout: Layout
    addresses: Addresses
    detected: Detected
    extra_args: Sequence[Arg] = ()
    overrides: Mapping[str, str] = field(default_factory=dict)
    external_ca: bool = False

    @property
    def cluster(self) -> ClusterConfiguration:
        """The ClusterConfiguration."""
        return self.configuration.cluster

    def given(self, name: str) -> str | None:
        """Return the value of a flag that the user or the machine set; the last one of several counts, as in kubeadm."""
        given = [arg.value for arg in self.extra_args if arg.name == name]
        return given[-1] if given else self.overrides.get(name)

    def bind_address(self, otherwise: str) -> str:
        """Return the address that the component listens on: the user's `bind-address`, also an empty one, which means all; or the machine's."""
        given = self.given("bind-address")
        return otherwise if given is None else given

    def secure_port(self, otherwise: int) -> int:
        """Return the port that the component serves on: the user's `secure-port`, or the machine's. kubeadm's probes miss the user's."""
        given = self.given("secure-port") or ""
        return int(given) if given.isascii() and given.isdecimal() and 0 < int(given) < 1 << 16 else otherwise


@dataclass(frozen=True)
class Flag:
    """One default flag. It is left out where its value is None; an empty text is written as `--name=`."""

    name: str
    value: Callable[[Inputs], Value]


def const(text: str) -> Callable[[Inputs], Value]:
    """Return a value that depends on nothing."""
    return lambda _: text


def arguments(flags: Sequence[Flag], inputs: Inputs) -> list[str]:
    """Return the arguments of a command: defaults by name, then the user's in their own order. One of the user's removes all defaults of its name."""
    values = {flag.name: value for flag in flags if (value := flag.value(inputs)) is not None} | dict(inputs.overrides)
    mine = {arg.name for arg in inputs.extra_args}
    defaults = [f"--{name}={values[name]}" for name in sorted(values) if name not in mine]
    return [*defaults, *(f"--{arg.name}={arg.value}" for arg in inputs.extra_args)]


def changed_port(port: int, default: int) -> int | None:
    """Return a port as the value of a flag that kubeadm does not write: None where the component's own default is meant."""
    return None if port == default else port
