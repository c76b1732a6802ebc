"""Facts about a machine."""

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.apis.machine import Layout
from kubewright.base.errors import HostError
from kubewright.host.facts import CA_DIRECTORIES, CRI_SOCKETS, MachineInfo, count_cores, detect, gather, machine, os_image
from kubewright.host.real import RealHost
from kubewright.host.states import FileState, Kind


class Files:
    """Files in memory; contents that are errors are raised."""

    def __init__(self, contents, kinds=None) -> None:
        self.contents = contents
        self.kinds = kinds or {}

    def read(self, path):
        content = self.contents.get(str(path))
        if isinstance(content, Exception):
            raise content
        return content

    def state(self, path):
        kind = self.kinds.get(str(path))
        if isinstance(kind, Exception):
            raise kind
        return FileState(kind=kind, mode=0o755) if kind else None

    def entries(self, path):
        names = {name.removeprefix(f"{path}/").split("/")[0] for name in self.contents if name.startswith(f"{path}/")}
        return sorted(PurePosixPath(path) / name for name in names)


class Network:
    """A network of reference data. `alive` are the sockets at which a program listens."""

    def __init__(self, *alive: str) -> None:
        self.alive = alive

    def accepts(self, path):
        return str(path) in self.alive

    def default_address(self, *, family):
        return {4: "10.98.0.11", 6: "fd00::98:11"}[family]

    def loopback_global(self):
        return None


FULL = {
    "/proc/sys/kernel/hostname": b"node1\n",
    "/proc/meminfo": b"MemTotal:        2048 kB\nMemFree:  1 kB\nSwapTotal:        1024 kB\n",
    "/sys/devices/system/cpu/online": b"0-3,6\n",
    "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": b"5\n",
    "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": b"0\n",
    "/etc/machine-id": b"0123\n",
    "/sys/class/dmi/id/product_uuid": b"4567\n",
    "/proc/sys/kernel/random/boot_id": b"89ab\n",
    "/proc/sys/kernel/osrelease": b"6.1.0\n",
    "/etc/os-release": b'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12"\n',
}


def test_a_machine_is_described():
    assert machine(Files(FULL), architecture="amd64") == MachineInfo(
        cores=5,
        memory=2048 * 1024,
        swap=1024 * 1024,
        huge_pages={2 * 1024 * 1024: 5, 1024 * 1024 * 1024: 0},
        machine_id="0123",
        system_uuid="4567",
        boot_id="89ab",
        kernel="6.1.0",
        os_image="Debian GNU/Linux 12",
        architecture="amd64",
    )


def test_unreadable_facts_are_empty():
    hidden = FULL | {"/sys/class/dmi/id/product_uuid": HostError("for root only")}
    assert machine(Files(hidden), architecture="amd64").system_uuid == "0123"
    bare = machine(Files({}), architecture="arm64")
    assert (bare.memory, bare.machine_id, bare.kernel, bare.os_image, bare.huge_pages) == (0, "", "Unknown", "Unknown", {})
    assert bare.cores > 0


@pytest.mark.parametrize(("uname", "go"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("riscv64", "riscv64")])
def test_architectures_have_the_names_of_go(uname, go):
    assert gather(Files(FULL), Network(), environment={}, architecture=uname).machine.architecture == go


def test_the_values_of_defaulting_are_detected():
    kinds = {
        "/var/run/crio/crio.sock": Kind.SOCKET,
        "/var/run/containerd/containerd.sock": Kind.FILE,
        "/usr/share/ca-certificates": Kind.DIRECTORY,
        "/etc/ca-certificates": Kind.LINK,
        "/etc/pki/ca-trust": Kind.FILE,
        "/run/systemd/units/invocation:systemd-resolved.service": Kind.LINK,
    }
    environment = {"HTTPS_PROXY": "http://p", "no_proxy": "x", "http_proxy": "", "PROXY": "y"}
    found = detect(Files(FULL, kinds), Network(), environment=environment)
    assert found.host_name == "node1"
    assert (found.default_ipv4, found.default_ipv6, found.loopback_global) == ("10.98.0.11", "fd00::98:11", None)
    assert found.cri_sockets == ("unix:///var/run/crio/crio.sock",)
    assert found.ca_directories == ("/etc/ca-certificates", "/usr/share/ca-certificates")
    assert found.systemd_resolved is True
    assert found.proxy_environment == {"HTTPS_PROXY": "http://p", "no_proxy": "x"}


def test_facts_that_a_user_may_not_read_are_missing():
    hidden = dict.fromkeys([socket.removeprefix("unix://") for socket in CRI_SOCKETS], HostError("not allowed"))
    assert detect(Files({}, hidden), Network(), environment={}).cri_sockets == ()


def test_an_empty_machine_has_nothing_to_detect():
    found = detect(Files({}), Network(), environment={})
    assert (found.cri_sockets, found.ca_directories, found.systemd_resolved, found.proxy_environment) == ((), (), False, {})


@pytest.mark.parametrize("socket", CRI_SOCKETS)
def test_every_known_runtime_is_found(socket):
    kinds = {socket.removeprefix("unix://"): Kind.SOCKET}
    assert detect(Files({}, kinds), Network(), environment={}).cri_sockets == (socket,)


@pytest.mark.parametrize("alive", [(0,), (1, 2), ()])
def test_of_several_runtimes_those_count_that_listen(alive):
    places = [socket.removeprefix("unix://") for socket in CRI_SOCKETS]
    found = detect(Files({}, dict.fromkeys(places, Kind.SOCKET)), Network(*(places[number] for number in alive)), environment={})
    assert found.cri_sockets == tuple(CRI_SOCKETS[number] for number in alive)


@pytest.mark.parametrize("directory", CA_DIRECTORIES)
def test_every_ca_directory_is_found(directory):
    assert detect(Files({}, {directory: Kind.DIRECTORY}), Network(), environment={}).ca_directories == (directory,)


@pytest.mark.parametrize(
    ("release", "image"),
    [
        (None, "Unknown"),
        ("", "Linux"),
        ("NAME=x\n", "Linux"),
        ("PRETTY_NAME='A b'\n", "'A b'"),
        ('  PRETTY_NAME="A b "\n', "A b "),
        ('PRETTY_NAME=""\n', ""),
        ("NAME=x\nPRETTY_NAME=Plain\nPRETTY_NAME=Second\n", "Plain"),
    ],
)
def test_the_name_of_the_system_is_read(release, image):
    assert os_image(release) == image


def test_the_first_file_that_can_be_read_counts_even_if_it_is_empty():
    files = {"/etc/machine-id": b"", "/var/lib/dbus/machine-id": b"1", "/etc/os-release": b"", "/usr/lib/os-release": b"PRETTY_NAME=x\n"}
    found = machine(Files(files), architecture="amd64")
    assert (found.machine_id, found.system_uuid, found.os_image) == ("", "", "Linux")


@given(cores=st.sets(st.integers(0, 300)))
def test_lists_of_processors_are_counted(cores):
    ranges, text = [], sorted(cores)
    for core in text:
        if ranges and ranges[-1][1] == core - 1:
            ranges[-1][1] = core
        else:
            ranges.append([core, core])
    listed = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
    assert count_cores(listed + "\n") == len(cores)


def test_this_machine_is_described():
    facts = RealHost(layout=Layout(), environment={}).facts
    assert facts.machine.memory > 0
    assert facts.machine.boot_id
    assert facts.detected.host_name
    assert facts.detected.proxy_environment == {}
