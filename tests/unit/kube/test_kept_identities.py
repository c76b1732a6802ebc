"""Credentials of daemons that change in their files: new ones are used within a minute, and unusable ones change nothing."""

from __future__ import annotations

import asyncio
import base64
import logging
from contextlib import asynccontextmanager
from pathlib import PurePosixPath
from types import SimpleNamespace

import pytest

from kubewright.base import yaml
from kubewright.base.errors import UsageError
from kubewright.kube.credentials import Access, BearerToken, ClientCertificate
from kubewright.kube.daemons import identities, in_cluster
from kubewright.kube.kubeconfigs import load_access

pytestmark = pytest.mark.looptime
PATH = PurePosixPath("/etc/controllers.conf")
TOKEN, CERTIFICATE, KEY = (PATH.with_name(name) for name in ("token", "tls.crt", "tls.key"))


class Client:
    def __init__(self) -> None:
        self.identities: list[tuple[float, object]] = []

    async def set_identity(self, identity: object) -> None:
        self.identities.append((asyncio.get_running_loop().time(), identity))


def kubeconfig(ca_pem: bytes, user: dict, *, server: str = "https://10.0.0.1:6443") -> bytes:
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca_pem).decode()}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    return yaml.dump(document).encode()


@asynccontextmanager
async def kept(files: dict, clients: list[Client]):
    known = load_access(PATH, read=files.get)
    task = asyncio.create_task(identities.keep_kubeconfig(clients, known, PATH, read=files.get))
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_new_token_of_a_pod_is_used_within_a_minute_and_a_broken_file_keeps_the_old_one(ca_pem, caplog):
    files = {in_cluster.TOKEN: b"aaa.bbb.ccc\n", in_cluster.AUTHORITY: ca_pem}
    known = Access(server="https://10.96.0.1:443", ca_pem=ca_pem, identity=BearerToken("aaa.bbb.ccc"))
    clients = [Client(), Client()]
    task = asyncio.create_task(in_cluster.keep_token(clients, known, read=files.get))
    await asyncio.sleep(130)
    assert clients[0].identities == []
    files[in_cluster.TOKEN] = b""
    with caplog.at_level(logging.WARNING):
        await asyncio.sleep(120)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert clients[0].identities == []
    files[in_cluster.TOKEN] = b"new"
    await asyncio.sleep(120)
    assert [client.identities for client in clients] == [[(300.0, BearerToken("new"))]] * 2
    task.cancel()


async def test_the_token_file_of_a_kubeconfig_is_read_again(ca_pem):
    files, client = {PATH: kubeconfig(ca_pem, {"tokenFile": "token"}), TOKEN: b"one\n"}, Client()
    async with kept(files, [client]):
        await asyncio.sleep(61)
        files[TOKEN] = b"two\n"
        await asyncio.sleep(120)
    assert client.identities == [(120.0, BearerToken("two"))]


async def test_a_renewed_certificate_is_used_once_its_key_is_there_too(ca_pem, client_pair, other_client_pair):
    user = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    files, client = {PATH: kubeconfig(ca_pem, user), CERTIFICATE: client_pair[0], KEY: client_pair[1]}, Client()
    async with kept(files, [client]):
        files[CERTIFICATE] = other_client_pair[0]
        await asyncio.sleep(61)
        assert client.identities == []
        files[KEY] = other_client_pair[1]
        await asyncio.sleep(120)
    assert client.identities == [(120.0, ClientCertificate(cert_pem=other_client_pair[0], key_pem=other_client_pair[1]))]


def test_a_client_that_is_not_asynchronous_gets_new_credentials_when_it_is_used(ca_pem):
    files, given = {PATH: kubeconfig(ca_pem, {"tokenFile": "token"}), TOKEN: b"one\n"}, []
    client = SimpleNamespace(set_identity=given.append)
    renew = identities.Renewal(client, load_access(PATH, read=files.get), PATH, read=files.get)
    renew()
    assert given == []
    files[TOKEN] = b"two\n"
    renew()
    renew()
    assert given == [BearerToken("two")]
    files[PATH] = kubeconfig(ca_pem, {"token": "three"}, server="https://10.0.0.2:6443")
    with pytest.raises(UsageError, match="another cluster"):
        renew()
    assert given == [BearerToken("two")]


async def test_a_kubeconfig_that_is_gone_or_for_another_cluster_changes_nothing(ca_pem):
    files, client = {PATH: kubeconfig(ca_pem, {"token": "one"})}, Client()
    async with kept(files, [client]):
        files[PATH] = kubeconfig(ca_pem, {"token": "two"}, server="https://10.0.0.2:6443")
        await asyncio.sleep(61)
        del files[PATH]
        await asyncio.sleep(60)
        assert client.identities == []
        files[PATH] = kubeconfig(ca_pem, {"token": "two"})
        await asyncio.sleep(60)
    assert client.identities == [(180.0, BearerToken("two"))]
