"""`python -m tests.mutation [TABLE ...] [--sample N] [--seed S] [--jobs N]`: check that a test needs each row of a table.

Removes the rows of tables one at a time, from the syntax tree of their module while it is imported, and runs the
tests that claim to cover them; one of them must fail. Prints the rows that no test missed, and exits 1 if there are
any. Nothing is written: each try is a forked process that shares the imports of third-party packages.
"""

from __future__ import annotations

import argparse
import ast
import importlib.machinery
import io
import os
import random
import re
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from dataclasses import field as made
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "src" / "kubewright"


@dataclass(frozen=True)
class Table:
    """Rows to remove: `kinds` are the calls that create a row; `words` also removes words from texts that list flags by name."""

    modules: tuple[str, ...]
    kinds: frozenset[str]
    tests: tuple[str, ...]
    """In this order, each only if those before it missed nothing: first the quick ones that are most likely to miss the row."""
    words: bool = False
    names: bool = False
    """Also names of rows, such as CONFIG, in `flags=(...)`."""
    pairs: bool = False
    """Also tuples of two texts, from which rows are made."""
    assigned: Mapping[str, str] = made(default_factory=dict)
    """Also what is assigned to names: the `words` or the `lines` of its texts, or the `entries` of a map."""


_ROWS: Final = tuple(
    sorted(
        f"cli/rows/{path.name}" for path in (PACKAGE / "cli" / "rows").glob("*.py") if path.stem not in {"__init__", "commands", "model"}
    )
)
_TREES: Final = tuple(f"lifecycle/{name}/phases.py" for name in ("init", "join", "reset", "upgrade"))
_KUBEADMS_ROWS: Final = (*_ROWS, "cli/rows/commands.py", *_TREES)
_COMMAND_TREE: Final = "tests/compat/test_command_tree.py::test_"
_TREE: Final = (
    f"{_COMMAND_TREE}a_command_has_the_same_flags_and_aliases_as_in_kubeadm",
    "tests/unit/cli/test_own_commands.py",
    f"{_COMMAND_TREE}hidden_commands_exist_and_are_hidden",
    "tests/unit/repository/test_command_documents.py",
    "tests/unit/cli",
)
_INIT_CASES: Final = "tests/compat/test_init_cases.py"
_KUBELET_FIELDS: Final = "tests/unit/agent/test_kubelet_configuration.py"
_STATIC_PODS: Final = ("manifests/static_pods.py",)
TABLES: Final = {
    "commands": Table(_KUBEADMS_ROWS, frozenset({"Command", "Phase"}), _TREE),
    "flags": Table((*_KUBEADMS_ROWS, "cli/rows/model.py"), frozenset({"Flag"}), _TREE, words=True, names=True),
    "kubelet-flags": Table(
        ("agent/configuration/flags.py",),
        frozenset({"KubeletFlag"}),
        (_KUBELET_FIELDS, "tests/unit/cli/test_own_commands.py", "tests/compat/test_kubelet_flags.py"),
        pairs=True,
        assigned={"_FIELDS": "lines"},
    ),
    "kubelet-fields": Table(
        ("agent/configuration/fields.py",),
        frozenset(),
        (_KUBELET_FIELDS,),
        assigned={"_HONOURED": "words", "IGNORED": "words", "REFUSED": "entries"},
    ),
    "setters": Table(
        ("agent/status/setters.py",),
        frozenset({"Pressure"}),
        ("tests/unit/agent/test_node_setters.py", "tests/unit/agent/test_node_status.py"),
        assigned={"SETTERS": "entries"},
    ),
    "certificates": Table(
        ("pki/table.py",),
        frozenset({"Authority", "Leaf", "KeyPair", "Kubeconfig"}),
        ("tests/unit/pki/test_reference_certificates.py", "tests/unit/pki/test_certificate_table.py", _INIT_CASES, "tests/unit/pki"),
    ),
    "rules": Table(
        ("apis/kubeadm/validation.py",),
        frozenset({"Rule"}),
        ("tests/unit/apis/test_validation_verdicts.py", "tests/unit/apis"),
    ),
    "rbac": Table(("manifests/rbac.py",), frozenset({"Grant", "Rule", "Subject"}), ("tests/unit/manifests", _INIT_CASES)),
    "serving-checks": Table(
        ("controllers/serving/checks.py",), frozenset({"ServingCheck"}), ("tests/unit/controllers/test_serving_checks.py",)
    ),
    "client-checks": Table(
        ("controllers/serving/clients.py",), frozenset({"ClientCheck"}), ("tests/unit/controllers/test_client_checks.py",)
    ),
    "evidence-sources": Table(
        ("controllers/serving/sources/fetching.py",),
        frozenset(),
        ("tests/unit/controllers/test_serving_sources.py",),
        assigned={"OPENERS": "entries"},
    ),
    "static-pod-flags": Table(
        _STATIC_PODS, frozenset({"Flag"}), ("tests/unit/manifests/test_reference_static_pods.py", "tests/unit/manifests", _INIT_CASES)
    ),
}


