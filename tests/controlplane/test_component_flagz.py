"""The table of components' flags compared with /flagz of a running API server, which includes the flags that its help hides."""

from __future__ import annotations

import re

import pytest

from kubewright.base.versions import OWN
from kubewright.kube.client import KubeClient
from kubewright.manifests.extra_arguments import flags_of


@pytest.fixture(scope="module")
def apiserver(controlplane):
    return controlplane


def test_the_table_has_every_flag_of_the_api_server(admin: KubeClient) -> None:
    answer = admin.raw("GET", "/flagz", headers={"accept": "text/plain"})
    assert answer.status == 200
    text = answer.body.decode()
    told = set(re.findall(r"^([a-z0-9][a-z0-9-]*)(?:[:=]| |$)", text.partition("debugging purposes only.")[2], re.MULTILINE))
    known = flags_of("kube-apiserver", OWN.line)
    assert known is not None
    assert told == set(known.flags)
