"""The certificate table: its rows, in order, and what is derived from them."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest
from pki_cases import CASES, addresses_of

from kubewright.pki import specs, table
from kubewright.pki.table import CERTIFICATES, KUBECONFIGS, Authority, Endpoint, Leaf

# name, files, signer, common name, usages (kubeadm v1.36: phases/certs/certlist.go)
ROWS = [
    ("ca", ("ca.crt", "ca.key"), "", "kubernetes", ()),
    ("apiserver", ("apiserver.crt", "apiserver.key"), "ca", "kube-apiserver", ("serverAuth",)),
    (
        "apiserver-kubelet-client",
        ("apiserver-kubelet-client.crt", "apiserver-kubelet-client.key"),
        "ca",
        "kube-apiserver-kubelet-client",
        ("clientAuth",),
    ),
    ("front-proxy-ca", ("front-proxy-ca.crt", "front-proxy-ca.key"), "", "front-proxy-ca", ()),
    ("front-proxy-client", ("front-proxy-client.crt", "front-proxy-client.key"), "front-proxy-ca", "front-proxy-client", ("clientAuth",)),
    ("etcd-ca", ("etcd/ca.crt", "etcd/ca.key"), "", "etcd-ca", ()),
    ("etcd-server", ("etcd/server.crt", "etcd/server.key"), "etcd-ca", "node1", ("serverAuth", "clientAuth")),
    ("etcd-peer", ("etcd/peer.crt", "etcd/peer.key"), "etcd-ca", "node1", ("serverAuth", "clientAuth")),
    (
        "etcd-healthcheck-client",
        ("etcd/healthcheck-client.crt", "etcd/healthcheck-client.key"),
        "etcd-ca",
        "kube-etcd-healthcheck-client",
        ("clientAuth",),
    ),
    (
        "apiserver-etcd-client",
        ("apiserver-etcd-client.crt", "apiserver-etcd-client.key"),
        "etcd-ca",
        "kube-apiserver-etcd-client",
        ("clientAuth",),
    ),
]


def test_every_row_of_certificates_equals_that_of_kubeadm():
    found = [
        (row.name, row.files, getattr(row, "signer", ""), row.common_name.format(node="node1"), getattr(row, "usages", ()))
        for row in CERTIFICATES
        if isinstance(row, (Authority, Leaf))
    ]

    assert found == ROWS
    assert [row.files for row in CERTIFICATES if not isinstance(row, (Authority, Leaf))] == [("sa.key", "sa.pub")]


def test_every_row_of_kubeconfigs_equals_that_of_kubeadm():
    found = [(row.file, row.common_name, row.organizations, row.server, row.on_join, bool(row.long_name)) for row in KUBECONFIGS]

    assert found == [
        ("admin.conf", "kubernetes-admin", ("kubeadm:cluster-admins",), Endpoint.CONTROL_PLANE, True, True),
        ("super-admin.conf", "kubernetes-super-admin", ("system:masters",), Endpoint.CONTROL_PLANE, False, True),
        ("kubelet.conf", "system:node:{node}", ("system:nodes",), Endpoint.LOCAL, False, False),
        ("controller-manager.conf", "system:kube-controller-manager", (), Endpoint.LOCAL, True, True),
        ("scheduler.conf", "system:kube-scheduler", (), Endpoint.LOCAL, True, True),
    ]


def test_every_row_has_its_own_summary_and_the_long_name_of_kubeadm():
    assert len({row.summary for row in (*CERTIFICATES, *KUBECONFIGS)}) == 16
    names = {row.name: row.long_name for row in CERTIFICATES if isinstance(row, Leaf)}
    assert len(names) == 7
    assert names["apiserver"] == "certificate for serving the Kubernetes API"
    assert names["apiserver-etcd-client"] == "certificate the apiserver uses to access etcd"


def test_cas_come_before_the_certificates_that_they_sign():
    names = [row.name for row in CERTIFICATES]

    signed = [(names.index(row.signer), names.index(row.name)) for row in CERTIFICATES if isinstance(row, Leaf)]

    assert len(signed) == 7
    assert all(first < second for first, second in signed)


def test_external_etcd_needs_no_etcd_certificates():
    found = [row.name for row in table.rows_for(CASES["external-etcd"])]

    assert found == ["ca", "apiserver", "apiserver-kubelet-client", "front-proxy-ca", "front-proxy-client", "sa"]


def test_rows_are_found_by_name():
    assert table.row("etcd-peer").base == "etcd/peer"
    assert table.kubeconfig("admin").file == "admin.conf"
    assert table.authority("etcd-ca").base == "etcd/ca"
    with pytest.raises(KeyError):
        table.authority("apiserver")


def test_periods_and_algorithm_come_from_the_configuration():
    config = CASES["custom-paths-sans"]
    found = {spec.name: spec for spec in specs.certificates_for(config, addresses_of(config))}

    assert found["ca"].lifetime == timedelta(hours=17520)
    assert found["apiserver"].lifetime == timedelta(hours=720)
    assert {spec.algorithm for spec in found.values()} == {"RSA-3072"}


@pytest.mark.parametrize(
    ("case", "shared", "local"),
    [
        ("ipv4-minimal", "https://10.98.0.11:6443", "https://10.98.0.11:6443"),
        ("ipv6-only", "https://[fd00:98::11]:6443", "https://[fd00:98::11]:6443"),
        ("dual-stack", "https://cp.example.com:6443", "https://10.98.0.11:6443"),
        ("custom-paths-sans", "https://10.98.0.100:443", "https://10.98.0.11:8443"),
    ],
)
def test_kubeconfigs_name_the_cluster_or_this_machine(case, shared, local):
    config = CASES[case]

    found = {spec.name: spec.server for spec in specs.kubeconfigs_for(config, addresses_of(config))}

    assert found == {"admin": shared, "super-admin": shared, "kubelet": local, "controller-manager": local, "scheduler": local}


def test_the_table_is_cheap_to_import():
    program = (
        "import sys, kubewright.pki.table, kubewright.pki.ensure, kubewright.tokens; "
        "print(*[name for name in ('cryptography', 'msgspec', 'yaml', 'asyncio') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == ""
