"""The inputs of a command: the values of flags, files, and secrets, which need not be on the command line.

Every user of the machine can read the command line (`ps`, /proc).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, TypeVar

from kubewright.apis.kubeadm.overrides import feature_gates, refuse_flags_with_config
from kubewright.base import masking, yaml
from kubewright.base.durations import Duration
from kubewright.base.errors import CertificateError, DocumentError, UsageError
from kubewright.base.masking import mask, remember_token
from kubewright.base.messages import indented
from kubewright.base.records import fields
from kubewright.base.yaml import Document
from kubewright.cli.parsing.parser import Parsed, as_called
from kubewright.cli.rows.model import (
    BOOL,
    CONTENT,
    DURATION,
    FIELDS,
    GATES,
    INT,
    INT32,
    LENGTH,
    LIST,
    PATH,
    RANGES,
    SECRET,
    STRING,
    VERSION,
)

if TYPE_CHECKING:
    from kubewright.workflow.phases import Phases

STANDARD_INPUT = "-"
_LIMIT = 1 << 16

C = TypeVar("C")
R = TypeVar("R")


def documents(parsed: Parsed, *, mixes: bool = False, ours: Collection[str] = ()) -> list[Document]:
    """Read the file of `--config`; none without it.

    Raises UsageError for flags that exclude it, unless it `mixes`; those in `ours`, which kubeadm does not have, may be
    combined with it.
    """
    path = given_text(parsed, "config")
    if not path:
        return []
    if not mixes:
        refuse_flags_with_config(sorted(parsed.given.difference(ours)))
    return read_documents(path)


def given(parsed: Parsed, make: type) -> dict[str, object]:
    """Return the values of the given flags for the fields of a record (`Flag.sets`), in their order.

    Secrets are read from stdin in this order. Raises UsageError for invalid values.
    """
    flags = {flag.sets: flag for flag in parsed.command.flags if flag.name in parsed.given}
    found = [flags[one.name] for one in fields(make) if one.name in flags]
    return {flag.sets: _READERS[flag.form](parsed, flag.name) for flag in found}


def record(parsed: Parsed, make: type[R], **more: object) -> R:
    """Return a record of the given flags, and of `more`.

    Flags that were not given keep the defaults. Raises UsageError as `given` does.
    """
    return make(**{**given(parsed, make), **more})


def complete(parsed: Parsed, make: type[R]) -> R:
    """Return a record of all flags that set its fields, with their defaults and the values of a configuration file.

    Raises as `given` does.
    """
    flags = {flag.sets: flag for flag in parsed.command.flags}
    return make(**{one.name: _READERS[flags[one.name].form](parsed, flags[one.name].name) for one in fields(make)})


def has(parsed: Parsed, name: str) -> bool:
    """Return whether the command has a flag."""
    return any(flag.name == name for flag in parsed.command.flags)


def given_duration(parsed: Parsed, name: str) -> Duration:
    """Return the value of a duration flag. Raises UsageError for zero or less."""
    found = Duration.parse(parsed.text(name))
    if found <= 0:
        raise UsageError(f"--{name} must be longer than zero", remedy="write a duration like 90s, 2m or 1h30m")
    return found


def given_text(parsed: Parsed, name: str) -> str:
    """Return a string flag that was given; empty if it was not, or if the command does not have it."""
    return parsed.text(name) if name in parsed.given else ""


def is_on(parsed: Parsed, name: str) -> bool:
    """Return whether a boolean flag is set; False if the command does not have it."""
    return name in parsed.given and parsed.flag(name)


def absolute(path: str) -> str:
    """Return the absolute form of a path; an empty one stays empty."""
    return os.path.normpath(Path(path).absolute()) if path else ""


def file_argument(parsed: Parsed) -> str:
    """Return the argument `file` as an absolute path. Raises UsageError for an empty one, like that of a shell variable that is not set."""
    if not (path := parsed.text("file")):
        raise UsageError("the name of the file is empty", remedy=f"see `kubewright {parsed.command.path} --help`")
    return absolute(path)


def is_stdout(path: str, *, what: str) -> bool:
    """Return whether a file to write is `-`, which means stdout. Raises UsageError if that is a terminal; `what` is to be written."""
    if path == STANDARD_INPUT and sys.stdout.isatty():
        raise UsageError(f"{what} is not written to a terminal", remedy="redirect stdout, or pass a file")
    return path == STANDARD_INPUT


def phase_of(parsed: Parsed, phases: Phases[C]) -> tuple[str, ...]:
    """Return the full name of the phase that a phase command runs. Raises UsageError if the tree has none."""
    words = parsed.command.words[parsed.command.words.index("phase") + 1 :]
    node = phases.named(words)
    if node is None:
        raise UsageError(f"there is no phase {' '.join(words)}", remedy="see the help of the command")
    return (node.name,)


def ask(question: str, *, form: str) -> str:
    """Ask on stdout, or on stderr if stdout is for data, and return the answer: a line of standard input."""
    stream = sys.stdout if form == "text" else sys.stderr
    stream.write(question)
    stream.flush()
    return sys.stdin.readline()


def warn(warnings: Sequence[str]) -> None:
    """Write warnings to stderr."""
    sys.stderr.write(mask(as_called("".join(f"warning: {indented(warning)}\n" for warning in warnings))))


def read_file(path: str) -> str:
    """Return the first line of a file, or the next one of standard input for `-`.

    Raises UsageError if it cannot be read or is empty.
    """
    try:
        text = sys.stdin.readline(_LIMIT) if path == STANDARD_INPUT else _content(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{_name(path)} cannot be read", detail=getattr(error, "strerror", "") or "not text", remedy="check it") from error
    first = text.strip().partition("\n")[0].strip()
    if not first:
        raise UsageError(f"{_name(path)} is empty", remedy="it must contain the secret on one line")
    return remember_token(first)


def secret(text: str) -> str:
    """Return a secret given literally, as `-` for standard input, or as the path of a file: tokens and keys contain no `/`.

    Raises UsageError.
    """
    return read_file(text) if text == STANDARD_INPUT or "/" in text else remember_token(text)


def _content(path: str) -> str:
    with Path(path).open(encoding="utf-8") as stream:
        return stream.read(_LIMIT)


def _name(path: str) -> str:
    return "standard input" if path == STANDARD_INPUT else path


def _text_of(path: str, *, flag: str) -> str:
    """Return the content of a file, '' without one. Raises CertificateError for one that does not exist."""
    found = _decoded(path) if path else ""
    if found is None:
        raise CertificateError(f"{path} does not exist", remedy=f"check --{flag}")
    return found


def _fields(path: str) -> dict[str, object]:
    """Return the map in a YAML file, with JSON's types only; an empty one without a file. Raises DocumentError."""
    import json

    from kubewright.base import yaml
    from kubewright.base.plain_text import require_one_line_each

    if not path:
        return {}
    text = _decoded(path)
    found = yaml.load(text, source=path) if text is not None else None
    if not isinstance(found, dict):
        raise DocumentError(f"{path} contains no fields", remedy="write fields of a KubeletConfiguration, such as failCgroupV1: false")
    result: dict[str, object] = json.loads(json.dumps(found, default=str))
    require_one_line_each(result, what=path)
    return result


