#!/usr/bin/env python3
"""Record a real `kubewright up` in a pseudo-terminal and draw two pictures of it: docs/images/up-live.svg and docs/images/up.svg.

Run it with the project's virtual environment: `.venv/bin/python scripts/record_up.py`. It needs the component
binaries, and leaves no cluster running. In the recorded output, only the path of the state directory is replaced.
"""

from __future__ import annotations

import codecs
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 100, 30
SHOWN_AS = "/home/you/.local/state"
IMAGES = Path(__file__).parents[1] / "docs" / "images"
PROMPT = "$ kubewright up"
_SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")

SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


class Screen:
    """The terminal features that the live display needs: text, line breaks, colours, moving up, erasing."""

    def __init__(self) -> None:
        self.lines: list[list[tuple[str, str]]] = [[]]
        self.row = self.column = 0
        self.style = ""

    def feed(self, text: str) -> None:
        """Process the output of a program."""
        position = 0
        while position < len(text):
            found = _SEQUENCE.match(text, position)
            if found:
                self._sequence(found[1], found[2])
                position = found.end()
            else:
                self._character(text[position])
                position += 1

    def _sequence(self, values: str, final: str) -> None:
        if final == "m":
            self.style = "" if values in {"", "0"} else f"{self.style}\x1b[{values}m"
        elif final == "A":
            self.row = max(0, self.row - int(values or 1))
        elif final == "K":
            self.lines[self.row] = [] if values == "2" else self.lines[self.row][: self.column]

    def _character(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.row += 1
            if self.row == len(self.lines):
                self.lines.append([])
        else:
            line = self.lines[self.row]
            line.extend([(" ", "")] * (self.column + 1 - len(line)))
            line[self.column] = (character, self.style)
            self.column += 1

    def text(self) -> str:
        """Return the contents of the screen, as text with colours."""
        runs = [[(style, "".join(one for one, _ in run)) for style, run in groupby(line, itemgetter(1))] for line in self.lines]
        lines = ["".join(f"{style}{text}\x1b[0m" if style else text for style, text in line) for line in runs]
        return "\n".join(lines).rstrip("\n ")


def record(argv: list[str], environment: dict[str, str]) -> list[str]:
    """Run a command in a pseudo-terminal and return its output, one string per write. Raises SystemExit if it fails."""
    leader, follower = pty.openpty()
    fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    with subprocess.Popen(argv, stdin=follower, stdout=follower, stderr=follower, env=environment, start_new_session=True) as process:
        os.close(follower)
        decoder = codecs.getincrementaldecoder("utf-8")()
        pieces = []
        while True:
            try:
                pieces.append(decoder.decode(os.read(leader, 65536)))
            except OSError:  # the other end is closed
                break
    if process.returncode:
        sys.exit("".join(pieces))
    return pieces


def draw(text: str, name: str, *, title: str = PROMPT.removeprefix("$ ")) -> None:
    """Write a picture of a text with colours."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(Text.from_ansi(text))
    svg = console.export_svg(title=title, code_format=SVG, unique_id="up")
    (IMAGES / name).write_text("".join(f"{line.rstrip()}\n" for line in svg.splitlines()))


def busiest(frames: list[str]) -> str:
    """Choose the frame that shows most: among those in which something is ready and something is not, the one with most lines and words."""

    def shown(frame: str) -> tuple[bool, int, int]:
        return "Running" in frame and "Ready" in frame, len(frame.splitlines()), frame.count("Ready")

    return max(frames, key=shown)


def main() -> None:
    """Record and draw."""
    with tempfile.TemporaryDirectory() as state:
        environment = {**os.environ, "XDG_STATE_HOME": state, "TERM": "xterm-256color", "COLORTERM": "", "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("NO_COLOR", None)
        command = [sys.executable, "-m", "kubewright"]
        try:
            pieces = [piece.replace(state, SHOWN_AS) for piece in record([*command, "up"], environment)]
        finally:
            subprocess.run([*command, "down"], env=environment, check=True, stdout=subprocess.DEVNULL)
    screen, frames = Screen(), []
    for piece in pieces:
        screen.feed(piece)
        frames.append(screen.text())
    live = [frame for frame in frames if "export KUBECONFIG" not in frame]
    IMAGES.mkdir(parents=True, exist_ok=True)
    draw(f"{PROMPT}\n{busiest(live)}", "up-live.svg")
    draw(f"{PROMPT}\n{screen.text()}", "up.svg")


if __name__ == "__main__":
    main()
