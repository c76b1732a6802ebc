"""The certificate of a kubelet API: none, the cluster's, files that change, or its own pair; and the clients that it accepts."""

from __future__ import annotations

import asyncio
import socket
import ssl
import stat
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import trustme
from fake_controllers import START

from busy import HANGS
from kubewright.agent.access import AccessRules
from kubewright.agent.configuration.kubelet_api import KubeletAPIOptions
from kubewright.agent.dependencies import Seams
from kubewright.agent.machine_api import MachineAPI, usage_metrics
from kubewright.agent.server import Contents, KubeletServer
from kubewright.base.clock import FakeClock
from kubewright.base.errors import CertificateError, HostError
from kubewright.host.filesystem.files import Files
from kubewright.http import aio, loop, tls
from kubewright.http.failures import NoAnswer
from kubewright.http.metrics import Registry
from kubewright.http.tls import Limits
from kubewright.kube.daemons.serving_identity import CertificateFiles, ClientAuthorities, ServingIdentity, SignedCertificate
from kubewright.pki import certificates
from loopback import free_port


class Host:
    """The parts of a Host that the API uses."""

    def __init__(self) -> None:
        self.files = Files()
        self.read = self.files.read

    def ensure(self, desired: Any, /) -> None:
        self.files.write(desired)


OPEN = AccessRules(anonymous=True, reviews=False)


def options(**changes: Any) -> KubeletAPIOptions:
    found: dict[str, Any] = {
        "address": "127.0.0.1",
        "port": 1,
        "requested": False,
        "files": None,
        "client_ca": None,
        "rules": OPEN,
        "debugging": True,
        "oldest_tls": "1.2",
        "ciphers": "",
    }
    return KubeletAPIOptions(**{**found, **changes})


def contents(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.iterdir()}


def api_of(place: Path, *, again: float = 5.0, **changes: Any) -> MachineAPI:
    return MachineAPI(
        options(**changes),
        Host(),  # type: ignore[arg-type]
        name="node-1",
        pki=PurePosixPath(place),
        agents=tuple,
        seams=Seams(clock=FakeClock(START)),
        contents=Contents(),
        again=again,
    )


def issue(authority: trustme.CA, name: str) -> tuple[bytes, bytes]:
    leaf = authority.issue_cert(name, "127.0.0.1", common_name=name)
    return b"".join(blob.bytes() for blob in leaf.cert_chain_pems), leaf.private_key_pem.bytes()


def written(place: Path, authority: trustme.CA, name: str) -> tuple[PurePosixPath, PurePosixPath]:
    """Write a certificate and its key, replacing existing ones."""
    for file, content in zip(("tls.crt", "tls.key"), issue(authority, name), strict=True):
        (place / file).write_bytes(content)
    return PurePosixPath(place / "tls.crt"), PurePosixPath(place / "tls.key")


async def asked(port: int, ca: trustme.CA | None = None, client: tuple[bytes, bytes] | None = None, **context: Any) -> int | None:
    """Request the health; None if the connection fails. With `ca` the certificate must be signed by it."""
    made = tls.client_context(ca.cert_pem.bytes() if ca else None, *(client or ()), verify=ca is not None)
    for name, value in context.items():
        setattr(made, name, value)
    transport = aio.Transport(f"https://127.0.0.1:{port}", context=made)
    try:
        return (await transport.request("GET", "/healthz")).status
    except NoAnswer:
        return None
    finally:
        await transport.close()


def serving(identity: ServingIdentity, test: Callable[[int], Awaitable[None]], *, rules: AccessRules = OPEN) -> None:
    """Serve while a test sends requests."""

    async def main() -> None:
        server = KubeletServer(tuple, identity=identity, rules=rules)
        port = await server.start("127.0.0.1", 0)
        try:
            await test(port)
        finally:
            await server.stop()

    loop.run(main)


