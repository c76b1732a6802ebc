"""Published ports: what users write, what conflicts, and how connections and packets reach a machine."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busy import HANGS
from kubewright.base.errors import HostError, PortInUse, UsageError
from kubewright.base.records import replace
from kubewright.http import loop
from kubewright.local import published, record
from kubewright.local.paths import ClusterPaths
from kubewright.local.published import PublishedPort
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.local.up_options import UpOptions
from kubewright.local.whole import ports
from kubewright.local.whole.services import forwarding
from kubewright.local.whole.services.forwarding import Forwarder, taken
from kubewright.local.whole.services.places import MODULE
from loopback import free_port

CLUSTER = ClusterRecord(name="dev", id="0" * 32, machines=(LocalMachineRecord(name="dev-control-plane", address="172.30.4.11"),))
LISTENER = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); time.sleep(1000)"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("8080:30080", PublishedPort(address="127.0.0.1", port=8080, target=30080)),
        ("5353:30053/udp", PublishedPort(address="127.0.0.1", port=5353, target=30053, protocol="udp")),
        ("0.0.0.0:80:30080/tcp", PublishedPort(address="0.0.0.0", port=80, target=30080)),
        ("[::1]:8080:30080", PublishedPort(address="::1", port=8080, target=30080)),
    ],
)
def test_a_port_is_parsed(text: str, found: PublishedPort) -> None:
    assert published.parse(text) == found


@given(
    port=st.builds(
        PublishedPort,
        address=st.ip_addresses().map(str),
        port=st.integers(1, 65535),
        target=st.integers(1, 65535),
        protocol=st.sampled_from(["tcp", "udp"]),
    )
)
def test_a_port_is_parsed_as_it_is_written(port: PublishedPort) -> None:
    again = published.parse(str(port))
    assert published.parse(str(again)) == again
    assert (again.port, again.target, again.protocol) == (port.port, port.target, port.protocol)


@pytest.mark.parametrize("text", ["", "8080", "a:b", "0:1", "1:65536", "1:2/sctp", "host:80:80", "::1:80:80", "8080:30080 ", "999999:1"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        published.parse(text)


def test_an_address_applies_to_ports_without_one() -> None:
    found = published.parse_all(["80:80", "127.0.0.2:80:80"], address="192.0.2.7")
    assert [port.address for port in found] == ["192.0.2.7", "127.0.0.2"]
    assert published.parse_all(["80:80"]) == (PublishedPort(address="127.0.0.1", port=80, target=80),)
    assert published.parse_all([]) == ()
    with pytest.raises(UsageError, match="no port is given"):
        published.parse_all([], address="192.0.2.7")


def test_a_published_port_is_added_once_and_never_to_another_target() -> None:
    one, other = published.parse("8080:30080"), published.parse("8080:30081")
    both = published.added((one,), (one, published.parse("8080:30080/udp")))
    assert [str(port) for port in both] == ["127.0.0.1:8080:30080/tcp", "127.0.0.1:8080:30080/udp"]
    for conflict in (other, published.parse("0.0.0.0:8080:30080")):
        with pytest.raises(UsageError, match="is published to port 30080 already") as caught:
            published.added((one,), (conflict,))
        assert caught.value.remedy.startswith("choose another port of the host;")


def test_the_same_port_of_other_addresses_families_and_protocols_is_another_port() -> None:
    ports = [published.parse(text) for text in ("127.0.0.1:80:1", "127.0.0.2:80:2", "[::]:80:3", "127.0.0.1:80:4/udp")]
    assert published.added((), ports) == tuple(ports)


def test_a_port_is_removed_by_its_number_protocol_or_whole_text() -> None:
    ports = tuple(published.parse(text) for text in ("80:1", "80:1/udp", "81:2"))
    assert [len(published.without(ports, [text])) for text in ("80", "80/udp", "127.0.0.1:80:1/tcp", "81")] == [1, 2, 2, 2]
    for wrong in ("82", "x", "192.0.2.1:80"):
        with pytest.raises(UsageError):
            published.without(ports, [wrong])


def test_the_record_keeps_ports_and_refuses_broken_ones(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    record.save(replace(CLUSTER, publish=("127.0.0.1:80:30080/tcp",)), path)
    found = record.load(path)
    assert found is not None
    assert found.published == (published.parse("80:30080"),)
    for broken in (("nonsense",), ("80:1", "80:2")):
        record.save(replace(CLUSTER, publish=broken), path)
        with pytest.raises(HostError, match="does not describe a cluster"):
            record.load(path)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(HANGS):
            await test()

    loop.run(within)  # the daemon's loop


async def upper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer with what came in upper case, when the client has said everything."""
    writer.write((await reader.read()).upper())
    writer.close()


