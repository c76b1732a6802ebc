"""Converts tokens to the tree of a template, with the rules that Go checks before a template runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NoReturn

from kubewright.cli.printers.go_values import Problem
from kubewright.cli.printers.gotemplate import lexing, nodes
from kubewright.cli.printers.gotemplate.lexing import Token

MAIN: Final = "output"
"""The name of the template itself."""
_DEEPEST: Final = 50
_CONSTANTS: Final = frozenset({"number", "character", "string", "raw", "bool"})


def parse(template: str, *, functions: Collection[str]) -> Mapping[str, nodes.Body]:
    """Return the templates by name; MAIN is the whole text. Raises Problem."""
    return _Parser(template, functions).templates()


class _Parser:
    def __init__(self, template: str, functions: Collection[str]) -> None:
        self._tokens = [*lexing.tokens(template)]
        self._tokens.append(Token("eof", "", template.count("\n") + 1))
        self._at = 0
        self._functions = functions
        self._variables = ["$"]
        self._found: dict[str, nodes.Body] = {}
        self._depth = self._loops = 0

    def templates(self) -> Mapping[str, nodes.Body]:
        body, end = self._body()
        if end != "eof":
            self._fail(f"unexpected {{{{{end}}}}}")
        self._add(MAIN, body)
        return self._found

    # Tokens.

    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._tokens[self._at]
        self._at += token.kind != "eof"
        return token

    def _skip_space(self) -> Token:
        while self._peek().kind == "space":
            self._at += 1
        return self._peek()

    def _expect(self, *kinds: str, where: str) -> Token:
        token = self._skip_space()
        if token.kind not in kinds:
            self._unexpected(token, where)
        return self._next()

    def _fail(self, what: str) -> NoReturn:
        raise Problem(f"template: {MAIN}:{self._peek().line}: {what}")

    def _unexpected(self, token: Token, where: str) -> NoReturn:
        shown = "EOF" if token.kind == "eof" else f"<{token.text}>" if token.kind in {"keyword", "name"} else f'"{token.text}"'
        self._fail(f"unexpected {shown} in {where}")

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail("nested too deeply")

    # Statements.

    def _body(self) -> tuple[nodes.Body, str]:
        """Parse up to `end`, `else` or the end of the text; return which one it was.

        An `else` is left for further parsing.
        """
        self._deeper()
        body: list[nodes.Node] = []
        while True:
            token = self._next()
            if token.kind == "eof":
                self._depth -= 1
                return tuple(body), "eof"
            if token.kind == "text":
                body.append(nodes.Text(token.text))
                continue
            word = self._skip_space()
            if word.kind == "keyword" and word.text in {"end", "else"}:
                self._next()
                if word.text == "end":
                    self._expect("close", where="end")
                self._depth -= 1
                return tuple(body), word.text
            body.extend(self._statement(word))

    def _statement(self, word: Token) -> tuple[nodes.Node, ...]:
        if word.kind != "keyword" or word.text == "nil":
            return (nodes.Action(self._pipeline("command", ends=("close",))),)
        self._next()
        match word.text:
            case "if" | "with" | "range":
                return (self._branch(word.text),)
            case "break" | "continue":
                return (self._jump(word.text),)
            case "template":
                return (self._call(),)
            case "define":
                self._define()
                return ()
        return (self._block(),)

    def _branch(self, word: str) -> nodes.Branch:
        known = len(self._variables)
        pipeline = self._pipeline(word, ends=("close",), may_range=word == "range")
        self._loops += word == "range"
        body, end = self._body()
        self._loops -= word == "range"
        otherwise: nodes.Body | None = None
        if end == "else":
            otherwise, end = self._otherwise(word)
        if end == "eof":
            self._fail("unexpected EOF")
        del self._variables[known:]
        return nodes.Branch(word, pipeline, body, otherwise)

    def _otherwise(self, word: str) -> tuple[nodes.Body, str]:
        """Parse an `else` part; `{{else if}}` and `{{else with}}` are a separate branch that shares the `end`."""
        token = self._skip_space()
        if token.kind == "keyword" and token.text == word and word != "range":
            self._next()
            self._deeper()
            branch = self._branch(word)
            self._depth -= 1
            return (branch,), "end"
        self._expect("close", where="else")
        body, end = self._body()
        if end == "else":
            self._fail("expected end; found {{else}}")
        return body, end

    def _jump(self, word: str) -> nodes.Jump:
        if self._skip_space().kind != "close":
            self._unexpected(self._peek(), f"{{{{{word}}}}}")
        self._next()
        if not self._loops:
            self._fail(f"{{{{{word}}}}} outside {{{{range}}}}")
        return nodes.Jump(word)

    def _template_name(self, where: str) -> str:
        token = self._expect("string", "raw", where=where)
        return lexing.string(token.text)

    def _call(self) -> nodes.Call:
        name = self._template_name("template clause")
        if self._skip_space().kind == "close":
            self._next()
            return nodes.Call(name, None)
        return nodes.Call(name, self._pipeline("template clause", ends=("close",)))

    def _define(self) -> None:
        if self._depth > 1:
            self._fail("unexpected {{define}}")
        name = self._template_name("define clause")
        self._expect("close", where="define clause")
        self._named_body(name)

    def _block(self) -> nodes.Call:
        name = self._template_name("block clause")
        pipeline = self._pipeline("block clause", ends=("close",))
        self._named_body(name)
        return nodes.Call(name, pipeline)

    def _named_body(self, name: str) -> None:
        outer, loops = self._variables, self._loops
        self._variables, self._loops = ["$"], 0
        body, end = self._body()
        if end != "end":
            self._fail("unexpected EOF" if end == "eof" else "unexpected {{else}} in define clause")
        self._variables, self._loops = outer, loops
        self._add(name, body)

    def _add(self, name: str, body: nodes.Body) -> None:
        """Store a template. A blank one is replaced by another of its name."""
        if _is_empty(self._found.get(name, ())):
            self._found[name] = body
        elif not _is_empty(body):
            self._fail(f'template: multiple definition of template "{name}"')

    # Pipelines.

    def _pipeline(self, where: str, *, ends: tuple[str, ...], may_range: bool = False) -> nodes.Pipeline:
        self._deeper()
        names, assigns = self._names(may_range=may_range)
        commands = []
        while self._skip_space().kind not in ends:
            if self._peek().kind in {"close", "eof", ")"}:
                self._unexpected(self._peek(), where)
            commands.append(self._command(where))
        if not commands:
            self._fail(f"missing value for {where}")
        self._next()
        for place, command in enumerate(commands[1:], start=2):
            if isinstance(command.arguments[0], nodes.Dot | nodes.Nil | nodes.Constant):
                self._fail(f"non executable command in pipeline stage {place}")
        self._depth -= 1
        return nodes.Pipeline(tuple(commands), names, assigns)

    def _names(self, *, may_range: bool) -> tuple[tuple[str, ...], bool]:
        """Parse `$x :=`, `$x =` and, for range, `$i, $x :=`."""
        start = self._at
        names: list[str] = []
        while self._skip_space().kind == "variable" and len(names) < 2:
            names.append(self._next().text)
            sign = self._skip_space().kind
            if sign in {":=", "="}:
                self._next()
                return self._declare(names, assigns=sign == "="), sign == "="
            if sign != "," or not may_range or len(names) == 2:
                break
            self._next()
        if len(names) == 2:
            self._fail("too many declarations in range" if self._peek().kind == "," else "range can only initialize variables")
        self._at = start
        return (), False

    def _declare(self, names: list[str], *, assigns: bool) -> tuple[str, ...]:
        if assigns:
            for name in names:
                self._require_known(name)
        else:
            self._variables.extend(names)
        return tuple(names)

    def _require_known(self, name: str) -> None:
        if name not in self._variables:
            self._fail(f'undefined variable "{name}"')

    def _command(self, where: str) -> nodes.Command:
        arguments: list[nodes.Term] = []
        while True:
            self._skip_space()
            term = self._operand()
            if term is not None:
                arguments.append(term)
            token = self._peek()
            if token.kind == "space":
                continue
            if token.kind == "|":  # one at the end is ignored, as in Go
                self._next()
            elif token.kind not in {"close", ")"}:
                self._unexpected(token, "operand")
            break
        if not arguments:
            self._fail(f"empty command in {where}" if where == "command" else "empty command")
        return nodes.Command(tuple(arguments))

    def _operand(self) -> nodes.Term | None:
        term = self._term()
        if term is None or self._peek().kind != "field":
            return term
        fields = []
        while self._peek().kind == "field":
            fields.append(self._next().text[1:])
        match term:
            case nodes.Field(names=names):
                return nodes.Field((*names, *fields))
            case nodes.Variable(name=name):
                return nodes.Variable(name, tuple(fields))
            case nodes.Dot() | nodes.Nil() | nodes.Constant():
                self._fail("unexpected . after term")
        return nodes.Chain(term, tuple(fields))

    def _term(self) -> nodes.Term | None:
        token = self._peek()
        if token.kind in {"close", ")", "|", "space", ":=", "=", ",", "eof", "open", "text"}:
            return None
        self._next()
        match token.kind:
            case "dot":
                return nodes.Dot()
            case "field":
                return nodes.Field((token.text[1:],))
            case "variable":
                self._require_known(token.text)
                return nodes.Variable(token.text, ())
            case "(":
                return self._pipeline("parenthesized pipeline", ends=(")",))
            case "name":
                if token.text not in self._functions:
                    self._fail(f'function "{token.text}" not defined')
                return nodes.Name(token.text)
            case "keyword" if token.text == "nil":
                return nodes.Nil()
            case kind if kind in _CONSTANTS:
                return nodes.Constant(lexing.parse(kind, token.text))
        return self._unexpected(token, "operand")


def _is_empty(body: nodes.Body) -> bool:
    return all(isinstance(node, nodes.Text) and not node.value.strip() for node in body)
