"""DNS records from servers of one's choice: what is there, what is not, and what is unknown."""

from __future__ import annotations

import pytest
from dns_server import SILENT, DNSServer

from kubewright.http.dns_lookup import DNSResolver, DNSUnavailable

RECORDS = {
    ("a.example.com", "A"): ["10.1.0.7", "10.1.0.8"],
    ("a.example.com", "AAAA"): ["2001:db8::7"],
    ("b.example.com", "CNAME"): ["a.example.com."],
    ("empty.example.com", "TXT"): ['"x"'],
    ("many.example.com", "A"): [f"10.2.{number // 250}.{number % 250}" for number in range(257)],
    ("several.example.com", "A"): [f"10.3.0.{number}" for number in range(60)],
    ("7.0.1.10.in-addr.arpa", "PTR"): ["A.example.com."],
}


def asking(server: DNSServer, timeout: float = 60.0) -> DNSResolver:
    return DNSResolver((("127.0.0.1", server.port),), timeout=timeout)


@pytest.mark.asyncio
async def test_addresses_of_both_families_are_found_also_behind_an_alias_and_over_tcp():
    async with DNSServer(RECORDS).running() as server:
        found = asking(server)
        assert await found.addresses("a.example.com") == {"10.1.0.7", "10.1.0.8", "2001:db8::7"}
        assert await found.addresses("b.example.com") == {"10.1.0.7", "10.1.0.8", "2001:db8::7"}
        assert len(await found.addresses("several.example.com")) == 60
        assert await found.names("10.1.0.7") == {"a.example.com"}
        assert {over for *what, over in server.asked if what == ["several.example.com", "A"]} == {"UDP", "TCP"}


@pytest.mark.asyncio
async def test_a_name_without_addresses_and_one_that_does_not_exist_have_none():
    async with DNSServer(RECORDS).running() as server:
        assert await asking(server).addresses("empty.example.com") == frozenset()
        assert await asking(server).addresses("missing.example.com") == frozenset()
        assert await asking(server).names("10.1.0.9") == frozenset()


@pytest.mark.asyncio
@pytest.mark.parametrize("broken", ["SERVFAIL", "REFUSED", SILENT])
async def test_a_server_that_fails_is_not_a_name_that_does_not_exist(broken):
    async with DNSServer(RECORDS, broken={"a.example.com": broken}).running() as server:
        with pytest.raises(DNSUnavailable):
            await asking(server, timeout=1.0).addresses("a.example.com")


@pytest.mark.asyncio
async def test_an_answer_with_too_many_records_is_none():
    async with DNSServer(RECORDS).running() as server:
        with pytest.raises(DNSUnavailable, match="257 records"):
            await asking(server).addresses("many.example.com")


@pytest.mark.asyncio
async def test_the_servers_of_the_machine_are_read_again_when_they_change(tmp_path):
    """dnspython asks at port 53, so only the addresses are compared."""
    path = tmp_path / "resolv.conf"
    found = DNSResolver(timeout=1.0, machine=str(path))
    with pytest.raises(DNSUnavailable):
        await found.addresses("a.example.com")

    def servers() -> list[str]:
        return [str(one) for one in found.resolver().nameservers]

    for number in (1, 2):
        path.write_text(f"nameserver 127.0.0.{number}\n")
        assert servers() == [f"127.0.0.{number}"]
        assert found.resolver() is found.resolver()
    path.unlink()  # it is replaced by a new file: the previous servers count meanwhile
    assert servers() == ["127.0.0.2"]
    path.with_suffix(".new").write_text("nameserver 127.0.0.3\n")
    path.with_suffix(".new").rename(path)
    assert servers() == ["127.0.0.3"]


@pytest.mark.asyncio
async def test_a_server_that_is_not_there_is_unavailable():
    with pytest.raises(DNSUnavailable):
        await DNSResolver((("127.0.0.1", 1),), timeout=1.0).addresses("a.example.com")
