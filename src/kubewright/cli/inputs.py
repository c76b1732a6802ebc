"""What a command was given: the values of flags, files, and secrets, which need not stand on the command line.

There every user of the machine can read them (`ps`, /proc).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from kubewright.apis.kubeadm.overrides import refuse_beside_config
from kubewright.base.durations import Duration
from kubewright.base.errors import HostError, UsageError
from kubewright.base.masking import mask, remember_token
from kubewright.base.messages import indented
from kubewright.base.yaml import Document
from kubewright.cli.documents import read_documents
from kubewright.cli.parser import Parsed, as_called
from kubewright.workflow.phases import Phases

STANDARD_INPUT = "-"
_LIMIT = 1 << 16

C = TypeVar("C")


def documents(parsed: Parsed, *, mixes: bool = False, ours: Collection[str] = ()) -> list[Document]:
    """Read the file of `--config`; none without it.

    Raises UsageError for flags that may not stand beside it, unless it `mixes`; `ours` may, which kubeadm does not have.
    """
    path = given_text(parsed, "config")
    if not path:
        return []
    if not mixes:
        refuse_beside_config(sorted(parsed.given.difference(ours)))
    return read_documents(path)


def has(parsed: Parsed, name: str) -> bool:
    """Tell whether the command has a flag."""
    return any(flag.name == name for flag in parsed.command.flags)


def given_duration(parsed: Parsed, name: str) -> Duration:
    """Return a flag that is a length of time. Raises UsageError for one of nothing, or less."""
    found = Duration.parse(parsed.text(name))
    if found <= 0:
        raise UsageError(f"--{name} has to be longer than nothing", remedy="write a duration like 90s, 2m or 1h30m")
    return found


def given_text(parsed: Parsed, name: str) -> str:
    """Return a string flag that was given; empty if it was not, or if the command does not have it."""
    return parsed.text(name) if name in parsed.given else ""


def given_secret(parsed: Parsed, name: str) -> str:
    """Return a token or key that was given, from wherever the flag says that it is. Raises UsageError where it cannot be read."""
    return secret(given_text(parsed, name))


def given_names(parsed: Parsed, name: str) -> tuple[str, ...]:
    """Return a list flag that was given."""
    return parsed.strings(name) if name in parsed.given else ()


def given_switch(parsed: Parsed, name: str) -> bool | None:
    """Return a boolean flag that was given; None if it was not."""
    return parsed.flag(name) if name in parsed.given else None


def is_on(parsed: Parsed, name: str) -> bool:
    """Tell whether a boolean flag was given and is true; a command that does not have it has it not set."""
    return name in parsed.given and parsed.flag(name)


def absolute(path: str) -> str:
    """Return the absolute form of a path; an empty one stays empty."""
    return os.path.normpath(Path(path).absolute()) if path else ""


def phase_of(parsed: Parsed, phases: Phases[C]) -> tuple[str, ...]:
    """Return the full name of the phase that a phase command runs. Raises UsageError if the tree has none."""
    words = parsed.command.words[parsed.command.words.index("phase") + 1 :]
    node = phases.named(words)
    if node is None:
        raise UsageError(f"there is no phase {' '.join(words)}", remedy="see the help of the command")
    return (node.name,)


def warn(warnings: Sequence[str]) -> None:
    """Write warnings to stderr."""
    sys.stderr.write(mask(as_called("".join(f"warning: {indented(warning)}\n" for warning in warnings))))


def later(parsed: Parsed) -> NoReturn:
    """Say that the command is not there yet. Raises HostError, always."""
    raise HostError(
        f"{parsed.command.path} cannot change this machine yet",
        detail="flags and configuration are fine; changing a real machine will come with a later release",
        remedy="`kubewright up --nodes 3` runs a cluster with nodes on this machine, as processes",
    )


def read_file(path: str) -> str:
    """Return the first line of a file, or the next one of standard input for `-`. Raises UsageError where it cannot be read or is empty."""
    try:
        text = sys.stdin.readline(_LIMIT) if path == STANDARD_INPUT else _content(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{_name(path)} cannot be read", detail=getattr(error, "strerror", "") or "not text", remedy="check it") from error
    first = text.strip().partition("\n")[0].strip()
    if not first:
        raise UsageError(f"{_name(path)} is empty", remedy="it must hold the secret on one line")
    return remember_token(first)


def secret(text: str) -> str:
    """Return a secret given as it is, as `-` for standard input, or as the path of a file: tokens and keys have no `/`. Raises UsageError."""
    return read_file(text) if text == STANDARD_INPUT or "/" in text else remember_token(text)


def _content(path: str) -> str:
    with Path(path).open(encoding="utf-8") as stream:
        return stream.read(_LIMIT)


def _name(path: str) -> str:
    return "standard input" if path == STANDARD_INPUT else path
