"""The commands that a page tells its reader to type, run in order, and the output that the page shows.

The comment before a block of commands names the terminal in which they are typed: `<!-- typed: here -->`. In a block
with prompts (`$ `, `# `, `one# `) the other lines are output; `…` matches any text, or any lines if it is on a line
of its own. `<!-- file: one kubeadm.yaml -->` makes the reader save the block; `<!-- not typed: WHY -->` says why a
block is not typed, or which test does it. A command that ends in `# prints nothing` must print nothing. After one
that ends in `# waits`, the page continues as soon as it has printed what is shown; it must have ended successfully by
the time its terminal is used again.
"""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
HANG: Final = 900.0
"""Seconds after which a command counts as hanging."""
_FENCE: Final = re.compile(
    r"^(?:<!-- (?P<how>typed|file|not typed): (?P<where>[^>]*?) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_PROMPT: Final = re.compile(r"^(?:(?P<machine>[a-z]+)# |[$#] )(?P<command>.*)$", re.DOTALL)
_SHELL: Final = frozenset({"", "console", "sh", "bash"})
_ENDED: Final = "=typed="
TOKEN: Final = re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b")
PIN: Final = re.compile(r"\bsha256:[0-9a-f]{6,64}…?")
KEY: Final = re.compile(r"\b(?<!sha256:)[0-9a-f]{64}\b")
"""A certificate key."""
REQUEST: Final = re.compile(r"\bcsr-[a-z0-9]{5}\b")
"""The name of a CertificateSigningRequest."""
_GIVEN: Final = (TOKEN, PIN, KEY, REQUEST)
_PARAMETER: Final = re.compile(r"^(\w+) \?=", re.MULTILINE)
_OF_MAKE: Final = ("MAKE", "MFLAGS", "PYTEST", "KUBECONFIG")
_NOTHING: Final = re.compile(r"# prints nothing\b")
_WAITS: Final = re.compile(r"# waits\b")
_CHANGING: Final = (
    (TOKEN, "TOKEN"),
    (PIN, "PIN"),
    (KEY, "KEY"),
    (REQUEST, "CSR"),
    (re.compile(r"\b(?:\d+[smhd])+\b"), "AGE"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\b[\d.]+ [kM]?B\b"), "SIZE"),
    (re.compile(r"\b[0-9a-f]{12,16}\b"), "ID"),  # of etcd, without leading zeros
    (re.compile(r"\b(revision|keys) +\d+\b"), r"\1 NUMBER"),
    (re.compile(r"\b\d+ files\b"), "FILES"),
    (re.compile(r"\s+"), " "),
)
"""What differs from one run to the next: secrets, hashes, times, sizes, numbers of objects, and the width of columns."""


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a reader's terminal.

    It is the current one without the variables of an outer `make`, its parameters and pytest.
    """
    parameters = _PARAMETER.findall((ROOT / "Makefile").read_text())
    return {name: value for name, value in os.environ.items() if name not in parameters and not name.startswith(_OF_MAKE)} | more


@dataclass(frozen=True)
class Step:
    """One command, or one file to save, with its terminal and the lines of output that the page shows."""

    place: str
    terminal: str
    command: str = ""
    shown: Sequence[str] = ()
    file: str = ""
    content: str = ""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    place: str
    how: str
    where: str
    kind: str
    text: str

    @property
    def is_commands(self) -> bool:
        """Whether a reader may take it for something to type."""
        return self.kind in _SHELL


def blocks(page: Path) -> Iterator[Block]:
    """Read the blocks of a page, in order."""
    text = page.read_text()
    for found in _FENCE.finditer(text):
        place = f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1}"
        yield Block(place, found["how"] or "", found["where"] or "", found["kind"], found["text"])


def steps(page: Path) -> Iterator[Step]:
    """Read the steps of a page's reader, in order."""
    for block in blocks(page):
        if block.how == "file":
            terminal, _, name = block.where.partition(" ")
            yield Step(block.place, terminal, file=name, content=block.text)
        elif block.how == "typed":
            yield from _commands(block)


def _commands(block: Block) -> Iterator[Step]:
    lines = block.text.replace("\\\n", "\\\0").split("\n")[:-1]
    prompted = any(_PROMPT.match(line) for line in lines)
    command, terminal, shown = "", block.where, list[str]()
    for line in (line.replace("\0", "\n") for line in lines):
        found = _PROMPT.match(line) if prompted else re.match(r"(?P<machine>)(?P<command>.*)", line)
        if prompted and not found:
            shown.extend(line.splitlines() or [line])
            continue
        if command:
            yield Step(block.place, terminal, command=command, shown=tuple(shown))
        assert found is not None
        command, terminal, shown = found["command"], found["machine"] or block.where, []
    if command:
        yield Step(block.place, terminal, command=command, shown=tuple(shown))


class Terminal:
    """A shell in which commands are typed one after the other, so that exported variables stay set."""

    def __init__(self, argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
        self._shell = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=cwd, env=env)
        self._number = 0
        self._said = b""

    def type(self, command: str) -> tuple[int, str]:
        """Type a command and wait until it ends; returns its exit code and its output."""
        self.begin(command)
        return self.end()

    def begin(self, command: str) -> None:
        """Type a command. Commands cannot read what is typed after them."""
        assert self._shell.stdin is not None
        self._number += 1
        self._shell.stdin.write(f"{{ {command}\n}} < /dev/null; printf '%s%s\\n' '{self._mark}' $?\n".encode())
        self._shell.stdin.flush()

    def end(self) -> tuple[int, str]:
        """Wait until the last typed command ends; returns its exit code and its whole output."""
        said = self.until(lambda _: False)
        self._said = b""
        said, _, code = said.rpartition(self._mark)
        return int(code), said

    def until(self, enough: Callable[[str], bool]) -> str:
        """Wait until the output of the command is sufficient, or until it has ended; returns its output."""
        assert self._shell.stdout is not None
        end, mark = time.monotonic() + HANG, re.compile(re.escape(self._mark) + r"\d+\n")
        with selectors.DefaultSelector() as selector:
            selector.register(self._shell.stdout, selectors.EVENT_READ)
            while not (mark.search(said := self._said.decode(errors="replace")) or enough(said)):
                assert selector.select(max(0.0, end - time.monotonic())), f"hung; the last it said:\n{said[-2000:]}"
                part = os.read(self._shell.stdout.fileno(), 65536)
                assert part, f"the shell ended:\n{said[-2000:]}"
                self._said += part
        return said

    @property
    def _mark(self) -> str:
        return f"{_ENDED}{self._number}="

    def save(self, name: str, content: str) -> None:
        """Write a file in the directory of the shell."""
        assert "\nEND\n" not in content
        code, said = self.type(f"cat > {name} <<'END'\n{content}END\n")
        assert code == 0, said

    def close(self) -> None:
        self._shell.kill()
        self._shell.communicate()


@dataclass
class Reader:
    """A reader who follows a page, and uses the token, pin, key and request that the commands printed instead of those on the page."""

    terminals: Mapping[str, Terminal]
    given: dict[re.Pattern[str], str] = field(default_factory=dict)
    """The last of each that was printed."""
    done: list[str] = field(default_factory=list)
    printed: dict[str, str] = field(default_factory=dict)
    """What each command has printed so far, by the command as it is on the page."""
    waiting: dict[str, Step] = field(default_factory=dict)
    """By terminal, the command there that has not ended."""

    def follow(self, found: Iterator[Step], *, besides: Mapping[str, str] | None = None) -> None:
        """Perform all steps. `besides` are words that a terminal's host needs appended to commands with these first words."""
        for step in found:
            terminal = self.terminals[step.terminal]
            self._ended(step.terminal)
            if step.file:
                terminal.save(step.file, step.content)
                continue
            command = self._own(step.command)
            for begin, words in (besides or {}).items():
                command += f" {words}" if command.startswith(begin) else ""
            said, shown = self._type(step, command)
            self.done.append(command)
            self.printed[step.command] = said
            assert matches(said, shown), f"{step.place}: {command} printed\n{said}\nand the page shows\n" + "\n".join(step.shown)
            assert not (said and _NOTHING.search(command)), f"{step.place}: {command} printed\n{said}"
        for name in tuple(self.waiting):
            self._ended(name)

    def _type(self, step: Step, command: str) -> tuple[str, Sequence[str]]:
        """Type a command; returns its output (so far, if the command waits) and what the page shows of it."""
        terminal = self.terminals[step.terminal]
        if _WAITS.search(command):
            shown = (*step.shown, "…")
            terminal.begin(command)
            self.waiting[step.terminal] = step
            return terminal.until(lambda said: matches(said, shown)), shown
        code, said = terminal.type(command)
        assert code == 0, f"{step.place}: {command}\n{said}"
        self._learn(said)
        return said, step.shown

    def _ended(self, name: str) -> None:
        """Wait for the command of a terminal in which a waiting command was left running."""
        if step := self.waiting.pop(name, None):
            code, said = self.terminals[name].end()
            assert code == 0, f"{step.place}: {step.command}\n{said}"

    def _own(self, command: str) -> str:
        for pattern, given in self.given.items():
            command = pattern.sub(given, command)
        return command

    def _learn(self, said: str) -> None:
        self.given |= {pattern: found[-1] for pattern in _GIVEN if (found := pattern.findall(said))}


def matches(said: str, shown: Sequence[str]) -> bool:
    """Whether output matches what the page shows of it; if the page shows nothing, any output matches."""
    if not shown:
        return True
    wanted = "".join(r"(?s:.*?)" if line.strip() == "…" else _line(line) + r"\n" for line in shown)
    lines = "".join(f"{_steady(line)}\n" for line in said.splitlines())
    return re.fullmatch(r"\n*" + wanted + r"\n*", lines) is not None


def _line(line: str) -> str:
    return ".*?".join(re.escape(_steady(part)) for part in re.split("…", line))


def _steady(line: str) -> str:
    for pattern, name in _CHANGING:
        line = pattern.sub(name, line)
    return line.rstrip()
