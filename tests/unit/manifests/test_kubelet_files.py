"""The kubelet's files: flags and their order, Go's quoting, the machine's own part of the configuration."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifest_cases import configuration_of

from kubewright.apis.kubeadm.types import Arg
from kubewright.apis.machine import Detected, Layout
from kubewright.base import yaml
from kubewright.base.records import replace
from kubewright.manifests import kubelet

NODE1 = Detected(host_name="node1")


def with_node(*, gates=None, **settings: object):
    configuration = configuration_of("ipv4-minimal")
    node = replace(configuration.init.node_registration, **settings)
    cluster = replace(configuration.cluster, feature_gates=gates or {})
    return replace(configuration, init=replace(configuration.init, node_registration=node), cluster=cluster)


def test_the_host_name_is_overridden_only_if_the_node_has_another():
    assert kubelet.arguments(with_node(), NODE1) == []
    assert kubelet.arguments(with_node(), Detected(host_name=" NODE1 ")) == []
    assert kubelet.arguments(with_node(), Detected(host_name="other")) == ["--hostname-override=node1"]


def test_flags_of_the_user_come_last_and_replace_ours():
    extra = (Arg(name="v", value="4"), Arg(name="hostname-override", value="x"), Arg(name="v", value="5"))
    found = kubelet.arguments(with_node(kubelet_extra_args=extra), Detected(host_name="other"))
    assert found == ["--v=4", "--hostname-override=x", "--v=5"]


def test_without_the_feature_gate_the_socket_is_a_flag_and_no_file():
    configuration = with_node(gates={"NodeLocalCRISocket": False})
    written = kubelet.files(configuration, Layout.below(PurePosixPath("/x")), Detected(host_name="other"))
    assert list(written) == [PurePosixPath("/x/kubelet/kubeadm-flags.env"), PurePosixPath("/x/kubelet/config.yaml")]
    expected = "--container-runtime-endpoint=unix:///var/run/containerd/containerd.sock --hostname-override=node1"
    assert written[PurePosixPath("/x/kubelet/kubeadm-flags.env")] == f'KUBELET_KUBEADM_ARGS="{expected}"\n'
    assert yaml.load(written[PurePosixPath("/x/kubelet/config.yaml")])["containerRuntimeEndpoint"] == ""


def test_the_resolver_of_systemd_is_written_for_this_machine_only():
    configuration = with_node()
    found = kubelet.config(configuration, Detected(host_name="node1", systemd_resolved=True))
    assert found["resolvConf"] == "/run/systemd/resolve/resolv.conf"
    assert "resolvConf" not in kubelet.config(configuration, NODE1)
    assert "resolvConf" not in configuration.kubelet.document


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("", '""'),
        ("plain é text", '"plain é text"'),
        ('say "hi" \\', '"say \\"hi\\" \\\\"'),
        ("\a\b\f\n\r\t\v", '"\\a\\b\\f\\n\\r\\t\\v"'),
        ("\x00\x1b\x7f", '"\\x00\\x1b\\x7f"'),
        ("\u0085\u00a0\u2028\ufeff", '"\\u0085\\u00a0\\u2028\\ufeff"'),
        ("\U0001f600\U000e0001", '"\U0001f600\\U000e0001"'),
    ],
)
def test_texts_are_quoted_as_by_go(text, quoted):
    assert kubelet.go_quoted(text) == quoted


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_quoted_text_is_one_line_and_terminated(text):
    quoted = kubelet.go_quoted(text)
    assert len(quoted.splitlines()) == 1
    assert yaml.load(quoted) == text
