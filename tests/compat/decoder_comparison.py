"""Our decoders and Go's on the same texts: what both accept must be read equally.

`make test` compares a few texts, `make soak-controllers` a million.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Final

import decoder_readings
import decoder_texts
from decoder_oracle import REFUSED, Text, running

KINDS: Final = {
    "B": "base64",
    "P": "PEM",
    "R": "certificate requests",
    "C": "certificates",
    "F": "kubeconfigs",
    "I": "cluster-info",
    "J": "join requests",
}
SAME: Final = "read alike"
WE_REFUSE: Final = "only we refuse"
GO_REFUSES: Final = "only Go refuses"
BOTH_REFUSE: Final = "both refuse"
BATCH: Final = 250
FOUND: Final = Path(__file__).parents[2] / "build" / "fuzz"


class ReadDifferently(AssertionError):
    """Both accept a text, and read different things in it."""


def compare(path: Path, seed: int, count: int) -> Counter[tuple[str, str]]:
    """Compare this many texts generated from a seed, and count the outcomes of each kind. Raises ReadDifferently, naming the text."""
    found: Counter[tuple[str, str]] = Counter()
    readers = {**decoder_readings.READERS, "J": decoder_readings.JoinRequests(decoder_texts.join_key()).read}
    with running(path) as go:
        assert go.read(("K", decoder_texts.join_key())) == ["key"]
        for texts in _batches(decoder_texts.made(seed, count)):
            go.send(texts)
            ours = [decoder_readings.reading(readers[kind], text) for kind, text in texts]
            for one, our, their in zip(texts, ours, go.answers(len(texts)), strict=True):
                found[KINDS[one[0]], _outcome(one, our, their, seed)] += 1
    return found


def _batches(texts: Iterator[Text]) -> Iterator[list[Text]]:
    while batch := list(islice(texts, BATCH)):
        yield batch


def _outcome(text: Text, ours: str | None, theirs: str, seed: int) -> str:
    if ours is None:
        return BOTH_REFUSE if theirs in {REFUSED, ""} else WE_REFUSE
    if theirs == REFUSED:
        return GO_REFUSES
    if ours != theirs:
        raise ReadDifferently(_told(text, ours, theirs, seed))
    return SAME


def _told(text: Text, ours: str, theirs: str, seed: int) -> str:
    """Name the parts in which two readings differ; the whole text is kept in a file."""
    kind, content = text
    FOUND.mkdir(parents=True, exist_ok=True)
    report = FOUND / f"decoders-{seed}.txt"
    report.write_text(f"{KINDS[kind]}: {content!r}\nwe see: {ours}\nGo sees: {theirs}\n")
    parts = [(our, their) for our, their in zip_longest(ours.split(), theirs.split()) if our != their]
    return f"{KINDS[kind]}, seed {seed}, see {report}: we see {parts[0][0]}, Go sees {parts[0][1]}"
