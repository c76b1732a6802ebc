"""`config validate` and `config migrate` beside the real kubeadm, for files that hypothesis makes.

Needs a kubeadm binary: KUBEWRIGHT_BINARIES_DIR, the cache, or a build. KUBEWRIGHT_DIFFERENTIAL_EXAMPLES is how many files of each kind are
tried; `--hypothesis-seed` repeats a run. A difference that is not in `ACCEPTED` fails.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from config_kit import V1BETA3, broken_files, configurations
from hypothesis import HealthCheck, given, note, settings

from kubewright.base import yaml
from kubewright.base.errors import BinariesError, DocumentError
from kubewright.base.level import KUBERNETES
from kubewright.binaries import ensure, sources_from
from kubewright.cli.main import main

EXAMPLES = int(os.environ.get("KUBEWRIGHT_DIFFERENTIAL_EXAMPLES", "60"))
_SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
_FIELD = re.compile(r"(?:^|[\[ ])([a-z][\w.\[\]]*): (?:Invalid value|Required value)")


@dataclass(frozen=True)
class Outcome:
    """What one program said about a file: exit code, stdout and stderr of one command."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Difference:
    """A file that both programs judged, with what is known about it."""

    text: str
    kubeadm: Outcome
    ours: Outcome

    @property
    def documents(self) -> list[Mapping[str, Any]]:
        try:
            values = [document.value for document in yaml.load_all(self.text)]
        except DocumentError:
            return []
        return [value for value in values if isinstance(value, Mapping)]

    @property
    def our_fields(self) -> set[str]:
        return set(re.findall(r"^  (?:\S+:\d+: )?([\w.\[\]-]+): [A-Z<]", self.ours.err, re.MULTILINE))


def _refused(*paths: str) -> Callable[[Difference], bool]:
    """We refuse these fields only, and kubeadm accepts them."""
    return lambda found: found.kubeadm.code == 0 and found.ours.code == 1 and bool(found.our_fields) and found.our_fields <= set(paths)


def _takes_expires(found: Difference) -> bool:
    tokens = [token for document in found.documents for token in document.get("bootstrapTokens") or []]
    return found.ours.code == 0 and "bootstrapTokens." in found.kubeadm.err and any(token.get("expires") for token in tokens)


ACCEPTED: Mapping[str, Callable[[Difference], bool]] = {
    "defects of kubeadm: negative periods, sockets with another scheme, a locked gate": _refused(
        "certificateValidityPeriod", "caCertificateValidityPeriod", "nodeRegistration.criSocket", "criSocket", "featureGates"
    ),
    "defect of kubeadm: expires cannot be used": _takes_expires,
    "defect of kubeadm: an UpgradeConfiguration cannot be migrated": lambda found: (
        found.ours.code == 0 and "could not find a mutator" in found.kubeadm.err
    ),
}
"""Differences of verdict, with the reason. Each has a row in docs/compat/config.md."""


@pytest.fixture(scope="session")
def kubeadm() -> Path:
    try:
        return ensure(["kubeadm"], version=KUBERNETES, sources=sources_from(os.environ))["kubeadm"].path
    except BinariesError as error:
        pytest.skip(f"no kubeadm: {error.what}")


def theirs(kubeadm: Path, *argv: str) -> Outcome:
    done = subprocess.run([kubeadm, "config", *argv], capture_output=True, text=True, timeout=60, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr)


def ours(*argv: str) -> Outcome:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["config", *argv])
    return Outcome(code, out.getvalue(), err.getvalue())


def accepted(found: Difference) -> bool:
    return any(reason(found) for reason in ACCEPTED.values())


def judge(text: str, kubeadm: Path, path: Path) -> None:
    """Compare both commands of both programs on one file."""
    path.write_text(text)
    note(text)
    validated = Difference(text, theirs(kubeadm, "validate", "--config", str(path)), ours("validate", "--config", str(path)))
    compare_verdicts(validated)
    migrated = Difference(text, theirs(kubeadm, "migrate", "--old-config", str(path)), ours("migrate", "--old-config", str(path)))
    compare_verdicts(migrated)
    if migrated.kubeadm.code == migrated.ours.code == 0:
        assert normal(migrated.ours.out, text) == normal(migrated.kubeadm.out, text)


def compare_verdicts(found: Difference) -> None:
    assert found.ours.code in {0, 1}
    if found.kubeadm.code != found.ours.code:
        note(found.kubeadm.err)
        note(found.ours.err)
        assert accepted(found)
    elif found.kubeadm.code:
        missing = set(_FIELD.findall(found.kubeadm.err)) - found.our_fields
        assert not {path for path in missing if not path.startswith("bootstrapTokens.")}


def normal(text: str, source: str) -> str:
    """Leave out what is known to differ: tokens made at random, an empty `patches`, which we drop, and the time-out for components,
    which kubeadm loses or takes from the wrong document.
    """
    text = text.replace("\npatches: {}\n", "\n")
    text = re.sub(r"(token): (\w{6}\.\w{16})$", lambda found: found[0] if found[2] in source else "token: ?", text, flags=re.MULTILINE)
    kept = [line for line in text.splitlines() if "controlPlaneComponentHealthCheck" not in line or V1BETA3 not in source]
    return re.sub(r"(controlPlaneComponentHealthCheck): .*", r"\1: ?", "\n".join(kept))


@_SETTINGS
@given(documents=configurations())
def test_made_up_configurations_are_judged_and_migrated_alike(documents, kubeadm, tmp_path):
    judge(yaml.dump_all(documents), kubeadm, tmp_path / "kubeadm.yaml")


@_SETTINGS
@given(text=broken_files())
def test_broken_files_are_judged_alike(text, kubeadm, tmp_path):
    judge(text, kubeadm, tmp_path / "kubeadm.yaml")
