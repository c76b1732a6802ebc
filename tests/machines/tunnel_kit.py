"""The VPN of a bed: the interfaces, the packets on the wire, and a pod network over the tunnel like flannel's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from kubewright.machines.machine import Machine

UDP = "udp 51820"
_CAPTURE = """\
import json, select, socket, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
wire.bind(("eth0", 0))
print("ready", flush=True)
found = {}
while not select.select([sys.stdin], [], [], 0)[0]:
    if not select.select([wire], [], [], 0.05)[0]:
        continue
    frame = wire.recv(65536)
    if frame[12:14] != b"\\x08\\x00":
        continue
    packet = frame[14:]
    ports = packet[(packet[0] & 15) * 4:][:4]
    kinds = {6: "tcp", 17: "udp"}
    ends = {int.from_bytes(ports[:2]), int.from_bytes(ports[2:])}
    kind = f"{kinds[packet[9]]} {51820 if 51820 in ends else min(ends)}" if packet[9] in kinds else f"protocol {packet[9]}"
    hosts = " ".join(sorted((socket.inet_ntoa(packet[12:16]), socket.inet_ntoa(packet[16:20]))))
    found[f"{hosts} {kind}"] = found.get(f"{hosts} {kind}", 0) + 1
print(json.dumps(found))
"""


@contextmanager
def capture(machine: Machine) -> Iterator[dict[str, int]]:
    """Capture the packets on a machine's wire as `ADDRESS ADDRESS KIND PORT`. They are available after the block."""
    found: dict[str, int] = {}
    process = machine.start("python3", "-c", _CAPTURE, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            assert process.stdout.readline() == b"ready\n"
            yield found
            process.stdin.write(b"stop\n")
            process.stdin.flush()
            found.update(json.loads(process.stdout.readline()))
        finally:
            process.kill()


def peers(machine: Machine, interface: str) -> dict[str, str]:
    """Return the peers of an interface: public key to networks; none if there is no interface."""
    told = machine.run("wg", "show", interface, "allowed-ips", check=False)
    rows = [line.split("\t") for line in told.out.splitlines()] if told.code == 0 else []
    return {key: ",".join(networks.split()) for key, networks in rows}


_SEARCH = """\
import pathlib, subprocess, sys
secret = sys.stdin.buffer.read().strip()
journal = subprocess.run(["journalctl", "--no-pager", "-o", "cat"], capture_output=True).stdout
found = ["the journal"] * (secret in journal)
places = [*pathlib.Path("/proc").glob("[0-9]*/cmdline"), *pathlib.Path("/proc").glob("[0-9]*/environ")]
for path in (*places, *(path for top in ("/var/lib/kubewright", "/etc/systemd/system", "/tmp") for path in pathlib.Path(top).rglob("*"))):
    try:
        found += [str(path)] * (path.is_file() and secret in path.read_bytes())
    except OSError:
        pass
print(len(places), *found)
"""


def exposed(machine: Machine, secret: str) -> list[str]:
    """Return where a secret is found: arguments, environments, the journal, kubewright's files, units."""
    assert len(secret) == 44
    looked_at, *found = machine.run("python3", "-c", _SEARCH, data=secret).out.split()
    assert int(looked_at) >= 8
    return found


def addresses(machine: Machine, interface: str) -> list[str]:
    told = machine.run("ip", "-json", "address", "show", "dev", interface, check=False)
    rows = json.loads(told.out) if told.code == 0 else []
    return [f"{one['local']}/{one['prefixlen']}" for row in rows for one in row["addr_info"] if one.get("scope") != "link"]


def carry_pods(machine: Machine, number: int, own: str, other: str, *, behind: str) -> None:
    """Make pods of another node reachable by a VXLAN between the nodes' addresses, as flannel does."""
    machine.run("ip", "link", "add", "vx0", "type", "vxlan", "id", "7", "dstport", "4789", "local", own, "nolearning")
    machine.run("bridge", "fdb", "append", "00:00:00:00:00:00", "dev", "vx0", "dst", other)
    machine.run("ip", "address", "add", f"192.168.77.{number}/24", "dev", "vx0")
    machine.run("ip", "link", "set", "vx0", "mtu", "1370", "up")
    machine.run("ip", "route", "replace", behind, "via", f"192.168.77.{5 - number}")
