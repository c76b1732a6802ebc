"""`--config` of daemons: a document with the same fields as the flags.

    apiVersion: controllers.kubewright/v1alpha1
    kind: ControllersConfiguration
    controllers: ["*", bootstrapsigner, tokencleaner]
    clusterSigningCertFile: /etc/kubernetes/pki/ca.crt
    leaderElectLeaseDuration: 15s

A field is a flag's name in camel case. The command line takes precedence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from kubewright.base import yaml
from kubewright.base.durations import Duration
from kubewright.base.errors import DocumentError, ValidationError
from kubewright.base.fields import FieldError, FieldErrorType, FieldPath
from kubewright.base.messages import did_you_mean
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.rows.model import BOOL, DURATION, INT, INT32, LIST, Flag
from kubewright.host.filesystem.files import Files

NUMBERS: Final = frozenset({"float32"})
"""Text flags, by the placeholder of their value in help, that may be written as a number."""
_CONFIG: Final = "config"


class FlagDocument:
    """The document of one command: its kind, and the flags that are its fields."""

    def __init__(self, *, api_version: str, kind: str, command: str, flags: Sequence[Flag]) -> None:
        self.api_version = api_version
        self.kind = kind
        self.command = command
        self.fields: Mapping[str, Flag] = {field_of(flag): flag for flag in flags if flag.name != _CONFIG}

    def with_file(self, parsed: Parsed) -> Parsed:
        """Return the values, including those of the file that `--config` names, if given.

        Raises DocumentError for another kind of file, ValidationError with all invalid fields.
        """
        path = parsed.text(_CONFIG)
        if not path:
            return parsed
        content = Files().read(PurePosixPath(path))
        if content is None:
            raise DocumentError(f"{path} does not exist", remedy="check --config")
        values = {name: value for name, value in self.read(content, source=path).items() if name not in parsed.given}
        merged = parsed.values | {name.replace("-", "_"): value for name, value in values.items()}
        return Parsed(parsed.command, merged, parsed.given, notices=parsed.notices, table=parsed.table)

    def read(self, content: bytes, *, source: str) -> dict[str, object]:
        """Return the values of a document by the names of their flags. Raises as `with_file`."""
        document = yaml.load_one(content, source=source)
        found = document.value
        if not isinstance(found, dict) or (found.get("apiVersion"), found.get("kind")) != (self.api_version, self.kind):
            raise DocumentError(
                f"{source} is not a {self.kind}", remedy=f"begin it with apiVersion: {self.api_version} and kind: {self.kind}"
            )
        errors: list[FieldError] = []
        values: dict[str, object] = {}
        for name, value in found.items():
            if name in {"apiVersion", "kind"}:
                continue
            flag = self.fields.get(name)
            unknown = (FieldErrorType.UNKNOWN, did_you_mean(name, self.fields).removeprefix("; "))
            problem = next(_problems(flag, value), None) if flag is not None else unknown
            if problem is not None:
                errors.append(
                    FieldError(path=FieldPath(name), type=problem[0], reason=problem[1], value=value, source=document.where(name))
                )
            elif flag is not None:
                values[flag.name] = _value(flag, value)
        if errors:
            raise ValidationError(f"{source} has invalid fields", errors, remedy=f"`kubewright {self.command} --help` lists the flags")
        return values


def field_of(flag: Flag) -> str:
    """Return the name of a flag as a field."""
    first, *rest = flag.name.split("-")
    return first + "".join(word.capitalize() for word in rest)


def _problems(flag: Flag, value: object) -> Iterator[tuple[FieldErrorType, str]]:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if flag.kind == BOOL:
        if not isinstance(value, bool):
            yield FieldErrorType.TYPE, "must be true or false"
    elif flag.kind in {INT, INT32}:
        if not isinstance(value, int) or isinstance(value, bool):
            yield FieldErrorType.TYPE, "must be a whole number"
        elif not -(1 << 31) <= value < 1 << 31:
            yield FieldErrorType.INVALID, "must fit 32 bits"
    elif flag.kind == LIST:
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            yield FieldErrorType.TYPE, "must be a list of strings"
    elif not isinstance(value, str) and not (is_number and flag.metavar in NUMBERS):
        yield FieldErrorType.TYPE, "must be a string"
    elif flag.kind == DURATION:
        yield from _duration_problems(str(value))
    elif flag.choices and value not in flag.choices:
        yield FieldErrorType.UNSUPPORTED, f"must be one of {', '.join(flag.choices)}"


def _duration_problems(text: str) -> Iterator[tuple[FieldErrorType, str]]:
    try:
        if Duration.parse(text) <= 0:
            yield FieldErrorType.INVALID, "must be longer than zero"
    except ValueError as error:
        yield FieldErrorType.INVALID, str(error)


def _value(flag: Flag, value: object) -> object:
    """Return a value in the form of the flag parser."""
    if isinstance(value, list):
        return tuple(value)
    return value if flag.kind in {BOOL, INT, INT32} else str(value)
