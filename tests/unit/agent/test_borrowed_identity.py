"""A node without bootstrap credentials, whose kubeconfig has no node certificate: the kubeconfig's credentials are used for everything."""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from agent_running import running
from agent_values import facts
from fake_api import FakeAPI
from fake_controllers import Controllers, LoopClock, made_pair, other_pair

from kubewright.agent.certificates.store import FileCredentialStore
from kubewright.agent.dependencies import Duties, Seams
from kubewright.agent.node import NodeAgent
from kubewright.agent.view import NodePhase
from kubewright.base import yaml
from kubewright.base.errors import Unauthorized
from kubewright.base.randomness import SeededRandom
from kubewright.kube.credentials import BearerToken, ClientCertificate

pytestmark = pytest.mark.looptime

SERVER = "https://10.0.0.9:6443"


def store(place: Path, **user: Any) -> FileCredentialStore:
    """A store whose kubeconfig has such a user."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": SERVER}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (place / "kubelet.conf").write_text(yaml.dump(document))
    return FileCredentialStore(place / "pki", place / "kubelet.conf", clock=LoopClock())


def agent_of(api: FakeAPI, store: FileCredentialStore) -> NodeAgent:
    seams = Seams(connect=api.connect, clock=LoopClock(), random=SeededRandom(4))
    return NodeAgent(facts(), store=store, seams=seams, duties=Duties(rotates=True))


async def identities(api: FakeAPI, agent: NodeAgent) -> set[Any]:
    async with running(agent):
        await asyncio.wait_for(agent.ready.wait(), 100)
        await asyncio.sleep(60)
        assert agent.view().certificate.expires is None
    return {call.identity for call in api.calls}


async def test_a_token_in_the_kubeconfig_is_used_and_no_certificate_requested(tmp_path: Path):
    api = FakeAPI()
    Controllers(api)
    assert await identities(api, agent_of(api, store(tmp_path, token="a-token"))) == {BearerToken("a-token")}
    assert [call for call in api.calls if call.what == "certificatesigningrequests"] == []
    assert not (tmp_path / "pki").exists()


async def test_a_rejected_token_is_read_from_its_file_again(tmp_path: Path):
    api = FakeAPI()
    Controllers(api)
    (tmp_path / "token").write_text("first\n")
    async with running(agent_of(api, store(tmp_path, tokenFile="token"))) as agent:
        await asyncio.wait_for(agent.ready.wait(), 100)
        first = BearerToken("first")
        api.faults.append(lambda call: Unauthorized("Unauthorized", code=401) if call.identity == first else None)
        await asyncio.sleep(30)
        assert "Unauthorized" in agent.trouble
        (tmp_path / "token").write_text("second\n")
        await asyncio.sleep(30)
        assert agent.trouble == ""
    assert api.calls[-1].identity == BearerToken("second")


async def test_a_certificate_of_another_user_is_used_and_not_copied(tmp_path: Path):
    api, pair = FakeAPI(), other_pair()
    Controllers(api)
    (tmp_path / "admin.crt").write_bytes(pair.certificate_pem())
    (tmp_path / "admin.key").write_bytes(pair.key.pem())
    user = {"client-certificate": str(PurePosixPath(tmp_path / "admin.crt")), "client-key": "admin.key"}
    [found] = await identities(api, agent_of(api, store(tmp_path, **user)))
    assert isinstance(found, ClientCertificate)
    assert found.cert_pem == pair.certificate_pem()
    assert not (tmp_path / "pki").exists()


async def test_a_certificate_of_the_node_itself_is_stored_and_renewed(tmp_path: Path):
    api, pair = FakeAPI(), made_pair(lifetime=3600)
    Controllers(api)
    (tmp_path / "node.crt").write_bytes(pair.certificate_pem())
    (tmp_path / "node.key").write_bytes(pair.key.pem())
    async with running(agent_of(api, store(tmp_path, **{"client-certificate": "node.crt", "client-key": "node.key"}))) as agent:
        await asyncio.wait_for(agent.ready.wait(), 100)
        assert agent.view().certificate.expires == pair.leaf.not_after
        await asyncio.sleep(3500)
        assert agent.view().certificate.expires != pair.leaf.not_after


async def test_an_exec_plugin_is_not_run_and_that_is_reported(tmp_path: Path):
    api = FakeAPI()
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/get-token", "interactiveMode": "Never"}
    async with running(agent_of(api, store(tmp_path, exec=plugin))) as agent:
        await asyncio.sleep(5)
        assert "credentials by exec are not supported" in agent.trouble
        assert agent.view().phase is NodePhase.JOINING
    assert api.calls == []
