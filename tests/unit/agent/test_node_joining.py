"""Finding a cluster with a token, with an API in memory."""

from __future__ import annotations

import pytest
from fake_api import FakeAPI
from fake_controllers import START, made_pair

from kubewright.agent.joining import TokenBootstrap
from kubewright.base.errors import TrustError
from kubewright.kube.credentials import Access, Anonymous, BearerToken
from kubewright.pki.pins import Pin, of_bundle
from kubewright.tokens import cluster_info, jws
from kubewright.tokens.strings import BootstrapTokenString

pytestmark = [pytest.mark.looptime]

TYPED = "https://10.0.0.1:6443"
NAMED = "https://10.0.0.9:6443"
TOKEN = BootstrapTokenString("abcdef", "0123456789abcdef")
CA = made_pair(now=START).certificate_pem()


def published(api: FakeAPI, *, token: BootstrapTokenString = TOKEN) -> None:
    found = cluster_info.config_map(server=NAMED, ca_pem=CA)
    text = found["data"]["kubeconfig"]
    found["data"][f"jws-kubeconfig-{token.id}"] = jws.sign(text, token)
    api.put(found)


async def test_the_cluster_is_found_believed_and_asked_with_the_token():
    api = FakeAPI()
    published(api)
    bootstrap = TokenBootstrap(TYPED, TOKEN, pins=of_bundle(CA), connect=api.connect)
    access, client = await bootstrap.admit()
    assert access == Access(server=NAMED, ca_pem=CA)
    assert client.access == access.as_identity(BearerToken(TOKEN.text))
    assert [(call.verb, call.what, call.identity) for call in api.calls] == [("get", "configmaps", Anonymous())] * 2
    await bootstrap.close()


async def test_machines_that_join_together_share_connections_and_look_for_themselves():
    api, made = FakeAPI(), []

    def connect(access: Access):
        made.append(api.connect(access))
        return made[-1]

    published(api)
    bootstrap = TokenBootstrap(TYPED, TOKEN, pins=of_bundle(CA), connect=connect)
    clients = [(await bootstrap.admit())[1] for _ in range(3)]
    assert len(made) == 3
    assert len({id(client) for client in clients}) == 1
    assert len(api.calls) == 6
    await clients[0].close()
    assert not any(client.closed for client in made)
    await bootstrap.close()
    assert all(client.closed for client in made)


async def test_a_wrong_pin_ends_the_attempt():
    api = FakeAPI()
    published(api)
    with pytest.raises(TrustError):
        await TokenBootstrap(TYPED, TOKEN, pins=[Pin(b"x" * 32)], connect=api.connect).admit()


async def test_a_forged_signature_ends_the_attempt():
    api = FakeAPI()
    published(api, token=BootstrapTokenString("abcdef", "fedcba9876543210"))
    with pytest.raises(TrustError):
        await TokenBootstrap(TYPED, TOKEN, connect=api.connect).admit()