_COMMON: Final = "the common flag of that name takes its place: only the help text differs"
KNOWN: Final = {
    "cli/rows/machine.py: Flag dry-run": _COMMON,
    "cli/rows/machine.py: Flag certificate-key": _COMMON,
    "cli/rows/machine.py: Flag cert-dir": _COMMON,
}
"""Rows that need no test, with the reason."""


@dataclass(frozen=True)
class Mutant:
    """A removed row: the `number`-th row of a module."""

    table: str
    module: str
    number: int
    label: str

    @property
    def text(self) -> str:
        """The label without its line number."""
        return re.sub(r":\d+: ", ": ", self.label)


class Rows(ast.NodeVisitor):
    """Finds the rows of a module in source order, and how to remove each."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.found: list[tuple[str, ast.AST, str, int, str]] = []
        """Label, the node that contains the row, its field, the index, and the word to remove from a text."""

    def generic_visit(self, node: ast.AST) -> None:
        for field, kind in (("elts", ast.Tuple | ast.List), ("args", ast.Call)):
            for index, child in enumerate(getattr(node, field) if isinstance(node, kind) else ()):
                if isinstance(child, ast.Call) and _name(child.func) in self._table.kinds:
                    self.found.append((_label(child), node, field, index, ""))
        if isinstance(node, ast.keyword) and node.arg == "flags" and self._table.names and isinstance(node.value, ast.Tuple):
            for index, child in enumerate(node.value.elts):
                if isinstance(child, ast.Name | ast.Starred):
                    self.found.append((f"{child.lineno}: {ast.unparse(child)}", node.value, "elts", index, ""))
        if self._table.pairs and isinstance(node, ast.Tuple):
            for index, child in enumerate(node.elts):
                if isinstance(child, ast.Tuple) and len(child.elts) == 2 and all(isinstance(one, ast.Constant) for one in child.elts):
                    self.found.append((f"{child.lineno}: {ast.unparse(child)}", node, "elts", index, ""))
        if isinstance(node, ast.Assign | ast.AnnAssign) and _target(node) in self._table.assigned:
            self._take_assigned(node, self._table.assigned[_target(node)])
        if self._table.words and isinstance(node, ast.Assign | ast.keyword) and _holds_flags(node):
            for text in ast.walk(node.value):
                if isinstance(text, ast.Constant):
                    for index, word in enumerate(text.value.split()):
                        self.found.append((f"{text.lineno}: {_target(node)} {word}", text, "value", index, word))
        super().generic_visit(node)

    def _take_assigned(self, node: ast.Assign | ast.AnnAssign, kind: str) -> None:
        if kind == "entries":
            assert isinstance(node.value, ast.Dict)
            keys = [ast.unparse(key) for key in node.value.keys if key is not None]
            self.found += [(f"{node.lineno}: {_target(node)} {key}", node.value, "entries", index, "") for index, key in enumerate(keys)]
            return
        assert node.value is not None
        kept = {key for one in ast.walk(node.value) if isinstance(one, ast.Dict) for key in one.keys}
        for text in ast.walk(node.value):
            if isinstance(text, ast.Constant) and isinstance(text.value, str) and text not in kept:
                pieces = text.value.split() if kind == "words" else text.value.strip().splitlines()
                self.found += [
                    (f"{text.lineno}: {_target(node)} {piece}", text, "value", index, piece) for index, piece in enumerate(pieces)
                ]

    def drop(self, number: int) -> None:
        _, node, field, index, word = self.found[number]
        if field == "entries":
            assert isinstance(node, ast.Dict)
            del node.keys[index], node.values[index]
            return
        value = getattr(node, field)
        if word and "\n" in value and " " in word:  # a line with several words
            lines = value.strip().splitlines()
            setattr(node, field, "\n".join(lines[:index] + lines[index + 1 :]))
        elif word:
            words = value.split()
            setattr(node, field, f" {' '.join(words[:index] + words[index + 1 :])} ")
        else:
            del value[index]


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _label(call: ast.Call) -> str:
    texts = [node.value for node in ast.walk(call) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return f"{call.lineno}: {_name(call.func)} {texts[0] if texts else ''}"


def _target(node: ast.Assign | ast.AnnAssign | ast.keyword) -> str:
    if isinstance(node, ast.keyword):
        return str(node.arg)
    return ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def _holds_flags(node: ast.Assign | ast.keyword) -> bool:
    return (isinstance(node, ast.Assign) or node.arg == "flags") and _lists_flags(node.value)


def _lists_flags(value: ast.expr) -> bool:
    """Whether an assigned text is a list of flags by name: at least two words of lower-case letters and dashes, or a sum of such texts."""
    texts = [node.value for node in ast.walk(value) if isinstance(node, ast.Constant)]
    allowed = isinstance(value, ast.Constant | ast.BinOp)
    words = [word for text in texts if isinstance(text, str) for word in text.split()]
    return allowed and bool(words) and all(isinstance(text, str) for text in texts) and all(_is_flag(word) for word in words)


def _is_flag(word: str) -> bool:
    return word.replace("-", "").isalpha() and word.islower()


def rows(table: Table, module: str) -> tuple[ast.Module, Rows]:
    tree = ast.parse((PACKAGE / module).read_text())
    found = Rows(table)
    found.visit(tree)
    return tree, found


def mutants(names: Sequence[str]) -> Iterator[Mutant]:
    for name in names:
        for module in TABLES[name].modules:
            _, found = rows(TABLES[name], module)
            for number, (label, *_) in enumerate(found.found):
                yield Mutant(name, module, number, f"{module}:{label}")


class _Dropping(importlib.machinery.SourceFileLoader):
    """Loads a module without one of its rows."""

    def __init__(self, fullname: str, path: str, mutant: Mutant) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> object:
        tree, found = rows(TABLES[self._mutant.table], self._mutant.module)
        found.drop(self._mutant.number)
        return compile(ast.fix_missing_locations(tree), self.path, "exec")


class _Finder:
    """Installs that loader in place of the normal one."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._module = "kubewright." + mutant.module.removesuffix(".py").replace("/", ".")

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        place = str(PACKAGE / self._mutant.module)
        return importlib.machinery.ModuleSpec(fullname, _Dropping(fullname, place, self._mutant), origin=place)