def _ranges(given: object, *, flag: str) -> object:
    """Return one CIDR or several as they were written. Raises UsageError for anything else."""
    from kubewright.apis import formats

    try:
        for text in given if isinstance(given, tuple) else (given,):
            formats.subnets(str(text))
    except ValueError as error:
        raise UsageError(f"--{flag}: {error}", remedy="write a range like 10.96.0.0/12") from error
    return () if given is None else given


def _version(text: str, *, flag: str) -> str:
    """Return a version, '' without one. Raises UsageError for anything else."""
    from kubewright.base.versions import Version

    try:
        return str(Version.parse(text)) if text else ""
    except ValueError as error:
        raise UsageError(f"--{flag}: {error}", remedy="write it like v1.36.3; without it, the API server's version is used") from error


def _decoded(path: str) -> str | None:
    from kubewright.host.filesystem.files import Files

    found = Files().read(PurePosixPath(path))
    return None if found is None else found.decode(errors="replace")


def read_documents(path: str) -> list[Document]:
    """Read the documents of a configuration file. Raises DocumentError, naming the file, if it cannot be read."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DocumentError(f"cannot read {path}", detail=error.strerror or "", remedy="pass an existing file that you can read") from error
    found = yaml.load_all(content, source=path, recognise_json=True)
    for document in found:
        masking.remember_within(document.value)
    return found


_READERS: Final[Mapping[str, Callable[[Parsed, str], object]]] = {
    STRING: Parsed.text,
    BOOL: Parsed.flag,
    INT: Parsed.number,
    INT32: Parsed.number,
    LIST: Parsed.strings,
    DURATION: lambda parsed, name: Duration.parse(parsed.text(name)),
    SECRET: lambda parsed, name: secret(parsed.text(name)),
    PATH: lambda parsed, name: absolute(parsed.text(name)),
    GATES: lambda parsed, name: feature_gates(parsed.text(name)),
    CONTENT: lambda parsed, name: _text_of(absolute(parsed.text(name)), flag=name),
    FIELDS: lambda parsed, name: _fields(absolute(parsed.text(name))),
    LENGTH: given_duration,
    RANGES: lambda parsed, name: _ranges(parsed[name], flag=name),
    VERSION: lambda parsed, name: _version(parsed.text(name), flag=name),
}
FORMS: Final = frozenset(_READERS)
"""The forms of flags that `given` supports."""
