"""The tables: every row is available in each way, and agrees with the module directories."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import BinariesError, UsageError
from kubewright.base.versions import RELEASES, Version
from kubewright.binaries import golang, table
from kubewright.binaries.artifacts import artifacts, digest_in
from kubewright.binaries.build import linker_flags
from kubewright.binaries.providing import wanted_programs
from kubewright.binaries.table import FAMILIES, PROGRAMS

EVERYTHING = wanted_programs(PROGRAMS, version="v1.36.3", architecture="arm64")


def test_the_default_is_what_a_local_cluster_needs():
    assert table.DEFAULT == ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    assert len(PROGRAMS) == 20


def test_unknown_programs_are_reported():
    with pytest.raises(UsageError, match="no such program: cri-o, kubeadmin") as caught:
        table.programs(["kubectl", "kubeadmin", "cri-o"])
    assert "kube-apiserver" in caught.value.remedy


def test_names_are_unique_and_in_the_order_of_the_table():
    assert [row.name for row in table.programs(["kubectl", "etcd", "kubectl"])] == ["etcd", "kubectl"]


RELEASED = [one for one in EVERYTHING if one.name != "wireguard-go"]


def test_programs_released_only_as_source_are_not_downloaded():
    assert artifacts(wanted_programs(["wireguard-go"], version="v1.36.3", architecture="amd64")) == []


@pytest.mark.parametrize("one", RELEASED, ids=lambda one: one.name)
def test_every_program_has_an_address_and_a_checksum_at_its_primary_host(one):
    [artifact] = artifacts([one])
    assert artifact.url.startswith(("https://dl.k8s.io/", "https://github.com/"))
    assert artifact.checksum_url.startswith(artifact.url[:20])
    assert "arm64" in artifact.url
    assert not re.search(r"[{}]", artifact.url + artifact.checksum_url)
    assert artifact.is_archive is artifact.url.endswith("gz")


def test_the_addresses_are_those_of_the_releases():
    urls = {artifact.label.split()[0]: (artifact.url, artifact.checksum_url) for artifact in artifacts(EVERYTHING)}
    github = "https://github.com"
    assert urls["kube-apiserver"][0] == "https://dl.k8s.io/release/v1.36.3/bin/linux/arm64/kube-apiserver"
    assert urls["kube-apiserver"][1] == urls["kube-apiserver"][0] + ".sha256"
    assert urls["etcd"] == (
        f"{github}/etcd-io/etcd/releases/download/v3.6.8/etcd-v3.6.8-linux-arm64.tar.gz",
        f"{github}/etcd-io/etcd/releases/download/v3.6.8/SHA256SUMS",
    )
    assert urls["coredns"][0] == f"{github}/coredns/coredns/releases/download/v1.14.2/coredns_1.14.2_linux_arm64.tgz"
    assert urls["containerd"][0] == f"{github}/containerd/containerd/releases/download/v2.2.1/containerd-static-2.2.1-linux-arm64.tar.gz"
    assert urls["runc"] == (
        f"{github}/opencontainers/runc/releases/download/v1.5.2/runc.arm64",
        f"{github}/opencontainers/runc/releases/download/v1.5.2/runc.sha256sum",
    )
    assert urls["cni"][0] == f"{github}/containernetworking/plugins/releases/download/v1.9.0/cni-plugins-linux-arm64-v1.9.0.tgz"
    assert len(urls) == 7 + 5  # Kubernetes' programs one by one, the others as one file per family


def test_a_mirror_has_the_files_below_the_name_of_the_host():
    [artifact] = artifacts(wanted_programs(["kubectl"], version="v1.36.3", architecture="amd64"))
    assert artifact.at("https://m.example/files") == "https://m.example/files/dl.k8s.io/release/v1.36.3/bin/linux/amd64/kubectl"


@pytest.mark.parametrize("one", EVERYTHING, ids=lambda one: one.name)
def test_every_program_is_a_tool_of_a_module_that_pins_its_version(one):
    module = golang.find_module(one.program.family, one.version)
    text = (module.path / "go.mod").read_text()
    tools = re.findall(r"^(?:tool )?\t?(\S+)$", text, re.MULTILINE)
    assert one.program.package in tools
    assert module.go <= (1, 26, 0)
    assert f"{one.program.family.module} {one.version}/go.mod h1:" in (module.path / "go.sum").read_text()


def test_no_module_names_a_place_of_one_machine():
    for path in golang.MODULES.rglob("go.*"):
        text = path.read_text()
        assert "=> /" not in text
        assert "=> ." not in text
        assert "toolchain" not in text
    assert {path.name for path in golang.MODULES.glob("*/*")} == {"go.mod", "go.sum"}


def test_each_minor_release_can_be_built_in_one_version():
    built = [str(module.version) for module in golang.available_modules(table.KUBERNETES)]
    assert built == ["v1.35.4", "v1.36.3", "v1.37.1"]
    assert [Version.parse(text).line for text in built] == list(RELEASES)


def test_a_version_without_a_module_cannot_be_built_and_the_error_names_the_others():
    with pytest.raises(BinariesError, match=r"can be built: v1\.35\.4, v1\.36\.3, v1\.37\.1"):
        golang.find_module(table.KUBERNETES, Version.parse("v1.36.1"))


def test_a_broken_module_directory_does_not_count(tmp_path):
    (tmp_path / "etcd-3.6").mkdir()
    (tmp_path / "etcd-3.7").mkdir()
    (tmp_path / "etcd-3.7" / "go.mod").write_text("module x\n")
    assert golang.available_modules(table.ETCD, root=tmp_path) == []


def test_the_linker_stamps_the_version_into_both_packages():
    flags = linker_flags(table.KUBERNETES, golang.find_module(table.KUBERNETES, Version.parse("v1.36.3")))
    assert flags.startswith("-s -w ")
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        for stamp in ("gitVersion=v1.36.3", "gitMajor=1", "gitMinor=36", "gitTreeState=clean"):
            assert f"-X {package}.{stamp}" in flags
    assert flags.count("-X") == 8


@pytest.mark.parametrize(
    ("family", "stamp"),
    [
        ("containerd", "-X github.com/containerd/containerd/v2/version.Version=v2.2.1"),
        ("runc", "-X main.version=1.5.2"),
        ("cni", "-X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion=v1.9.0"),
        ("etcd", ""),
        ("coredns", ""),
        ("wireguard", ""),
    ],
)
def test_the_other_families_stamp_versions_that_their_sources_lack(family, stamp):
    [row] = [row for row in FAMILIES if row.name == family]
    version = row.version(Version.parse("v1.36.3"))
    assert linker_flags(row, golang.find_module(row, version)) == f"-s -w {stamp}".strip()


def test_only_runc_needs_a_c_compiler():
    assert [(family.name, family.tags) for family in FAMILIES if family.cgo] == [("runc", ("seccomp",))]


DIGEST = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "text",
    [
        DIGEST,
        DIGEST.upper() + "\n",
        f"{DIGEST}  runc.amd64\n",
        f"{DIGEST} *runc.amd64\n",
        f"{DIGEST}  ./release/runc.amd64\n",
        f"{'f' * 64}  runc.arm64\n{DIGEST}  runc.amd64\n{'e' * 64}  runc.amd64.asc\n",
        f"# comment\n\n{DIGEST}  runc.amd64\n",
        f"{DIGEST}  runc.amd64\n{DIGEST}  runc.amd64\n",
    ],
)
def test_a_digest_is_found_in_every_form_of_checksum_file(text):
    assert digest_in(text, file_name="runc.amd64") == DIGEST


@pytest.mark.parametrize(
    "text",
    [
        "",
        DIGEST[:-1],
        DIGEST + "0",
        f"{DIGEST}  runc.amd64.asc\n",
        f"{DIGEST}\n{'f' * 64}\n",
        f"{DIGEST}  runc.amd64\n{'f' * 64}  runc.amd64\n",
        f"{DIGEST} runc.amd64 runc.amd64\n",
    ],
)
def test_a_digest_is_not_guessed(text):
    with pytest.raises(ValueError, match=r"SHA-256 of runc\.amd64"):
        digest_in(text, file_name="runc.amd64")


@given(st.text(max_size=200) | st.lists(st.sampled_from([DIGEST, "  ", "runc.amd64", "\n", "f" * 64, "*"]), max_size=12).map("".join))
def test_any_checksum_file_gives_a_digest_of_it_or_a_refusal(text):
    try:
        found = digest_in(text, file_name="runc.amd64")
    except ValueError:
        return
    assert re.fullmatch("[0-9a-f]{64}", found)
    assert found in text.lower()
