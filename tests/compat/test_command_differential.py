"""Command lines that hypothesis generates, for real kubeadm and for kubewright called as `kubeadm`: exit codes, usage errors, results.

KUBEWRIGHT_DIFFERENTIAL_EXAMPLES is the number of examples, KUBEWRIGHT_DIFFERENTIAL_SEED repeats a run. A difference
without a row in `accepted.COMMANDS` fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from accepted import COMMANDS, DRY, Found
from arena import CONFIG, Answer, Files, Request, arena
from certs_comparison import INIT, find_kubeadm
from command_kit import first_error, lines, named
from fuzzing import SEED, Patience, examples
from hypothesis import given, note, seed
from machine_files import between, describe

CLUSTER = INIT + "encryptionAlgorithm: ECDSA-P256\n"
PREPARED = (["init", "phase", "certs", "all", "--config", CONFIG], ["init", "phase", "kubeconfig", "all", "--config", CONFIG])
_USAGE = re.compile(
    r"error: (unknown (shorthand )?flag|flag needs an argument|invalid argument|bad flag syntax|unknown command|accepts |can not mix|"
    r"required flag)"
)
_PRINTED = ("config images list", "config print", "config validate")
"""The output of these commands is the same in every run."""
_HELP = {"--help", "-h"}
"""Help texts are ours."""


@pytest.fixture(scope="module")
def pair():
    with arena(find_kubeadm()) as made:
        yield made


@pytest.fixture(scope="module")
def machine(pair):
    """The files of a machine with certificates, kubeconfigs, and a configuration."""
    _, ours = pair.both(Request(PREPARED, {CONFIG: CLUSTER}))
    assert ours.code == 0
    files = {path: file.content.decode() for path, file in ours.files.items() if file.kind == "file"}
    assert len(files) == 28
    return Files(files)


@pytest.fixture(scope="module")
def patience():
    return Patience()


@seed(SEED)
@examples(150)
@given(words=lines())
def test_generated_command_lines_end_as_with_kubeadm(words, pair, machine, patience):
    line = " ".join(words)
    if patience.is_over(line):
        return
    note(line)
    files = {CONFIG: CLUSTER} if line.startswith("init") else machine
    theirs, ours = pair.both(Request([words], files, {"KUBEADM_INIT_DRYRUN_DIR": DRY}))
    found = [one for one in differences(line, theirs, ours) if not COMMANDS.accept(one)]
    for one in found:
        patience.keep(line)
        note(str(one))
    assert not found


def differences(line: str, theirs: Answer, ours: Answer) -> Iterator[Found]:
    """The exit code; for usage errors the error, for successful commands the files and the output."""
    if theirs.code != ours.code:
        yield Found("exit code", line, f"{theirs.code}: {theirs.err}", f"{ours.code}: {ours.err}")
    elif theirs.code:
        told = first_error(theirs.err)
        if _USAGE.match(told) and named(told) != named(first_error(ours.err)):
            yield Found("usage error", line, theirs.err, ours.err)
    else:
        one, other = describe(theirs.files), describe(ours.files)
        for path in one.differences(other, within=between(theirs, ours)):
            yield Found(path, line, str(one.files.get(path)), str(other.files.get(path)))
        if line.startswith(_PRINTED) and " -v" not in line and not _HELP & set(line.split()) and theirs.out != ours.out:
            yield Found("output", line, theirs.out, ours.out)
