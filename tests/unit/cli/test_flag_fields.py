"""Each flag of a command that changes a machine sets a field of the command's options, or is read by its handler."""

from __future__ import annotations

import pytest

from kubewright.agent.service.leave import LeaveOptions
from kubewright.apis.kubeadm.node_types import UpgradeApply, UpgradeDiff, UpgradeNode, UpgradePlan
from kubewright.apis.kubeadm.overrides import InitOverrides
from kubewright.base.errors import DocumentError, UsageError
from kubewright.base.records import fields
from kubewright.cli.handlers.hub.clusters import ClusterOptions
from kubewright.cli.handlers.hub.importing import ImportOptions
from kubewright.cli.handlers.hub.state import JournalOptions
from kubewright.cli.handlers.hub.stores import StateOptions
from kubewright.cli.handlers.hub.tokens import TokenOptions
from kubewright.cli.handlers.hub.vpn import VPNOptions
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.parser import parse
from kubewright.cli.rows import commands
from kubewright.cli.rows.model import LEVEL, MODULES, PAIRS, Command
from kubewright.enrollment.node.leaving import NodeLeaveOptions
from kubewright.enrollment.node.request import NodeJoinOptions
from kubewright.enrollment.node.rotating import NodeRotateOptions
from kubewright.lifecycle.certs.renew import RenewOptions
from kubewright.lifecycle.certs.signing_requests import RequestOptions
from kubewright.lifecycle.init.request import InitOptions
from kubewright.lifecycle.join.request import JoinFlags, JoinOptions
from kubewright.lifecycle.reset.request import ResetFlags, ResetOptions

RECORDS = {
    "init": (InitOptions, InitOverrides),
    "join": (JoinOptions, JoinFlags),
    "reset": (ResetOptions, ResetFlags),
    "upgrade apply": (UpgradeApply,),
    "upgrade node": (UpgradeNode,),
    "upgrade plan": (UpgradePlan,),
    "upgrade diff": (UpgradeDiff,),
    "agent leave": (LeaveOptions,),
    "certs renew": (RenewOptions,),
    "certs generate-csr": (RequestOptions,),
    "hub run": (StateOptions, JournalOptions),
    "hub cluster add": (StateOptions, ClusterOptions, VPNOptions),
    "hub cluster list": (StateOptions,),
    "hub import": (StateOptions, ImportOptions),
    "hub token create": (StateOptions, TokenOptions),
    "node join": (NodeJoinOptions,),
    "node leave": (NodeLeaveOptions,),
    "node rotate-vpn-key": (NodeRotateOptions,),
}
HANDLED = {
    "init": "apiserver-extra-args config controller-manager-extra-args output plan print-manifest scheduler-extra-args",
    "join": "config output plan",
    "reset": "config output plan",
    "upgrade apply": "config drain keep-changes kubeconfig kubelet output plan skip-dead yes",
    "upgrade node": "config drain keep-changes kubeconfig kubelet output plan skip-dead",
    "upgrade plan": "allow-missing-template-keys config kubeconfig output show-managed-fields",
    "upgrade diff": "config kubeconfig output",
    "agent leave": "output plan",
    "certs renew": "cert-dir config output plan",
    "certs generate-csr": "cert-dir config output plan",
    "hub run": "authentication-kubeconfig authorization-kubeconfig bind-address config leader-elect leader-elect-lease-duration"
    " leader-elect-renew-deadline leader-elect-retry-period secure-port tls-cert-file tls-private-key-file",
    "hub cluster add": "config output",
    "hub cluster list": "config output",
    "hub import": "config output",
    "hub token create": "config output",
    "node join": "apiserver-ca-cert-file output plan",
    "node leave": "drain-timeout output plan",
    "node rotate-vpn-key": "output plan",
}
"""Flags that set no field by themselves: the operation's mode, its output, and files that the handler reads."""


@pytest.mark.parametrize("path", RECORDS)
def test_each_flag_sets_one_field_or_is_read_by_the_handler(path):
    rows = [row for row in commands.TABLE.every() if row.path == path or row.path.startswith(f"{path} ")]
    flags = {flag.name: flag for row in rows for flag in row.flags}
    settable = [one.name for record in RECORDS[path] for one in fields(record)]
    assert sorted(name for name, flag in flags.items() if flag.sets not in settable) == HANDLED[path].split()
    found = [flag.sets for flag in flags.values() if flag.sets in settable]
    assert len(found) == len(set(found)), "no two flags set the same field"
    assert [settable.count(name) for name in found] == [1] * len(found), "no field is in two records"


def test_every_form_of_a_flag_has_a_reader():
    found = {flag.form for row in commands.TABLE.every() for flag in row.flags}
    assert found - {LEVEL, MODULES, PAIRS} <= inputs.FORMS


def test_a_handler_can_override_a_field():
    parsed = parse(["node", "leave", "--drain"], program="kubewright")
    assert inputs.record(parsed, NodeLeaveOptions, drain=5.0) == NodeLeaveOptions(drain=5.0)


def test_records_of_commands_with_a_configuration_file_are_complete_without_any_flag():
    parsed = parse(["hub", "cluster", "add", "a", "--vpn-mtu=1380", "--allow-ranges=10.0.0.0/8"], program="kubewright")
    options = inputs.complete(parsed, ClusterOptions)
    assert (options.service_subnet, options.ranges, options.pod_subnets, options.client_ca) == ("10.96.0.0/12", ("10.0.0.0/8",), (), "")
    assert (options.kept.seconds, options.kubelet_config) == (3600, {})
    assert inputs.complete(parsed, VPNOptions).vpn_mtu == 1380


def test_a_file_without_fields_is_refused_with_an_example(tmp_path):
    file = tmp_path / "kubelet.yaml"
    file.write_text("- failCgroupV1\n")
    parsed = parse(["hub", "cluster", "add", "a", f"--kubelet-config={file}"], program="kubewright")
    with pytest.raises(DocumentError) as caught:
        inputs.complete(parsed, ClusterOptions)
    assert caught.value.what == f"{file} contains no fields"
    assert caught.value.remedy == "write fields of a KubeletConfiguration, such as failCgroupV1: false"


def test_an_invalid_version_is_refused_with_what_is_used_without_one():
    parsed = parse(["hub", "cluster", "add", "a", "--kubernetes-version=newest"], program="kubewright")
    with pytest.raises(UsageError, match="--kubernetes-version") as caught:
        inputs.complete(parsed, ClusterOptions)
    assert caught.value.remedy == "write it like v1.36.3; without it, the API server's version is used"


def test_examples_are_whole_lines():
    rows = [row for row in commands.TABLE.every() if row.examples]
    assert len(rows) > 20
    assert [(row.path, one) for row in rows for one in row.examples if row.path not in one.replace("kubewright ", "")] == []


def test_one_text_is_refused_where_a_tuple_of_examples_is_meant():
    with pytest.raises(TypeError, match="the examples of up are one text"):
        Command("up", "Start a cluster", examples="up --nodes 3")
