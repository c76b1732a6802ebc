"""What we read in PEM, base64, requests, certificates, kubeconfigs, cluster-info and join requests, compared with Go's decoders.

KUBEWRIGHT_DIFFERENTIAL_SEED generates other texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import decoder_comparison as comparison
import decoder_oracle
import pytest
from controllers_kit import request
from decoder_comparison import GO_REFUSES, KINDS, SAME
from decoder_oracle import running
from decoder_readings import READERS, reading
from fuzzing import SEED

from kubewright.base.errors import BinariesError

COUNT = 20_000


@pytest.fixture(scope="module")
def built() -> Path:
    try:
        return decoder_oracle.program()
    except BinariesError as error:
        pytest.skip(f"no Go to build the decoders with: {error}")


def _two_blocks(spoil: Callable[[bytes], bytes]) -> bytes:
    masters, developers = (request(subject=(("2.5.4.10", group), ("2.5.4.3", "dev"))) for group in ("system:masters", "developers"))
    return spoil(masters) + developers


PASSED_OVER: Mapping[str, Callable[[bytes], bytes]] = {
    "surplus padding": lambda text: text.replace(b"\n-----END", b"=\n-----END"),
    "more of it": lambda text: text.replace(b"\n-----END", b"=====\n-----END"),
    "a line end that is none": lambda text: text.replace(b"\n-----END", b"\v\n-----END"),
    "headers up to its end": lambda text: text[:36] + b"a: b" + text[text.find(b"\n-----END") :],
    "text behind its end": lambda text: text.replace(b"REQUEST-----\n", b"REQUEST----- x\n"),
    "another label at its end": lambda text: text.replace(b"-----END CERTIFICATE", b"-----END NEW CERTIFICATE"),
    "text before it": lambda text: b"# " + text,
}


@pytest.mark.parametrize("case", PASSED_OVER)
def test_a_request_that_go_skips_is_not_read(built: Path, case: str) -> None:
    text = _two_blocks(PASSED_OVER[case])
    with running(built) as go:
        [seen] = go.read(("R", text))
    assert f"o={b'developers'.hex()} " in seen
    assert [reading(READERS[kind], text) for kind in "RP"] == [None, None]


def test_no_text_that_both_accept_is_read_differently(built: Path, matrix) -> None:
    found = comparison.compare(built, SEED, COUNT)
    for (kind, outcome), count in found.items():
        matrix("texts read by us and by Go").record(kind, outcome, f"{count:,}")
    assert found.total() == COUNT
    kinds: Counter[str] = Counter()
    for (kind, _), count in found.items():
        kinds[kind] += count
    assert sorted(kinds) == sorted(KINDS.values())
    assert {kind for kind, count in kinds.items() if found[kind, SAME] < count / 15} == set()
    # Components that decide about a text accept none in which Go reads nothing, or less.
    assert [found[kind, GO_REFUSES] for kind in ("base64", "PEM", "join requests")] == [0, 0, 0]
