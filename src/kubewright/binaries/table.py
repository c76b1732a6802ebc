"""The table of programs, how each is obtained, and the values that all sources share.

There is a row per program, and a row per family of programs with a common version. To add a program, add a row here and
a `tool` line to its module's go.mod.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from kubewright.base.errors import BinariesError, HostError, UsageError
from kubewright.base.records import dataclass, shallow
from kubewright.base.versions import Version, release_for

PACKAGE_STAMPS: Final = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
GITHUB: Final = "https://github.com"


class Tolerance(enum.Enum):
    """How far the version of a program in the user's own directory may differ from the wanted one."""

    EXACT = "exactly"
    LINE = "of the same minor release as"
    ANY = "any, wanted"


@dataclass(frozen=True, kw_only=True)
class Family:
    """Programs that are released together.

    In `download`, `checksum` and `stamps`, `{version}` stands for `v1.36.3`, `{number}` for `1.36.3`, `{major}` and
    `{minor}` for its parts, `{arch}` for Go's name of the architecture, `{name}` for the program.
    """

    name: str
    module: str
    """The Go module whose version in go.mod is the family's; its directory is `modules/NAME-1.36`."""
    version: Callable[[Version], Version]
    """The family's version for a version of Kubernetes."""
    download: str = ""
    """Address at the primary host, '' if the release has no files.

    A mirror has the same host and path below its own address.
    """
    checksum: str = ""
    """Address of the checksum file: a bare SHA-256, or lines of `sha256sum`."""
    reports: str = ""
    """The version that its programs report, if it differs from the module's."""
    stamps: tuple[tuple[str, str], ...] = ()
    """Go string variables that the linker sets, and their values."""
    cgo: bool = False
    tags: tuple[str, ...] = ()
    tolerance: Tolerance = Tolerance.ANY


@dataclass(frozen=True, kw_only=True)
class Program:
    """One program.

    `built_as` is its name for `go build`, `member` its path inside the downloaded archive ('' without an archive).
    """

    name: str
    family: Family
    package: str
    built_as: str = ""
    member: str = ""
    default: bool = False
    """Whether `up` and `binaries fetch` use it by default."""
    version_arguments: tuple[str, ...] = ("--version",)

    @property
    def output(self) -> str:
        """The file name that `go build` gives it."""
        return self.built_as or self.name


def fixed(text: str) -> Callable[[Version], Version]:
    """Return a rule that gives every Kubernetes version the same version."""
    version = Version.parse(text)
    return lambda _kubernetes: version


KUBERNETES: Final = Family(
    name="kubernetes",
    module="k8s.io/kubernetes",
    version=lambda kubernetes: kubernetes,
    download="https://dl.k8s.io/release/{version}/bin/linux/{arch}/{name}",
    checksum="https://dl.k8s.io/release/{version}/bin/linux/{arch}/{name}.sha256",
    stamps=tuple(
        (f"{package}.{variable}", value)
        for package in PACKAGE_STAMPS
        for variable, value in (("gitVersion", "{version}"), ("gitMajor", "{major}"), ("gitMinor", "{minor}"), ("gitTreeState", "clean"))
    ),
    tolerance=Tolerance.EXACT,
)
ETCD: Final = Family(
    name="etcd",
    module="go.etcd.io/etcd/server/v3",
    version=lambda kubernetes: Version.parse(release_for(kubernetes).etcd_program),
    download=GITHUB + "/etcd-io/etcd/releases/download/{version}/etcd-{version}-linux-{arch}.tar.gz",
    checksum=GITHUB + "/etcd-io/etcd/releases/download/{version}/SHA256SUMS",
    tolerance=Tolerance.LINE,
)
COREDNS: Final = Family(
    name="coredns",
    module="github.com/coredns/coredns",
    version=lambda kubernetes: Version.parse(release_for(kubernetes).coredns_tag),
    download=GITHUB + "/coredns/coredns/releases/download/{version}/coredns_{number}_linux_{arch}.tgz",
    checksum=GITHUB + "/coredns/coredns/releases/download/{version}/coredns_{number}_linux_{arch}.tgz.sha256",
)
CONTAINERD: Final = Family(
    name="containerd",
    module="github.com/containerd/containerd/v2",
    version=fixed("v2.2.1"),
    download=GITHUB + "/containerd/containerd/releases/download/{version}/containerd-static-{number}-linux-{arch}.tar.gz",
    checksum=GITHUB + "/containerd/containerd/releases/download/{version}/containerd-static-{number}-linux-{arch}.tar.gz.sha256sum",
    stamps=(("github.com/containerd/containerd/v2/version.Version", "{version}"),),
)
RUNC: Final = Family(
    name="runc",
    module="github.com/opencontainers/runc",
    version=fixed("v1.5.2"),
    download=GITHUB + "/opencontainers/runc/releases/download/{version}/runc.{arch}",
    checksum=GITHUB + "/opencontainers/runc/releases/download/{version}/runc.sha256sum",
    stamps=(("main.version", "{number}"),),
    cgo=True,  # libseccomp is a C library
    tags=("seccomp",),
)
CNI: Final = Family(
    name="cni",
    module="github.com/containernetworking/plugins",
    version=fixed("v1.9.0"),
    download=GITHUB + "/containernetworking/plugins/releases/download/{version}/cni-plugins-linux-{arch}-{version}.tgz",
    checksum=GITHUB + "/containernetworking/plugins/releases/download/{version}/cni-plugins-linux-{arch}-{version}.tgz.sha256",
    stamps=(("github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion", "{version}"),),
)
WIREGUARD: Final = Family(
    name="wireguard",
    module="golang.zx2c4.com/wireguard",
    version=fixed("v0.0.0-20260522210424-ecfc5a8d5446"),
    reports="v0.0.20250522",
)