def is_missed(table: str, mutant: Mutant | None) -> bool:
    """Run the tests of a table without a row, in this process. Returns whether one of them failed."""
    import pytest

    if mutant:
        sys.meta_path.insert(0, _Finder(mutant))  # type: ignore[arg-type]
    os.chdir(ROOT)
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        # plain, because if kubewright is installed, pytest would load its modules itself to rewrite their assertions
        argv = ["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "--assert=plain"]
        return any(pytest.main([*argv, test]) != 0 for test in TABLES[table].tests)


def preload() -> None:
    """Import what all tries share: third-party packages, and no module of ours."""
    import cryptography.x509
    import hypothesis.strategies
    import jsonpatch
    import msgspec
    import pytest
    import yaml

    assert all((cryptography.x509, hypothesis.strategies, jsonpatch, msgspec, pytest, yaml))
    assert not any(name.startswith("kubewright") for name in sys.modules)


def forked(table: str, mutant: Mutant | None) -> int:
    """Start a process that tries a mutant, or runs the unchanged tests if there is none. It exits 0 if a test missed the row, 3 if not."""
    pid = os.fork()
    if pid:
        return pid
    try:
        code = 0 if is_missed(table, mutant) else 3
    except BaseException:  # the child must not continue as its parent
        traceback.print_exc()
        code = 70
    os._exit(code)


def pass_as_they_are(tables: Sequence[str]) -> bool:
    """Return whether the tests pass with all rows; otherwise mutants prove nothing."""
    codes = [os.waitstatus_to_exitcode(os.waitpid(forked(name, None), 0)[1]) for name in tables]
    return codes == [3] * len(tables)


def survivors(chosen: Sequence[Mutant], *, jobs: int, out: io.TextIOBase) -> list[Mutant]:
    """Try all mutants, `jobs` at a time. Returns those that no test missed."""
    waiting, running, found = list(chosen), dict[int, Mutant](), []
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop(0)
            running[forked(mutant.table, mutant)] = mutant
        pid, status = os.wait()
        mutant = running.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        if code not in {0, 3}:
            raise RuntimeError(f"{mutant.label}: exit {code}")
        if code and mutant.text not in KNOWN:
            found.append(mutant)
            out.write(f"survived: {mutant.label}\n")
            out.flush()
    return found


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--sample", type=int, default=0, help="only so many rows, and without trying the tests as they are")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args(argv)
    preload()
    chosen = list(mutants(asked.tables or tuple(TABLES)))
    if asked.sample:
        chosen = random.Random(asked.seed).sample(chosen, min(asked.sample, len(chosen)))
    begin = time.monotonic()
    if not asked.sample and not pass_as_they_are(sorted({one.table for one in chosen})):
        sys.stdout.write("the tests fail as they are\n")
        return 2
    found = survivors(chosen, jobs=asked.jobs, out=sys.stdout)  # type: ignore[arg-type]
    for name in asked.tables or TABLES:
        tried, missed = ([one for one in group if one.table == name] for group in (chosen, found))
        sys.stdout.write(f"{name}: {len(tried)} rows, {len(missed)} survived\n")
    sys.stdout.write(f"{time.monotonic() - begin:.0f} s\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
