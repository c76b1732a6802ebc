"""The table of components' feature gates compared with those that the components show."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from kubewright import binaries
from kubewright.apis.feature_gates import KNOWN, LOCKED
from kubewright.base.level import KUBERNETES

SHOWN = re.compile(r"\b(?:kube:)?([A-Z]\w+)=true\|false")


@pytest.mark.parametrize("name", ["kube-apiserver", "kube-controller-manager", "kube-scheduler"])
def test_every_gate_that_a_component_shows_is_known_and_not_locked(name):
    """Help shows alpha and beta gates; the kubelet and kube-proxy share nearly all of them."""
    found = binaries.locate((name,), version=KUBERNETES, sources=binaries.sources_from(os.environ)).found
    if name not in found:
        pytest.skip(f"no {name}: run `kubewright binaries fetch {name}`, or set KUBEWRIGHT_BINARIES_DIR")
    done = subprocess.run([str(found[name].path), "--help"], capture_output=True, text=True, check=False, timeout=600)
    shown = set(SHOWN.findall(done.stdout + done.stderr))
    assert len(shown) > 40
    assert sorted(shown - KNOWN) == []
    assert sorted(shown & set(LOCKED)) == []
