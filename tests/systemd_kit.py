"""Units as systemd reads them: lines, directives and the words of a command (systemd v252).

src/basic/fileio.c (read_line_full), src/shared/conf-parser.c (config_parse, parse_line), src/basic/extract-word.c (extract_first_word with UNQUOTE and
CUNESCAPE), src/core/load-fragment.c (config_parse_exec), src/basic/env-util.c (replace_env).
"""

from __future__ import annotations

import re

_BLANKS = " \t\n\r"


def directives(text: str) -> list[tuple[str, str, str]]:
    """Return section, name and value of each assignment. Raises ValueError for an invalid line."""
    found, section, kept = [], "", ""
    for line in re.split("[\n\r\0]", text):
        if line.lstrip(_BLANKS)[:1] in {"#", ";"}:
            continue
        whole = kept + line
        kept = ""
        if _is_continued(whole):
            kept = f"{whole[:-1]} "
            continue
        stripped = whole.strip(_BLANKS)
        if stripped.startswith("["):
            section = stripped
        elif stripped:
            name, equals, value = stripped.partition("=")
            if not equals:
                raise ValueError(f"not an assignment: {stripped!r}")
            found.append((section, name.rstrip(_BLANKS), value.lstrip(_BLANKS)))
    return found


def _is_continued(line: str) -> bool:
    return len(line.removesuffix("\\")) < len(line) and (len(line) - len(line.rstrip("\\"))) % 2 == 1


def names(text: str) -> list[tuple[str, str]]:
    """Return section and name of each assignment."""
    return [(section, name) for section, name, _ in directives(text)]


def values(text: str, name: str) -> list[str]:
    """Return the values of a setting, in order."""
    return [value for _, one, value in directives(text) if one == name]


def commands(value: str) -> list[list[str]]:
    """Return the commands of ExecStart= and similar settings, each as the words that the program receives."""
    found: list[list[str]] = [[]]
    rest = value.lstrip(_BLANKS)
    while rest:
        if rest[0] == ";" and rest[1:2] in {"", *_BLANKS}:
            found.append([])
            rest = rest[1:].lstrip(_BLANKS)
            continue
        word, rest = _first_word(rest)
        plain = _without_specifiers(word)
        found[-1].append(_without_variables(plain) if found[-1] else plain)  # variables are not expanded in the program itself
    return found


def assignment(value: str) -> tuple[str, str]:
    """Return the name and value of the only variable that Environment= sets."""
    word, rest = _first_word(value)
    if rest:
        raise ValueError(f"more than one variable: {rest!r}")
    name, _, content = _without_specifiers(word).partition("=")
    return name, content


def words(text: str) -> list[str]:
    """Return the words of a variable that is the whole word of a command: it is split like a command, and specifiers are not expanded."""
    found, rest = [], text.lstrip(_BLANKS)
    while rest:
        word, rest = _first_word(rest)
        found.append(word)
    return found


def _first_word(text: str) -> tuple[str, str]:
    word, quote, place = "", "", 0
    while place < len(text):
        char = text[place]
        if char == "\\":
            place += 1
            if text[place : place + 1] not in {"\\", '"', "'"}:
                raise ValueError(f"an escape that nobody writes: {text!r}")
            word += text[place]
        elif char == quote:
            quote = ""
        elif not quote and char in "\"'":
            quote = char
        elif not quote and char in _BLANKS:
            break
        else:
            word += char
        place += 1
    if quote:
        raise ValueError(f"quotes that nobody closes: {text!r}")
    return word, text[place:].lstrip(_BLANKS)


def _without_specifiers(word: str) -> str:
    if "%" in word.replace("%%", ""):
        raise ValueError(f"a specifier: {word!r}")
    return word.replace("%%", "%")


def _without_variables(word: str) -> str:
    if "$" in word.replace("$$", ""):
        raise ValueError(f"a variable: {word!r}")
    return word.replace("$$", "$")
