"""Selects a printer by the value of `-o`, as kubeadm's output flags do (cli-runtime): the allowed formats, templates from files, errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kubewright.base import yaml
from kubewright.base.errors import UsageError
from kubewright.base.messages import each_text, reason_of
from kubewright.cli.printers import documents
from kubewright.cli.printers.go_values import Problem
from kubewright.cli.printers.gotemplate.functions import FUNCTIONS
from kubewright.cli.printers.jsonpath import evaluating, parsing

TEXT: Final = "text"
_TEMPLATES: Final = ("go-template", "go-template-file", "template", "templatefile")
_PATHS: Final = ("jsonpath", "jsonpath-as-json", "jsonpath-file")
_FILES: Final = frozenset({"go-template-file", "templatefile", "jsonpath-file"})
_LARGEST: Final = 1 << 20
_REFUSED: Final = "could not construct output printer: "

Printer = Callable[[Sequence[Mapping[str, Any]]], str]
"""Returns objects, one after the other, as one text."""


def allowed(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the formats in the order in which kubeadm lists them. KUBECTL_KYAML=false removes one."""
    kyaml = () if environment.get("KUBECTL_KYAML", "").lower() == "false" else ("kyaml",)
    return tuple(sorted((TEXT, "json", "yaml", *kyaml, *_TEMPLATES, *_PATHS)))


def choose(form: str, *, allow_missing: bool = True) -> Printer | None:
    """Return the printer of a format; None for `text`, which is the command's own. Templates are read and checked here.

    Raises UsageError for an unknown format, and for a template that is empty, unreadable or invalid.
    """
    if form == TEXT:
        return None
    lower = form.lower()
    if lower in {"json", "yaml", "kyaml"} and lower in allowed():
        return {"json": _json, "yaml": _yaml, "kyaml": _kyaml}[lower]
    name, _, given = form.partition("=")
    if name in _PATHS:
        return _path(name, _template(name, given), allow_missing=allow_missing)
    if name in _TEMPLATES:
        return _go_template(_template(name, given), allow_missing=allow_missing)
    raise UsageError(
        f'{_REFUSED}unable to match a printer suitable for the output format "{form}", allowed formats are: {",".join(allowed())}',
        remedy="write one of them after -o",
    )


def _json(objects: Sequence[Mapping[str, Any]]) -> str:
    return "".join(documents.json_text(one, indent=4) + "\n" for one in objects)


def _yaml(objects: Sequence[Mapping[str, Any]]) -> str:
    return "---\n".join(yaml.dump(each_text(one, yaml.writable, keys=True)) for one in objects)


def _kyaml(objects: Sequence[Mapping[str, Any]]) -> str:
    return "".join(documents.kyaml_text(one) for one in objects)


def _template(name: str, given: str) -> str:
    """Return the template itself. Raises UsageError."""
    if not given:
        raise UsageError(f"{_REFUSED}template format specified but no template given", remedy=f"write it after the format: -o {name}=…")
    if name not in _FILES:
        text = given
    else:
        try:
            with Path(given).open(encoding="utf-8", errors="surrogateescape", newline="") as stream:
                text = stream.read(_LARGEST + 1)
        except (OSError, ValueError) as error:
            detail = reason_of(error)
            raise UsageError(
                f"{_REFUSED}the template {given} cannot be read", detail=detail, remedy="pass a file that contains the template"
            ) from error
    if len(text) > _LARGEST or any("\ud800" <= char <= "\udfff" for char in text):
        raise UsageError(f"{_REFUSED}the template is too long, or not UTF-8", remedy="write a text of less than 1 MiB")
    return text


def _path(name: str, template: str, *, allow_missing: bool) -> Printer:
    try:
        nodes = parsing.parse(template)
    except Problem as problem:
        raise UsageError(
            f"{_REFUSED}error parsing jsonpath {template}, {problem}", remedy="see the JSONPath page of Kubernetes"
        ) from problem

    def render(objects: Sequence[Mapping[str, Any]]) -> str:
        as_json = name == "jsonpath-as-json"
        return _joined(
            lambda one: evaluating.render(nodes, one, allow_missing=allow_missing, as_json=as_json), objects, "jsonpath", template
        )

    return render


def _go_template(template: str, *, allow_missing: bool) -> Printer:
    from kubewright.cli.printers.gotemplate import executing, parsing

    try:
        parsed = parsing.parse(template, functions=FUNCTIONS)
    except Problem as problem:
        raise UsageError(f"{_REFUSED}error parsing template {template}, {problem}", remedy="see Go's text/template") from problem

    def render(objects: Sequence[Mapping[str, Any]]) -> str:
        return _joined(lambda one: executing.render(parsed, one, allow_missing=allow_missing), objects, "template", template)

    return render


def _joined(render: Callable[[Mapping[str, Any]], str], objects: Sequence[Mapping[str, Any]], what: str, template: str) -> str:
    try:
        return "".join(render(one) for one in objects)
    except Problem as problem:
        raise UsageError(f'error executing {what} "{template}": {problem}', remedy="compare it with what -o json prints") from problem