def test_connections_fail_before_the_certificate_exists_and_after_it_expired():
    authority, clock = trustme.CA(), FakeClock(START)
    signed = SignedCertificate(clock)
    pair = certificates.pair_of(*issue(authority, "node-1"), source="test")

    async def test(port: int) -> None:
        assert await asked(port) is None
        signed.use(pair)
        assert await asked(port, authority) == 200
        clock.advance((pair.leaf.not_after - START).total_seconds())
        assert await asked(port) is None

    serving(ServingIdentity(signed, client_ca=None), test)


def test_changed_files_are_served_and_invalid_ones_change_nothing(tmp_path: Path):
    first, second = trustme.CA(), trustme.CA()
    shown = CertificateFiles(*written(tmp_path, first, "a"), read=Files().read)
    shown.require()

    async def test(port: int) -> None:
        assert (await asked(port, first), await asked(port, second)) == (200, None)
        (tmp_path / "tls.crt").write_bytes(issue(second, "b")[0])  # not yet its key
        assert await asked(port, first) == 200
        (tmp_path / "tls.key").unlink()
        assert await asked(port, first) == 200
        written(tmp_path, second, "b")
        assert (await asked(port, first), await asked(port, second)) == (None, 200)

    serving(ServingIdentity(shown, client_ca=None), test)


def test_client_cas_are_reloaded_when_their_file_changes(tmp_path: Path):
    ours, others = trustme.CA(), trustme.CA()
    path = tmp_path / "ca.crt"
    ours.cert_pem.write_to_path(str(path))
    authorities = ClientAuthorities(PurePosixPath(path), read=Files().read)
    authorities.require()
    pair = certificates.pair_of(*issue(ours, "node-1"), source="test")
    one, other = issue(ours, "caller"), issue(others, "caller")

    async def test(port: int) -> None:
        assert [await asked(port, client=one), await asked(port, client=other), await asked(port)] == [200, None, 401]
        path.write_bytes(b"nothing")
        assert await asked(port, client=one) == 200
        others.cert_pem.write_to_path(str(path))
        assert [await asked(port, client=one), await asked(port, client=other)] == [None, 200]

    serving(ServingIdentity(lambda: pair, client_ca=authorities), test, rules=AccessRules(reviews=False))


def test_an_open_connection_ends_its_users_rights_when_its_ca_is_removed_and_keeps_them_when_others_are_added(tmp_path: Path):
    ours, others = trustme.CA(), trustme.CA()
    path = tmp_path / "ca.crt"
    ours.cert_pem.write_to_path(str(path))
    authorities = ClientAuthorities(PurePosixPath(path), read=Files().read)
    authorities.require()
    shown = [certificates.pair_of(*issue(ours, name), source="test") for name in ("node-1", "node-2")]

    async def test(port: int) -> None:
        context = tls.client_context(None, *issue(ours, "caller"), verify=False)
        transport = aio.Transport(f"https://127.0.0.1:{port}", context=context)
        found = [(await transport.request("GET", "/healthz")).status]
        path.write_bytes(others.cert_pem.bytes() + ours.cert_pem.bytes())
        del shown[0]  # another serving certificate changes nothing either
        found += [await asked(port, client=issue(others, "other")) or 0, (await transport.request("GET", "/healthz")).status]
        others.cert_pem.write_to_path(str(path))
        found.append((await transport.request("GET", "/healthz")).status)
        await transport.close()
        assert found == [200, 200, 200, 401]

    serving(ServingIdentity(lambda: shown[0], client_ca=authorities), test, rules=AccessRules(reviews=False))


def test_old_versions_and_other_cipher_suites_are_refused():
    authority = trustme.CA()
    pair = certificates.pair_of(*issue(authority, "node-1"), source="test")
    old = {"maximum_version": ssl.TLSVersion.TLSv1_2}

    async def latest(port: int) -> None:
        assert [await asked(port, authority, **old), await asked(port, authority)] == [None, 200]

    async def chosen(port: int) -> None:
        assert await asked(port, authority, **old) == 200

    serving(ServingIdentity(lambda: pair, client_ca=None, limits=Limits(oldest="1.3")), latest)
    serving(ServingIdentity(lambda: pair, client_ca=None, limits=Limits(ciphers="ECDHE-ECDSA-AES256-GCM-SHA384")), chosen)
    with pytest.raises(HostError, match="cipher suites"):
        ServingIdentity(lambda: pair, client_ca=None, limits=Limits(ciphers="none-such")).context()


