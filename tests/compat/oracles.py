"""The kubeadms that the tests compare with: that of our own version, and those of the neighbouring minor releases."""

from __future__ import annotations

import os

import pytest

from kubewright import binaries
from kubewright.base.level import KUBERNETES
from kubewright.base.versions import OWN

KUBEADMS = {"1.35": "v1.35.4", OWN.line: KUBERNETES, "1.37": "v1.37.1"}
"""By minor release. `make test-all` fetches them all."""


def kubeadm_of(line: str) -> str:
    """Return the kubeadm of a release: from KUBEWRIGHT_BINARIES_DIR for our own, or from the cache. Skips the test if there is none."""
    environment = {name: value for name, value in os.environ.items() if line == OWN.line or name != "KUBEWRIGHT_BINARIES_DIR"}
    found = binaries.locate(("kubeadm",), version=KUBEADMS[line], sources=binaries.sources_from(environment)).found
    if "kubeadm" not in found:
        pytest.skip(f"no kubeadm {KUBEADMS[line]}: run `kubewright binaries fetch kubeadm --kubernetes-version {KUBEADMS[line]}`")
    return str(found["kubeadm"].path)
