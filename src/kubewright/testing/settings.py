"""The plugin's settings on the command line or in the ini file. The command line takes precedence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubewright.base.errors import DocumentError, UsageError
from kubewright.base.homes import expanded
from kubewright.base.messages import quoted, reason_of
from kubewright.base.records import dataclass

if TYPE_CHECKING:
    import pytest

MOST_NODES = 1000
MOST_CONTROL_PLANES = 7


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The cluster that the tests want.

    `config` is the text of a kubeadm configuration; None and '' mean the default. `machines`: it consists of whole
    machines.
    """

    nodes: int = 1
    control_planes: int = 1
    kubernetes_version: str | None = None
    config: str | None = None
    binaries_dir: str = ""
    within: float = 300.0
    machines: bool = False


def settings(config: pytest.Config, *, machines: bool = False) -> Settings:
    """Read the settings. Raises UsageError or DocumentError, naming the setting."""
    return Settings(
        nodes=_number(config, "kubewright_nodes", "nodes", 0, _most_nodes(machines=machines)),
        control_planes=_number(config, "kubewright_control_planes", "control planes", 1, MOST_CONTROL_PLANES),
        kubernetes_version=_version(config),
        config=_document(config),
        binaries_dir=str(config.getoption("kubewright_binaries_dir") or ""),
        within=_seconds(str(config.getini("kubewright_wait"))),
        machines=machines,
    )


def _most_nodes(*, machines: bool) -> int:
    from kubewright.local.up_options import most_nodes

    return min(MOST_NODES, most_nodes(machines=machines))


def _number(config: pytest.Config, name: str, what: str, least: int, most: int) -> int:
    text = str(config.getini(name))
    if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
        raise UsageError(f"{name} = {quoted(text)} is not a number of {what}", remedy=f"write {least} to {most}")
    return int(text)


def _version(config: pytest.Config) -> str | None:
    from kubewright.base.versions import supported

    asked = str(config.getoption("kubewright_version") or config.getini("kubewright_version"))
    return str(supported(asked)) if asked else None


def _document(config: pytest.Config) -> str | None:
    name = str(config.getini("kubewright_config"))
    if not name:
        return None
    directory = config.inipath.parent if config.inipath is not None else config.rootpath
    path = directory / expanded(name)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError(
            f"cannot read kubewright_config = {name}", detail=reason_of(error), remedy="write a path relative to the ini file"
        ) from error


def _seconds(text: str) -> float:
    from kubewright.base.durations import Duration

    try:
        return Duration.parse(text).seconds
    except ValueError as error:
        raise UsageError(f"kubewright_wait = {quoted(text)} is not a duration", remedy="write it like 90s or 2m") from error
