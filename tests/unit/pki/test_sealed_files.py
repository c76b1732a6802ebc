"""Files that are sealed in pieces: whatever was done to one, it is opened whole or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import TrustError
from kubewright.base.randomness import SystemRandom
from kubewright.pki.encryption import sealed_files, sealing
from kubewright.pki.encryption.sealed_files import PIECE, SealedWriter

KEY, LINE = b"k" * 32, b"a sealed file\n"
SEALED = PIECE + sealing.OVERHEAD


def sealed(content: bytes, *, key: bytes = KEY, line: bytes = LINE, step: int = 700_000) -> bytes:
    out: list[bytes] = []
    writer = SealedWriter(out.append, key, first_line=line, random=SystemRandom())
    for start in range(0, len(content), step):
        assert writer.write(content[start : start + step]) == len(content[start : start + step])
    writer.finish()
    return b"".join(out)


def opened(file: bytes, *, key: bytes = KEY, step: int = 99_999) -> bytes:
    chunks = (file[start : start + step] for start in range(0, len(file), step))
    return b"".join(sealed_files.opened(chunks, key, first_line=LINE, name="backup"))


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 5])
def test_content_of_any_size_comes_back(size):
    content = bytes(range(256)) * (size // 256 + 1)
    file = sealed(content[:size])
    assert opened(file) == content[:size]
    assert (file.startswith(LINE), len(file)) == (True, len(LINE) + size + sealing.OVERHEAD * max(1, -(-size // PIECE)))


def test_the_content_cannot_be_read_in_the_file():
    secret = b"-----BEGIN RSA PRIVATE KEY-----"
    assert secret not in sealed(secret * 1000)


BODY = b"x" * (2 * PIECE + 100)
FILE = sealed(BODY)
PIECES = [FILE[len(LINE) :][at : at + SEALED] for at in range(0, len(FILE) - len(LINE), SEALED)]


@pytest.mark.parametrize(
    "changed",
    [
        LINE + PIECES[0] + PIECES[1],
        LINE + PIECES[0],
        LINE,
        LINE[:5],
        b"",
        LINE + PIECES[1] + PIECES[0] + PIECES[2],
        LINE + PIECES[0] + PIECES[2],
        FILE + PIECES[2],
        FILE + b"\0",
        b"b" + FILE[1:],
    ],
    ids=["last left out", "two left out", "none", "half a line", "nothing", "exchanged", "middle left out", "repeated", "longer", "line"],
)
def test_pieces_that_are_missing_or_in_another_order_are_refused(changed):
    with pytest.raises(TrustError, match="backup cannot be decrypted"):
        opened(changed)


def test_another_key_is_refused():
    with pytest.raises(TrustError, match="backup cannot be decrypted") as caught:
        opened(FILE, key=b"j" * 32)
    assert "the key is another one" in caught.value.detail


SMALL = sealed(b"small")


@given(at=st.integers(0, len(SMALL) - 1), bit=st.integers(0, 7))
def test_every_flipped_bit_is_noticed(at, bit):
    with pytest.raises(TrustError):
        opened(SMALL[:at] + bytes([SMALL[at] ^ (1 << bit)]) + SMALL[at + 1 :])


@given(end=st.integers(0, len(SMALL) - 1))
def test_a_file_that_was_cut_off_anywhere_is_refused(end):
    with pytest.raises(TrustError):
        opened(SMALL[:end])
