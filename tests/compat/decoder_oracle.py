"""Go's decoders to compare with: the program of tests/compat/decoders, built once for each state of its source, reading batches as one process."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kubewright.binaries import golang

SOURCE: Final = Path(__file__).parent / "decoders"
BUILT: Final = Path(__file__).parents[2] / "build" / "decoders"
REFUSED: Final = "-"
Text = tuple[str, bytes]
"""A kind, as in main.go, and the text to read."""


def program() -> Path:
    """Build the program, or find an earlier build. Raises BinariesError if there is no recent enough Go."""
    wanted = re.search(r"^go (\d+)\.(\d+)", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    assert wanted is not None
    go = golang.find_go(os.environ, need=(int(wanted[1]), int(wanted[2]), 0))
    files = sorted([*SOURCE.glob("*.go"), SOURCE / "go.mod"])
    digest = hashlib.sha256(b"\0".join([str(go).encode(), *(path.read_bytes() for path in files)])).hexdigest()[:16]
    path = BUILT / digest
    if not path.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        own = path.with_name(f"{digest}.{os.getpid()}")  # another test process may be building it too
        environment = {
            **golang.cleaned(os.environ),
            "GOTOOLCHAIN": "local",
            "GOFLAGS": "",
            "GOWORK": "off",
            "GOPROXY": "off",
            "CGO_ENABLED": "0",
        }
        subprocess.run([go.path, "build", "-o", own, "."], cwd=SOURCE, env=environment, check=True)
        own.rename(path)
    return path


class GoDecoders:
    """The running program."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def send(self, texts: Sequence[Text]) -> None:
        """Send it a batch, which it reads completely; in the meantime we can read the same texts."""
        assert self._process.stdin is not None
        parts = [struct.pack(">I", len(texts))]
        parts += [part for kind, text in texts for part in (kind.encode(), struct.pack(">I", len(text)), text)]
        self._process.stdin.write(b"".join(parts))
        self._process.stdin.flush()

    def answers(self, count: int) -> list[str]:
        """Return its lines for the batch."""
        assert self._process.stdout is not None
        return [self._process.stdout.readline().decode().rstrip("\n") for _ in range(count)]

    def read(self, *texts: Text) -> list[str]:
        """Send it a batch and return its lines."""
        self.send(texts)
        return self.answers(len(texts))


@contextmanager
def running(path: Path) -> Iterator[GoDecoders]:
    """Run the program for as long as the block lasts."""
    with subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield GoDecoders(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0