def test_a_connection_reaches_the_machine_that_accepts_it() -> None:
    async def test() -> None:
        server = await asyncio.start_server(upper, "127.0.0.2", 0)  # 127.0.0.3 refuses
        target = server.sockets[0].getsockname()[1]
        port = PublishedPort(address="127.0.0.1", port=free_port(), target=target)
        forwarder = Forwarder(lambda: ["127.0.0.3", "127.0.0.2"])
        await forwarder.publish([port])
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
            writer.write(b"x" * 300_000)
            writer.write_eof()
            assert await reader.read() == b"X" * 300_000
            writer.close()
        await forwarder.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port.port)
        server.close()

    run(test)


def test_connections_to_a_machine_that_has_stopped_are_ended() -> None:
    async def test() -> None:
        server = await asyncio.start_server(upper, "127.0.0.2", 0)
        machines = ["127.0.0.2"]
        port = PublishedPort(address="127.0.0.1", port=free_port(), target=server.sockets[0].getsockname()[1])
        forwarder = Forwarder(lambda: machines)
        await forwarder.publish([port])
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        writer.write(b"x")
        answered = asyncio.ensure_future(reader.read())
        while not answered.done():  # the connection to the machine may not have been made yet
            forwarder.look_again()
            machines.clear()
            await asyncio.sleep(0.02)
        with suppress(ConnectionResetError):
            assert await answered == b""
        writer.close()
        await forwarder.close()
        server.close()

    run(test)


def test_a_connection_ends_if_no_machine_accepts_it() -> None:
    async def test() -> None:
        port = PublishedPort(address="127.0.0.1", port=free_port(), target=free_port())
        forwarder = Forwarder(lambda: ["127.0.0.2"])
        await forwarder.publish([port])
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        await forwarder.close()

    run(test)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_connections_of_a_port_are_limited_and_the_oldest_one_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "MOST_CONNECTIONS", 2)

    async def test() -> None:
        server = await asyncio.start_server(upper, "127.0.0.2", 0)
        port = PublishedPort(address="127.0.0.1", port=free_port(), target=server.sockets[0].getsockname()[1])
        forwarder = Forwarder(lambda: ["127.0.0.2"])
        await forwarder.publish([port])
        opened = []
        for _ in range(4):
            opened.append(await asyncio.open_connection("127.0.0.1", port.port))
            await asyncio.sleep(0.05)  # they are accepted in this order
        for reader, _ in opened[:2]:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        for reader, writer in opened[2:]:
            writer.write(b"x")
            writer.write_eof()
            assert await reader.read() == b"X"
        for _, writer in opened:
            writer.close()
        await forwarder.close()
        server.close()

    run(test)


def test_packets_of_many_new_clients_at_once_open_a_limited_number_of_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "MOST_CLIENTS", 8)

    async def test() -> None:
        echo, _ = await asyncio.get_running_loop().create_datagram_endpoint(Echo, local_addr=("127.0.0.2", 0))
        number = free_port(socket.SOCK_DGRAM)
        port = PublishedPort(address="127.0.0.1", port=number, target=echo.get_extra_info("sockname")[1], protocol="udp")
        forwarder = Forwarder(lambda: ["127.0.0.2"])
        await forwarder.publish([port])
        before = descriptors()
        clients = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(200)]
        for client in clients:  # the loop sees all of them at once
            for _ in range(3):
                client.sendto(b"x", ("127.0.0.1", number))
            client.close()
        most = 0
        for _ in range(20):
            await asyncio.sleep(0.01)
            most = max(most, descriptors() - before)
        assert 0 < most <= 8 + 2  # and the descriptors with which they are counted
        await forwarder.close()
        echo.close()

    run(test)


class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.transport.sendto(data.upper(), addr)  # type: ignore[attr-defined]


def test_packets_of_each_client_are_answered_and_machines_that_refuse_are_left() -> None:
    async def test() -> None:
        running = asyncio.get_running_loop()
        echo, _ = await running.create_datagram_endpoint(Echo, local_addr=("127.0.0.2", 0))
        port = PublishedPort(
            address="127.0.0.1", port=free_port(socket.SOCK_DGRAM), target=echo.get_extra_info("sockname")[1], protocol="udp"
        )
        forwarder = Forwarder(lambda: ["127.0.0.3", "127.0.0.2"])
        await forwarder.publish([port])
        clients = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        for number, client in enumerate(clients):
            client.setblocking(False)
            client.connect(("127.0.0.1", port.port))
            answer = b""
            while not answer:  # the first packets are lost: 127.0.0.3 refuses them
                await running.sock_sendall(client, b"from %d" % number)
                try:
                    async with asyncio.timeout(0.2):
                        answer = await running.sock_recv(client, 100)
                except TimeoutError:
                    continue
            assert answer == b"FROM %d" % number
            client.close()
        await forwarder.close()
        echo.close()

    run(test)


