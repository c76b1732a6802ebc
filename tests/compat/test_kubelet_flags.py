"""The flags of `agent run` compared with the real kubelet's help: all of its flags and no others, each with its type."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from kubewright import binaries
from kubewright.agent.configuration.flags import FLAGS
from kubewright.base.level import KUBERNETES
from kubewright.cli.rows.commands import GLOBAL_FLAGS

TYPES = {
    "text": {"string", "ip", "quantity"},
    "flag": {"", "RuntimeDefault"},  # a word in backquotes in the help of --seccomp-default
    "int": {"int", "int32"},
    "list": {"strings"},
    "pairs": {"mapStringString", "mapStringBool"},
    "less": {"mapStringString"},
    "span": {"duration"},
    "taints": {"[]v1.Taint"},
    "headers": {"colonSeparatedMultimapStringString"},
    "limits": {"reserved-memory"},
}
"""What the kubelet's help shows for each kind of the table."""
OF_ALL = {"help", "version", *(flag.name for flag in GLOBAL_FLAGS)}
ROW = re.compile(r"^ +(?:-\w, )?--([a-z0-9-]+)(?: ([^ ]+))?(?:   |$)", re.MULTILINE)
"""A flag's name and its type, if a single blank follows the name."""


@pytest.fixture(scope="module")
def real() -> dict[str, str]:
    found = binaries.locate(("kubelet",), version=KUBERNETES, sources=binaries.sources_from(os.environ)).found
    if "kubelet" not in found:
        pytest.skip("no kubelet: run `kubewright binaries fetch kubelet`, or set KUBEWRIGHT_BINARIES_DIR")
    text = subprocess.run([found["kubelet"].path, "--help"], check=True, capture_output=True, text=True, timeout=600).stdout
    return {name: kind for name, kind in ROW.findall(text) if name not in OF_ALL}


def test_exactly_the_flags_of_the_kubelet_are_accepted(real):
    assert sorted(flag.name for flag in FLAGS) == sorted(real)
    assert len(real) == 145


def test_every_flag_has_the_type_of_the_kubelet(real):
    wrong = {flag.name: (flag.kind, real[flag.name]) for flag in FLAGS if real[flag.name] not in TYPES[flag.kind]}
    assert wrong == {}
