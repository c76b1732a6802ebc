"""Runs a parsed Go template with an object. Follows `text/template` with `missingkey=default` or `missingkey=error`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kubewright.cli.printers import go_values, gofmt
from kubewright.cli.printers.go_values import MISSING, Int, MissingKey, Problem
from kubewright.cli.printers.gotemplate import functions, nodes, parsing
from kubewright.cli.printers.gotemplate.functions import COUNTS, FUNCTIONS, LAZY
from kubewright.manifests.kubelet import go_quoted

_DEEPEST: Final = 60


def render(templates: Mapping[str, nodes.Body], value: object, *, allow_missing: bool = True) -> str:
    """Return the output of the template MAIN for an object. Raises Problem."""
    run = _Run(templates, allow_missing=allow_missing)
    run.template(parsing.MAIN, value)
    return "".join(run.out)


class _Jumped(Exception):  # control flow, as StopIteration
    """Leaves the body of a range."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


class _Run:
    def __init__(self, templates: Mapping[str, nodes.Body], *, allow_missing: bool) -> None:
        self._templates = templates
        self._allow_missing = allow_missing
        self._variables: list[tuple[str, object]] = []
        self._depth = 0
        self.out: list[str] = []

    def template(self, name: str, value: object) -> None:
        """Run one template. It has no access to the caller's variables."""
        body = self._templates.get(name)
        if body is None:
            raise Problem(f'template "{name}" not defined')
        outer, self._variables = self._variables, [("$", value)]
        self._body(body, value)
        self._variables = outer

    def _body(self, body: nodes.Body, dot: object) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise Problem("exceeded maximum template depth")
        for node in body:
            self._node(node, dot)
        self._depth -= 1

    def _node(self, node: nodes.Node, dot: object) -> None:
        match node:
            case nodes.Text(value=text):
                self.out.append(text)
            case nodes.Action(pipeline=pipeline):
                result = self._pipeline(pipeline, dot)
                if not pipeline.names:
                    self.out.append(_printed(result))
            case nodes.Branch():
                self._branch(node, dot)
            case nodes.Call(name=name, pipeline=argument):
                self.template(name, MISSING if argument is None else self._pipeline(argument, dot))
            case nodes.Jump(word=word):
                raise _Jumped(word)

    def _branch(self, node: nodes.Branch, dot: object) -> None:
        known, depth = len(self._variables), self._depth
        if node.word == "range":
            self._range(node, dot)
        else:
            found = self._pipeline(node.pipeline, dot)
            if functions.truth(found):
                self._body(node.body, found if node.word == "with" else dot)
            elif node.otherwise is not None:
                self._body(node.otherwise, dot)
        del self._variables[known:]
        self._depth = depth

    def _range(self, node: nodes.Branch, dot: object) -> None:
        """Run the body for each element.

        The variables first have the whole value, which `else` sees, and then each element.
        """
        names, assigns = node.pipeline.names, node.pipeline.assigns
        over = self._pipeline(node.pipeline, dot)
        known, depth, empty = len(self._variables), self._depth, True
        for key, value in _pairs(over, two=len(names) > 1):
            empty = False
            elements = (key, value) if len(names) > 1 else (value,)
            if assigns:
                self._set(zip(names, elements, strict=False), assigns=True)
            else:
                self._variables[known - len(names) : known] = zip(names, elements, strict=False)
            try:
                self._body(node.body, value)
            except _Jumped as jumped:
                if jumped.word == "break":
                    break
            finally:
                self._depth = depth
                del self._variables[known:]
        if empty and node.otherwise is not None:
            self._body(node.otherwise, dot)

    # Values.

    def _set(self, pairs: Iterable[tuple[str, object]], *, assigns: bool) -> None:
        for name, value in pairs:
            if not assigns:
                self._variables.append((name, value))
                continue
            self._variables[self._place(name)] = (name, value)

    def _place(self, name: str) -> int:
        """Return the index of the variable; the last one of that name applies."""
        places = (place for place in reversed(range(len(self._variables))) if self._variables[place][0] == name)
        found = next(places, None)
        if found is None:  # used in the pipeline that declares it
            raise Problem(f"undefined variable: {name}")
        return found

    def _pipeline(self, pipeline: nodes.Pipeline, dot: object) -> object:
        result: object = MISSING
        for place, command in enumerate(pipeline.commands):
            result = self._command(command, dot, final=(result,) if place else ())
            result = MISSING if result is None else result  # a nil interface contains nothing
        self._set(((name, result) for name in pipeline.names), assigns=pipeline.assigns)
        return result

    def _command(self, command: nodes.Command, dot: object, *, final: tuple[object, ...]) -> object:
        first, *others = command.arguments
        if isinstance(first, nodes.Name):
            return self._call(first.name, others, dot, final=final)
        if others or final:
            raise Problem(_not_callable(first))
        if isinstance(first, nodes.Nil):
            raise Problem("nil is not a command")
        return self._term(first, dot)

    def _call(self, name: str, arguments: Sequence[nodes.Term], dot: object, *, final: tuple[object, ...]) -> object:
        least, most = COUNTS[name]
        given = len(arguments) + len(final)
        if given < least or (most is not None and given > most):
            wanted = f"{least}" if most == least else f"at least {least}"
            raise Problem(f"wrong number of args for {name}: want {wanted} got {given}")
        if name in LAZY:
            return self._lazy(name, arguments, dot, final)
        found = [*(self._term(argument, dot) for argument in arguments), *final]
        try:
            return FUNCTIONS[name](*found)
        except Problem as problem:
            raise Problem(f"error calling {name}: {problem}") from problem

    def _lazy(self, name: str, arguments: Sequence[nodes.Term], dot: object, final: tuple[object, ...]) -> object:
        """Return the first argument that decides `and` or `or`, or the last one."""
        value: object = MISSING
        for argument in arguments:
            value = self._term(argument, dot)
            if functions.truth(value) == (name == "or"):
                return value
        return final[0] if final else value

    def _term(self, term: nodes.Term, dot: object) -> object:
        match term:
            case nodes.Dot():
                return dot
            case nodes.Nil():
                return None
            case nodes.Constant(value=value):
                return value
            case nodes.Field(names=names):
                return self._fields(dot, names)
            case nodes.Variable(name=name, fields=names):
                return self._fields(self._variables[self._place(name)][1], names)
            case nodes.Chain(term=inner, fields=names):
                return self._fields(self._term(inner, dot), names)
            case nodes.Pipeline():
                return self._pipeline(term, dot)
            case nodes.Name(name=name):
                return self._call(name, (), dot, final=())

    def _fields(self, value: object, names: Sequence[str]) -> object:
        for name in names:
            value = self._field(value, name)
        return value

    def _field(self, value: object, name: str) -> object:
        if isinstance(value, dict):
            if name not in value and not self._allow_missing:
                raise MissingKey(f"map has no entry for key {go_quoted(name)}")
            return value.get(name, MISSING)
        if value is MISSING:
            if not self._allow_missing:
                raise MissingKey(f"nil data; no entry for key {go_quoted(name)}")
            return MISSING
        if value is None:
            raise Problem(f"nil pointer evaluating interface {{}}.{name}")
        raise Problem(f"can't evaluate field {name} in type interface {{}}")


def _not_callable(first: nodes.Term) -> str:
    match first:
        case nodes.Field(names=names):
            return f"{names[-1]} is not a method but has arguments"
        case nodes.Variable(name=name, fields=names):
            return f"{names[-1] if names else name} is not a method but has arguments"
        case nodes.Constant(value=value):
            return f"can't give argument to non-function {go_values.text(value)}"
    return "can't give argument to non-function"


def _pairs(over: object, *, two: bool) -> Iterator[tuple[object, object]]:
    """Yield the pairs of a range: keys and values of a map by key, indexes and elements of a list, the numbers below a number."""
    if isinstance(over, dict):
        yield from ((key, over[key]) for key in sorted(over))
    elif isinstance(over, list):
        yield from ((Int(place), value) for place, value in enumerate(over))
    elif isinstance(over, int) and not isinstance(over, bool):
        if two:
            raise Problem(f"can't use {over} to iterate over more than one variable")
        yield from ((MISSING, type(over)(number)) for number in range(over))
    elif over is not MISSING and over is not None:
        raise Problem(f"range can't iterate over {go_values.text(over)}")


def _printed(result: object) -> str:
    return "<no value>" if result is MISSING else gofmt.value_text(result)
