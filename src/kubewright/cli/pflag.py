"""pflag's habits (spec/kubeadm.md 1.1): the words behind a command become values of its flags, and arguments. Errors are in pflag's words.

Flags and arguments may be mixed; a bare boolean means true and takes a value only with `=`; list flags may be repeated and hold commas;
`-v5`, `-v=5` and `-v 5` are the same, and `-fy` is `-f -y`; no abbreviations; `--` ends the flags. An error is raised for the first word
that is wrong.
"""

from __future__ import annotations

from kubewright.base.errors import UsageError
from kubewright.cli import flag_values
from kubewright.cli.model import BOOL, Flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    _Remedy = Callable[[str, Callable[[str, Sequence[Flag]], str]], str]


class Scanned:
    """What a command line says: the values of the flags that were given, by name, and the arguments. `notices` are about deprecated flags."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}
        self.arguments: list[str] = []
        self.notices: list[str] = []

    def take(self, flag: Flag, text: str) -> None:
        """Read the text as the flag's value. Raises UsageError."""
        self.values[flag.name] = flag_values.read(flag, text, before=self.values.get(flag.name))
        if flag.deprecated:
            self.notices.append(f"Flag --{flag.name} has been deprecated, {flag.deprecated}")


def scan(words: Sequence[str], flags: Sequence[Flag], *, see: str, gone: Callable[[str], str] = lambda _: "") -> Scanned:
    """Read all words. `gone` says what became of a flag that is not known, or ''; `see` is the remedy if nothing better is known.

    Raises UsageError.
    """
    found = Scanned()

    def remedy(name: str, close: Callable[[str, Sequence[Flag]], str]) -> str:
        return gone(name) or close(name, flags) or see

    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            found.arguments += left
            break
        if not word.startswith("-") or word == "-":
            found.arguments.append(word)
        elif word.startswith("--"):
            _long(word, left, flags, found, remedy=remedy)
        else:
            _short(word[1:], left, flags, found, remedy=remedy)
    return found


def takes_next(word: str, flags: Sequence[Flag]) -> bool:
    """Tell whether the next word belongs to this one, as cobra judges it while it looks for the sub-command: unknown flags take one too."""
    if "=" in word or (not word.startswith("--") and len(word) != 2):
        return False
    flag = named(word[2:], flags) if word.startswith("--") else _lettered(word[1:], flags)
    return flag is None or flag.kind != BOOL


def named(name: str, flags: Sequence[Flag]) -> Flag | None:
    """Return the flag with a long name."""
    return next((flag for flag in flags if flag.name == name), None)


def _lettered(letter: str, flags: Sequence[Flag]) -> Flag | None:
    return next((flag for flag in flags if flag.short == letter), None)


def _long(word: str, left: list[str], flags: Sequence[Flag], found: Scanned, *, remedy: _Remedy) -> None:
    name, equals, text = word[2:].partition("=")
    if not name or name.startswith("-"):
        raise UsageError(f"bad flag syntax: {word}", remedy="write flags as --name or --name=VALUE")
    flag = named(name, flags)
    if flag is None:
        raise UsageError(f"unknown flag: --{name}", remedy=remedy(name, _close))
    if not equals:
        if flag.kind != BOOL and not left:
            raise UsageError(f"flag needs an argument: {word}", remedy=f"write it as --{name}=VALUE or --{name} VALUE")
        text = "true" if flag.kind == BOOL else left.pop(0)
    found.take(flag, text)


def _short(letters: str, left: list[str], flags: Sequence[Flag], found: Scanned, *, remedy: _Remedy) -> None:
    while letters:
        flag = _lettered(letters[0], flags)
        if flag is None:
            raise UsageError(f"unknown shorthand flag: '{letters[0]}' in -{letters}", remedy=remedy(letters, _doubled))
        if len(letters) > 2 and letters[1] == "=":
            found.take(flag, letters[2:])
            return
        if flag.kind == BOOL:
            found.take(flag, "true")
            letters = letters[1:]
            continue
        if len(letters) == 1 and not left:
            raise UsageError(f"flag needs an argument: '{letters}' in -{letters}", remedy=f"write it as -{letters} VALUE")
        found.take(flag, letters[1:] or left.pop(0))
        return


def _close(name: str, flags: Sequence[Flag]) -> str:
    import difflib

    close = difflib.get_close_matches(name.replace("_", "-"), [flag.name for flag in flags if not flag.hidden], n=1)
    return f"did you mean '--{close[0]}'?" if close else ""


def _doubled(letters: str, flags: Sequence[Flag]) -> str:
    """Suggest `--config` for `-config`."""
    name = letters.partition("=")[0]
    return f"did you mean '--{name}'?" if len(name) > 1 and named(name, flags) else ""