def test_a_port_that_is_taken_is_refused_with_its_owner_and_nothing_changes() -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as packets:
            packets.bind(("127.0.0.1", 0))
            one, two = (PublishedPort(address="127.0.0.1", port=free_port(), target=target) for target in (1, 2))
            forwarder = Forwarder(list)
            await forwarder.publish([one])
            for refused, said in (
                (PublishedPort(address="127.0.0.1", port=taken.getsockname()[1], target=1), f"(pid {os.getpid()})"),
                (PublishedPort(address="127.0.0.1", port=packets.getsockname()[1], target=1, protocol="udp"), "another process"),
            ):
                with pytest.raises(PortInUse) as caught:
                    await forwarder.publish([two, refused])
                assert said in str(caught.value)
                assert forwarder.ports == (one,)
            for protocol in ("tcp", "udp"):
                with pytest.raises(HostError, match=r"cannot listen on 192\.0\.2\.1") as foreign:
                    await forwarder.publish([one, PublishedPort(address="192.0.2.1", port=1, target=1, protocol=protocol)])
                assert foreign.value.remedy == "choose an address of this host; `ip address` shows them"
            moved = replace(one, target=3)
            await forwarder.publish([moved])
            assert forwarder.ports == (moved,)
            await forwarder.close()

    run(test)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the kernel has no IPv6")
def test_the_same_port_of_both_families_and_protocols_can_be_published() -> None:
    async def test() -> None:
        number, forwarder = free_port(), Forwarder(list)
        texts = [f"{address}:{number}:1/{protocol}" for address in ("[::]", "0.0.0.0") for protocol in ("tcp", "udp")]
        wanted = published.parse_all(texts)
        await forwarder.publish(wanted)
        assert forwarder.ports == wanted
        await forwarder.close()

    run(test)


def test_ports_that_are_taken_are_found_before_anything_is_started(tmp_path: Path) -> None:
    paths = ClusterPaths(tmp_path / "dev")
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as packets:
        packets.bind(("127.0.0.1", 0))
        free = free_port()
        for protocol, number in {"tcp": taken.getsockname()[1], "udp": packets.getsockname()[1]}.items():
            options = UpOptions(publish=published.parse_all([f"{free}:1", f"{number}:1/{protocol}"]))
            with pytest.raises(PortInUse, match=f":{number}/{protocol} is in use"):
                ports.require_free(paths, CLUSTER, options)
        ports.require_free(paths, CLUSTER, UpOptions(publish=published.parse_all([f"{free}:1"])))


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("address", ["192.0.2.1", "[2001:db8::1]"])
def test_an_address_that_the_host_does_not_have_is_refused_before_anything_is_started(tmp_path: Path, address: str, protocol: str) -> None:
    options = UpOptions(publish=published.parse_all([f"{address}:{free_port()}:1/{protocol}"]))
    with pytest.raises(HostError, match="cannot listen on") as caught:
        ports.require_free(ClusterPaths(tmp_path / "dev"), CLUSTER, options)
    assert address.strip("[]") in caught.value.what
    assert caught.value.remedy == "choose an address of this host; `ip address` shows them"


def test_an_address_of_the_bridge_is_accepted_while_the_cluster_is_stopped(tmp_path: Path) -> None:
    """The record contains it from the time when the cluster ran."""
    stopped = replace(CLUSTER, publish=(f"172.30.4.1:{free_port()}:1/tcp",))
    ports.require_free(ClusterPaths(tmp_path / "dev"), stopped, UpOptions())


def test_a_port_that_another_cluster_publishes_is_refused_with_its_name() -> None:
    with subprocess.Popen([sys.executable, "-c", LISTENER, MODULE, "/run/x", "/state/dev"], stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        port = PublishedPort(address="127.0.0.1", port=int(daemon.stdout.readline()), target=1)
        assert str(taken(port)) == f"port 127.0.0.1:{port.port}/tcp is in use by cluster dev"
        daemon.kill()


def test_another_program_cannot_pretend_to_be_a_daemon_in_a_way_that_fails() -> None:
    with subprocess.Popen([sys.executable, "-c", LISTENER, MODULE], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        try:
            port = PublishedPort(address="127.0.0.1", port=int(program.stdout.readline()), target=1)
            assert f"(pid {program.pid})" in str(taken(port))
        finally:
            program.kill()