async def test_a_self_signed_pair_equals_that_of_the_kubelet_and_is_created_once(tmp_path: Path):
    await api_of(tmp_path).prepare()
    files = contents(tmp_path)
    assert sorted(files) == ["kubelet.crt", "kubelet.key"]
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in sorted(files)] == [0o644, 0o600]
    pair = certificates.pair_of(files["kubelet.crt"], files["kubelet.key"], source="test")
    assert (pair.leaf.key_kind, pair.leaf.names.dns, pair.leaf.not_before) == ("RSA-2048", ("node-1",), START - timedelta(hours=1))
    assert b"BEGIN RSA PRIVATE KEY" in files["kubelet.key"]
    assert api_of(tmp_path).view()["certificate"] == "self-signed"
    await api_of(tmp_path).prepare()
    assert contents(tmp_path) == files


@pytest.mark.parametrize("missing", ["certificate", "authority", "key"])
async def test_missing_certificate_files_end_the_start(tmp_path: Path, missing: str):
    authority = trustme.CA()
    files = written(tmp_path, authority, "a")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    (tmp_path / {"certificate": "tls.crt", "key": "tls.key", "authority": "ca.crt"}[missing]).unlink()
    with pytest.raises(CertificateError, match="cannot be read"):
        await api_of(tmp_path, files=files, client_ca=PurePosixPath(tmp_path / "ca.crt")).prepare()


async def test_a_half_pair_is_not_replaced(tmp_path: Path):
    (tmp_path / "kubelet.key").write_text("somebody's")
    with pytest.raises(CertificateError, match="cannot be read"):
        await api_of(tmp_path).prepare()
    assert (tmp_path / "kubelet.key").read_text() == "somebody's"


def test_a_port_in_use_is_reported_and_used_when_it_is_free(tmp_path: Path):
    port = free_port()
    holder = socket.create_server(("127.0.0.1", port))
    api = api_of(tmp_path, port=port, files=written(tmp_path, trustme.CA(), "a"), again=0.02)

    async def main() -> None:
        await api.prepare()
        running = asyncio.create_task(api.run())
        async with asyncio.timeout(HANGS):
            while "is taken" not in api.trouble:
                await asyncio.sleep(0.01)
            holder.close()
            while api.trouble:
                await asyncio.sleep(0.01)
        assert await asked(port) == 200
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert await asked(port) is None

    loop.run(main)
    assert api.view() == {"address": "127.0.0.1", "port": port, "certificate": "files", "trouble": ""}


async def test_the_age_of_a_certificate_that_is_replaced_is_counted(tmp_path: Path):
    registry, authority, api = Registry(), trustme.CA(), api_of(tmp_path, requested=True)
    api.measure(registry)
    requests = api.requests
    assert requests is not None
    for name in ("a", "b"):
        requests.use(certificates.pair_of(*issue(authority, name), source="test"))
    text = registry.read().body.decode()
    assert "kubelet_certificate_manager_server_rotation_seconds_count 1.0" in text
    assert api_of(tmp_path).requests is None


def test_usage_has_the_names_of_the_kubelet_and_is_omitted_if_it_cannot_be_measured():
    text = usage_metrics(Files())
    rows = dict(line.split(" ") for line in text.splitlines() if not line.startswith("#"))
    assert sorted(rows) == ["node_cpu_usage_seconds_total", "node_memory_working_set_bytes", "resource_scrape_error"]
    assert float(rows["node_cpu_usage_seconds_total"]) > 0
    assert int(rows["node_memory_working_set_bytes"]) > 0

    class Nothing:
        def read(self, path: PurePosixPath, /) -> bytes | None:
            return None

    assert [line for line in usage_metrics(Nothing()).splitlines() if not line.startswith("#")] == ["resource_scrape_error 0"]  # type: ignore[arg-type]
