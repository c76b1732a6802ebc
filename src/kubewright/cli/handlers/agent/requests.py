"""The options of `agent install` and `agent leave`, from their flags."""

from __future__ import annotations

from kubewright.agent.configuration.flags import FLAGS, OURS, reason_ignored
from kubewright.agent.service.install import InstallOptions
from kubewright.agent.service.leave import LeaveOptions
from kubewright.cli.handlers import machine
from kubewright.cli.handlers.agent.run import PATHS, configuration_of, options_of
from kubewright.cli.parsing.inputs import absolute, record
from kubewright.cli.parsing.parser import Parsed


def install_request(parsed: Parsed, *, only: tuple[str, ...]) -> InstallOptions:
    """Check the flags as `agent run` would, and convert those that have an effect to the command of the service.

    Raises as `agent run` does.
    """
    host = machine.host()
    found = configuration_of(parsed, host)
    return InstallOptions(
        command=[*machine.program_words(), "agent", "run", *given_words(parsed)],
        options=options_of(parsed, found, host_name=host.facts.detected.host_name),
        notes=found.notes,
        only=only,
    )


def given_words(parsed: Parsed) -> list[str]:
    """Return the given flags of `agent run` that have an effect, as words with absolute paths."""
    given = (flag.name for flag in (*FLAGS, *OURS) if flag.name in parsed.given and not reason_ignored(flag))
    return [f"--{name}={_text(name, parsed[name])}" for name in given]


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return absolute(str(value)) if name in PATHS else str(value)


def leave_request(parsed: Parsed, *, only: tuple[str, ...]) -> LeaveOptions:
    """Return the options from the flags of `agent leave`."""
    return record(parsed, LeaveOptions, only=only)
