"""`config validate`, `migrate` and `images list` compared with real kubeadm on files that hypothesis generates: verdicts, field paths, output.

KUBEWRIGHT_DIFFERENTIAL_EXAMPLES is the number of files of each kind, KUBEWRIGHT_DIFFERENTIAL_SEED repeats a run. A
difference without a row in `accepted.FILES` fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from accepted import FILES, Found
from arena import CONFIG, Request, Run, arena
from certs_comparison import find_kubeadm
from config_kit import V1BETA3, broken_files, configurations
from fuzzing import SEED, Patience, examples
from hypothesis import given, note, seed
from machine_strategies import machines

from kubewright.base import yaml

_COMMANDS = {
    "validate": ["config", "validate", "--config", CONFIG],
    "migrate": ["config", "migrate", "--old-config", CONFIG],
    "images": ["config", "images", "list", "--config", CONFIG],
}


@pytest.fixture(scope="module")
def pair():
    with arena(find_kubeadm()) as made:
        yield made


def judge(text: str, pair, patience: Patience) -> None:
    """Compare all commands of both programs on one file."""
    if patience.is_over(text):
        return
    note(text)
    theirs, ours = pair.both(Request(tuple(_COMMANDS.values()), {CONFIG: text}, stops=False))
    found = [
        one
        for name, run, own in zip(_COMMANDS, theirs.runs, ours.runs, strict=True)
        for one in differences(name, text, run, own)
        if not FILES.accept(one)
    ]
    for one in found:
        note(f"{one.what}\nkubeadm: {one.theirs}\nkubewright: {one.ours}")
    if found:
        patience.keep(text)
    assert not found


def differences(name: str, text: str, theirs: Run, ours: Run) -> Iterator[Found]:
    if theirs.code != ours.code:
        yield Found(f"verdict of {name}", text, theirs.err, ours.err)
    elif theirs.code:
        if set(fields(theirs.err)) - set(our_fields(ours.err)):
            yield Found(f"fields of {name}", text, theirs.err, ours.err)
    elif name == "validate":
        return
    elif normal(theirs.out, text) != normal(ours.out, text):
        yield Found(name, text, normal(theirs.out, text), normal(ours.out, text))


_FIELD = re.compile(r"(?:^|[\[ ])([a-z][\w.\[\]]*): (?:Invalid value|Required value|Unsupported value|Forbidden|Duplicate value)")
_OUR_FIELD = re.compile(r"^  (?:\S+:\d+(?::\d+)?: )?([\w.\[\]-]+): [A-Z<]", re.MULTILINE)


def fields(err: str) -> list[str]:
    """The fields that kubeadm names; it names no index of bootstrap tokens."""
    return [path for path in _FIELD.findall(err) if not path.startswith("bootstrapTokens.")]


def our_fields(err: str) -> list[str]:
    return _OUR_FIELD.findall(err)


def normal(text: str, source: str) -> str:
    """Leave out known differences.

    They are random tokens, an empty `patches`, which we drop, and the timeout for components, which kubeadm loses or
    takes from the wrong document.
    """
    text = text.replace("\npatches: {}\n", "\n")
    text = re.sub(r"(token): (\w{6}\.\w{16})$", lambda found: found[0] if found[2] in source else "token: ?", text, flags=re.MULTILINE)
    kept = [line for line in text.splitlines() if "controlPlaneComponentHealthCheck" not in line or V1BETA3 not in source]
    return re.sub(r"(controlPlaneComponentHealthCheck): .*", r"\1: ?", "\n".join(kept))


@pytest.fixture(scope="module")
def patience():
    return Patience()


@seed(SEED)
@examples(300)
@given(documents=configurations())
def test_generated_configurations_are_validated_and_migrated_as_by_kubeadm(documents, pair, patience):
    judge(yaml.dump_all(documents), pair, patience)


@seed(SEED)
@examples(300)
@given(text=broken_files(configurations() | machines().map(lambda made: made.documents)))
def test_broken_files_are_treated_as_by_kubeadm(text, pair, patience):
    judge(text, pair, patience)
