"""The table of components' flags compared with the components of our own release; the other releases of the table were made in the same way."""

from __future__ import annotations

import os
import re
import subprocess

import flag_collecting
import pytest
from flag_collecting import Found

from kubewright import binaries
from kubewright.apis.kubeadm.types import Arg
from kubewright.base.level import KUBERNETES
from kubewright.base.versions import OWN
from kubewright.manifests import argument_values
from kubewright.manifests.extra_arguments import ComponentFlags, flags_of

LINES = dict.fromkeys(flag_collecting.KUBERNETES, OWN.line) | {"etcd": "3.6"}


def program(name: str) -> str:
    found = binaries.locate((name,), version=KUBERNETES, sources=binaries.sources_from(os.environ)).found
    if name not in found:
        pytest.skip(f"no {name}: run `kubewright binaries fetch {name}`, or set KUBEWRIGHT_BINARIES_DIR")
    return str(found[name].path)


@pytest.fixture(scope="module", params=LINES)
def pair(request: pytest.FixtureRequest) -> tuple[ComponentFlags, dict[str, Found]]:
    """What the table says about a component, and what the component says."""
    name = request.param
    known = flags_of(name, LINES[name])
    assert known is not None
    return known, flag_collecting.collect(program(name), name)


def test_the_table_equals_the_flags_of_the_component(pair):
    known, found = pair
    assert {name: (flag.type, flag.deprecated) for name, flag in known.flags.items()} == {
        name: (flag.type, flag.deprecated) for name, flag in found.items()
    }


def test_the_flags_of_other_releases_are_distinguished(pair):
    known, found = pair
    assert len(found) > 50
    assert known.flags.keys() == found.keys()
    for name, lines in known.elsewhere.items():  # a flag may have another type or other words in another release
        assert known.line not in lines
        assert name in found or name not in known.flags


def test_modes_and_plugins_equal_those_of_the_api_server():
    text = subprocess.run([program("kube-apiserver"), "--help"], capture_output=True, text=True, timeout=600, check=True).stdout
    plugins = re.findall(r"Comma-delimited list of admission plugins: ([\w, ]+)\.", text)
    assert len(plugins) == 2
    assert {frozenset(found.split(", ")) for found in plugins} == {argument_values.PLUGINS | argument_values.NEWER_PLUGINS[OWN.line]}
    (modes,) = re.findall(r"--authorization-mode .* Comma-delimited list of: ([\w,]+)\.", text)
    assert sorted(modes.split(",")) == sorted(argument_values.MODES)


REFUSED = {
    "authorization-mode": "Node,Nobody,ABAC,Node",
    "enable-admission-plugins": "Nothing,Priority",
    "disable-admission-plugins": "None,Priority",
    "authorization-webhook-config-file": "hook.yaml",
    "service-cluster-ip-range": "10.1.0.0/16,10.2.0.0/16",
}
COMPLAINTS = (
    '"Nobody" is not a valid mode',
    "ABAC's authorization policy file not passed",
    "has mode specified more than once",
    '"Nothing" is unknown',
    '"None" is unknown',
    "[Priority] in enable-admission-plugins and disable-admission-plugins overlapped",
    "cannot specify --authorization-webhook-config-file without mode Webhook",
    "--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP family",
)


def test_the_api_server_refuses_values_that_we_warn_about(tmp_path):
    flags = [f"--{name}={value}" for name, value in REFUSED.items()]
    argv = [program("kube-apiserver"), "--etcd-servers=http://127.0.0.1:1", f"--cert-dir={tmp_path}", *flags]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    complaints = done.stderr.replace("\\", "")
    assert [text for text in COMPLAINTS if text not in complaints] == []
    given = [Arg(name=name, value=value) for name, value in REFUSED.items()]
    warned = [*argument_values.problems(argument_values.Arguments.of("kube-apiserver", OWN.line, given))]
    assert len(warned) == len(COMPLAINTS) + 1  # kubeadm's, for modes that are not the default