FAMILIES: Final = (ETCD, KUBERNETES, COREDNS, CONTAINERD, RUNC, CNI, WIREGUARD)
"""In the order in which they are fetched and built."""


def _kubernetes(name: str, *, default: bool = False, version_arguments: tuple[str, ...] = ("--version",)) -> Program:
    package = f"k8s.io/kubernetes/cmd/{name}"
    return Program(name=name, family=KUBERNETES, package=package, default=default, version_arguments=version_arguments)


def _etcd(
    name: str, package: str, *, built_as: str = "", default: bool = False, version_arguments: tuple[str, ...] = ("--version",)
) -> Program:
    return Program(
        name=name,
        family=ETCD,
        package=f"go.etcd.io/etcd/{package}",
        built_as=built_as,
        member=f"etcd-{{version}}-linux-{{arch}}/{name}",
        default=default,
        version_arguments=version_arguments,
    )


def _containerd(name: str, *, version_arguments: tuple[str, ...] = ("--version",)) -> Program:
    package = f"github.com/containerd/containerd/v2/cmd/{name}"
    return Program(name=name, family=CONTAINERD, package=package, member=f"bin/{name}", version_arguments=version_arguments)


def _cni(name: str, kind: str) -> Program:
    return Program(
        name=name,
        family=CNI,
        package=f"github.com/containernetworking/plugins/plugins/{kind}/{name}",
        member=f"./{name}",
        version_arguments=(),  # prints its version if CNI_COMMAND is not set
    )


PROGRAMS: Final[dict[str, Program]] = {
    program.name: program
    for program in (
        _etcd("etcd", "server/v3", built_as="server", default=True),
        _kubernetes("kube-apiserver", default=True),  # the longest build first: it includes most packages of the others
        _kubernetes("kube-controller-manager", default=True),
        _kubernetes("kube-scheduler", default=True),
        _kubernetes("kubectl", default=True, version_arguments=("version", "--client")),
        _kubernetes("kubeadm", version_arguments=("version", "-o", "short")),
        _kubernetes("kubelet"),
        _kubernetes("kube-proxy"),
        _etcd("etcdctl", "etcdctl/v3", version_arguments=("version",)),
        _etcd("etcdutl", "etcdutl/v3", version_arguments=("version",)),
        Program(name="coredns", family=COREDNS, package="github.com/coredns/coredns", member="coredns", version_arguments=("-version",)),
        _containerd("containerd"),
        _containerd("containerd-shim-runc-v2", version_arguments=("-v",)),
        _containerd("ctr"),
        Program(name="runc", family=RUNC, package="github.com/opencontainers/runc"),
        _cni("bridge", "main"),
        _cni("loopback", "main"),
        _cni("host-local", "ipam"),
        _cni("portmap", "meta"),
        Program(name="wireguard-go", family=WIREGUARD, package="golang.zx2c4.com/wireguard", built_as="wireguard"),
    )
}

DEFAULT: Final = tuple(program.name for program in PROGRAMS.values() if program.default)
"""The programs of a local cluster."""


def programs(names: Iterable[str]) -> tuple[Program, ...]:
    """Return the rows of some names, each once, in the order of the table.

    Raises UsageError that lists the unknown and the available ones.
    """
    wanted = set(names)
    if unknown := sorted(wanted - PROGRAMS.keys()):
        raise UsageError(f"no such program: {', '.join(unknown)}", remedy=f"one of {', '.join(PROGRAMS)}")
    return tuple(row for name, row in PROGRAMS.items() if name in wanted)


ARCHITECTURES: Final = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
"""The architecture names of `uname -m`, and those of Go and the release files."""


@dataclass(frozen=True, kw_only=True)
class Binary:
    """A usable program.

    `version` is its own (`v3.6.8` for etcd), `source` says where it came from, `sha256` is that of the file when it was
    last read.
    """

    name: str
    path: Path
    version: str
    source: str
    sha256: str
    size: int

    def as_map(self) -> dict[str, object]:
        """Return the form that `-o json` prints."""
        return {**shallow(self), "path": str(self.path)}


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a source does not have a program, and the remedy."""

    source: str
    reason: str
    remedy: str = ""

    @classmethod
    def of(cls, source: str, error: BinariesError) -> Refusal:
        """Convert the error of a source into its refusal."""
        return cls(source=source, reason=str(error), remedy=error.remedy)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A program in one version for one architecture."""

    program: Program
    version: Version
    kubernetes: Version
    architecture: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} linux/{self.architecture}"

    @property
    def name(self) -> str:
        return self.program.name

    def fill(self, template: str) -> str:
        """Insert version, architecture and name into a template of the table."""
        return fill(template, version=self.version, architecture=self.architecture, name=self.name)


def fill(template: str, *, version: Version, architecture: str = "", name: str = "") -> str:
    """Insert a version, an architecture and a name into a template of the table."""
    return template.format(
        version=version,
        number=str(version).removeprefix("v"),
        major=version.major,
        minor=version.minor,
        arch=architecture,
        name=name,
    )


def want(program: Program, *, kubernetes: Version, architecture: str) -> Wanted:
    """Return the version of a program that belongs to a version of Kubernetes."""
    return Wanted(program=program, version=program.family.version(kubernetes), kubernetes=kubernetes, architecture=architecture)


def native_architecture() -> str:
    """Return Go's name for this machine's architecture. Raises HostError if no release supports it."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise HostError(f"this machine is {machine}", remedy="kubewright works on linux/amd64 and linux/arm64")
    return ARCHITECTURES[machine]
