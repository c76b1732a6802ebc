"""Both clients against a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from local_kit import eventually

from kubewright.base import errors
from kubewright.base.clock import FakeClock
from kubewright.base.events import SilentReporter
from kubewright.http import loop
from kubewright.http.messages import Limits
from kubewright.kube import core, resources
from kubewright.kube.answers import EventType
from kubewright.kube.client import AsyncKubeClient, KubeClient
from kubewright.kube.credentials import Access, Anonymous, BearerToken, Identity, Impersonation
from kubewright.kube.refusals import REFUSED, Patience


def config_map(name: str, **data: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


@pytest.fixture(scope="module")
def apiserver(controlplane):
    return controlplane


@pytest.fixture
def name() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"


def test_every_verb_works(admin: KubeClient, name: str) -> None:
    made = admin.create(config_map(name, a="1"))
    assert made["metadata"]["managedFields"][0]["manager"] == "kubeadm"
    assert admin.get(resources.CONFIG_MAP, name, "default")["data"] == {"a": "1"}
    updated = admin.update({**made, "data": {"a": "2"}})
    assert updated["data"] == {"a": "2"}
    merged = admin.patch(resources.CONFIG_MAP, name, {"data": {"a": None, "b": "3"}}, "default", type="merge")
    assert merged["data"] == {"b": "3"}
    strategic = admin.patch(resources.CONFIG_MAP, name, {"data": {"c": "4"}}, "default")
    assert strategic["data"] == {"b": "3", "c": "4"}
    jsonpatched = admin.patch(resources.CONFIG_MAP, name, [{"op": "remove", "path": "/data/b"}], "default", type="json")
    assert jsonpatched["data"] == {"c": "4"}
    applied = admin.patch(resources.CONFIG_MAP, name, config_map(name, c="5"), "default", type="apply", force=True)
    assert applied["data"] == {"c": "5"}
    assert [item["metadata"]["name"] for item in admin.list(resources.CONFIG_MAP, "default", field_selector=f"metadata.name={name}")] == [
        name
    ]
    assert admin.delete(resources.CONFIG_MAP, name, "default", uid=made["metadata"]["uid"])["status"] == "Success"
    with pytest.raises(errors.NotFound) as caught:
        admin.get(resources.CONFIG_MAP, name, "default")
    assert f"configmap default/{name}" in str(caught.value)


def with_identity(apiserver, identity: Identity) -> KubeClient:
    return KubeClient(Access(server=apiserver.url, ca_pem=apiserver.ca_pem, identity=identity), timeout=600)


def test_refusals_raise_their_error_classes(admin: KubeClient, apiserver, name: str) -> None:
    made = admin.create(config_map(name))
    with pytest.raises(errors.AlreadyExists):
        admin.create(config_map(name))
    admin.update({**made, "data": {"a": "1"}})
    with pytest.raises(errors.Conflict):
        admin.update({**made, "data": {"a": "2"}})
    with pytest.raises(errors.Conflict):
        admin.delete(resources.CONFIG_MAP, name, "default", uid="another")
    with pytest.raises(errors.Invalid) as caught:
        admin.create(config_map("NOT A NAME"))
    assert caught.value.status["details"]["causes"][0]["field"] == "metadata.name"
    with pytest.raises(errors.Unauthorized):
        with_identity(apiserver, BearerToken("abcdef.0123456789abcdef")).get(resources.NODE, "x")
    with pytest.raises(errors.Forbidden):
        with_identity(apiserver, Anonymous()).get(resources.NODE, "x")
    with pytest.raises(errors.NotFound):
        admin.get(resources.Resource(group="nobody.example", version="v1", kind="Thing", plural="things", namespaced=False), "x")


@pytest.mark.parametrize("who", ["an unknown token", "nobody in particular"])
def test_a_ready_server_that_refuses_is_not_retried_for_long(apiserver, who: str) -> None:
    """The server tells anonymous users whether it is ready, so that a wrong token is no reason to wait longer."""
    refused, identity = {
        "an unknown token": (errors.Unauthorized, BearerToken("abcdef.0123456789abcdef")),
        "nobody in particular": (errors.Forbidden, apiserver.identity("nobody", "nobodies")),
    }[who]
    place = Access(server=apiserver.url, ca_pem=apiserver.ca_pem)
    with (
        contextlib.closing(KubeClient(place.as_identity(identity), timeout=600)) as api,
        contextlib.closing(KubeClient(place, timeout=600)) as anonymous,
    ):

        def took() -> float:
            clock = FakeClock()
            patience = Patience(
                api=lambda: api,
                anonymous=lambda: anonymous,
                clock=clock,
                reporter=SilentReporter(),
                within=60,
                passes=lambda error: isinstance(error, errors.Unreachable),
            )
            with pytest.raises(refused):
                patience.call(lambda: api.get(resources.NODE, "x"))
            return clock.monotonic()

        # longer if the server says meanwhile that it is not ready, as it may when etcd is busy
        eventually(lambda: REFUSED <= took() < 2 * REFUSED, "a refusal by a ready server")


def test_lists_are_read_page_by_page(admin: KubeClient, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        body = config_map(f"{name}-{number}")
        body["metadata"]["labels"] = {"run": name}
        admin.create(body)
    monkeypatch.setattr(core, "PAGE", 3)
    found = admin.list(resources.CONFIG_MAP, "default", label_selector=f"run={name}")
    assert [item["metadata"]["name"] for item in found] == [f"{name}-{number}" for number in range(7)]


def test_impersonation_reaches_the_server(apiserver) -> None:
    acting = Impersonation(user="jane", groups=("one", "two"), extra={"scope.example/a": ("x", "y")})
    client = KubeClient(
        Access(server=apiserver.url, ca_pem=apiserver.ca_pem, identity=apiserver.identity("root", "system:masters"), impersonation=acting),
        timeout=600,
    )
    review = client.create({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    info = review["status"]["userInfo"]
    assert (info["username"], info["groups"], info["extra"]["scope.example/a"]) == (
        "jane",
        ["one", "two", "system:authenticated"],
        ["x", "y"],
    )
    client.close()


def test_a_new_identity_is_used_from_the_next_call_on(apiserver) -> None:
    client = KubeClient(apiserver.access("one"), timeout=600)

    def who() -> str:
        return client.create({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})["status"]["userInfo"]["username"]

    assert who() == "one"
    client.set_identity(apiserver.identity("two", "system:masters"))
    assert who() == "two"
    client.close()


def test_a_watch_reports_events(apiserver, admin: KubeClient, name: str) -> None:
    async def main() -> list[tuple[EventType, dict]]:
        client = AsyncKubeClient(apiserver.access(), timeout=600)
        _, version = await client.list_versioned(resources.CONFIG_MAP, "default")
        watching = client.watch(resources.CONFIG_MAP, namespace="default", field_selector=f"metadata.name={name}", resource_version=version)
        made = await client.create(config_map(name, a="1"))
        await client.update({**made, "data": {"a": "2"}})
        await client.delete(resources.CONFIG_MAP, name, "default")
        found = []
        async for event in watching:
            found.append((event.type, event.object.get("data")))
            if event.type is EventType.DELETED:
                break
        await watching.aclose()
        await client.close()
        return found

    assert loop.run(main) == [
        (EventType.ADDED, {"a": "1"}),
        (EventType.MODIFIED, {"a": "2"}),
        (EventType.DELETED, {"a": "2"}),
    ]


def test_a_watch_ends_when_the_server_ends_it(apiserver) -> None:
    async def main() -> list[object]:
        client = AsyncKubeClient(apiserver.access(), timeout=600)
        found = [
            event async for event in client.watch(resources.SECRET, resource_version="0", seconds=1, field_selector="metadata.name=none")
        ]
        await client.close()
        return found

    assert {event.type for event in loop.run(main)} <= {EventType.BOOKMARK}


def test_changing_the_identity_ends_a_running_watch(apiserver) -> None:
    async def main() -> str:
        client = AsyncKubeClient(apiserver.access("one"), timeout=600)
        _, version = await client.list_versioned(resources.NODE)

        async def watch() -> None:
            async for _ in client.watch(resources.NODE, resource_version=version):
                pass

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.2)
        await client.set_identity(apiserver.identity("two", "system:masters"))
        with pytest.raises(errors.Unreachable):
            await asyncio.wait_for(watching, 600)
        review = await client.create({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
        await client.close()
        return review["status"]["userInfo"]["username"]

    assert loop.run(main) == "two"


def test_a_hundred_identities_share_a_process(apiserver) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    patient = Limits(connect=600)  # on a busy machine a handshake may take longer than a client waits

    async def main() -> set[str]:
        found: list[Mapping[str, Any]] = []
        async with contextlib.AsyncExitStack() as stack:
            for first in range(0, 100, 10):  # a few handshakes at a time, so that none waits for all others
                clients = [
                    AsyncKubeClient(apiserver.access(f"user-{number}"), timeout=600, limits=patient) for number in range(first, first + 10)
                ]
                for client in clients:
                    stack.push_async_callback(client.close)
                found += await asyncio.gather(*(client.create(review) for client in clients for _ in range(2)))
        return {answer["status"]["userInfo"]["username"] for answer in found}

    assert loop.run(main) == {f"user-{number}" for number in range(100)}
