"""A DNS server for tests: it answers from a table of records, over UDP and TCP, and can fail or be silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

SILENT = "silent"


@dataclass
class DNSServer:
    """`records` maps a name and a type to values; `broken` maps a name to an rcode, or to SILENT. Answers of more than `udp` bytes need TCP.

    `asked` are the names, types and protocols of all questions.
    """

    records: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    udp: int = 512
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    port: int = 0

    def answer(self, data: bytes, *, over: str) -> bytes | None:
        query = dns.message.from_wire(data)
        [question] = query.question
        name, kind = question.name.to_text(omit_final_dot=True).lower(), dns.rdatatype.to_text(question.rdtype)
        self.asked.append((name, kind, over))
        if self.broken.get(name) == SILENT:
            return None
        response = dns.message.make_response(query)
        alias = self.records.get((name, "CNAME"), [])
        values = self.records.get((alias[0].rstrip(".") if alias else name, kind), [])
        if alias:
            response.answer.append(dns.rrset.from_text(question.name, 60, "IN", "CNAME", *alias))
        if values:
            response.answer.append(dns.rrset.from_text(alias[0] if alias else question.name, 60, "IN", kind, *values))
        if name in self.broken:
            response.set_rcode(dns.rcode.from_text(self.broken[name]))
        elif not any(known == name for known, _ in self.records):
            response.set_rcode(dns.rcode.NXDOMAIN)
        wire = response.to_wire()
        if over == "UDP" and len(wire) > self.udp:
            cut = dns.message.make_response(query)
            cut.flags |= dns.flags.TC
            wire = cut.to_wire()
        return wire

    @asynccontextmanager
    async def running(self) -> AsyncIterator[DNSServer]:
        server = await asyncio.start_server(self._stream, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), local_addr=("127.0.0.1", self.port))
        try:
            yield self
        finally:
            transport.close()
            server.close()

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            size = int.from_bytes(await reader.readexactly(2), "big")
            found = self.answer(await reader.readexactly(size), over="TCP")
            if found is not None:
                writer.write(len(found).to_bytes(2, "big") + found)
                await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: DNSServer) -> None:
        self.server = server

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        found = self.server.answer(data, over="UDP")
        if found is not None:
            self.transport.sendto(found, addr)
