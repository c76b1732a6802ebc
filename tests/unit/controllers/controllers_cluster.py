"""A cluster in memory with running controllers, for tests with virtual time."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath

from controllers_kit import NOW, authority_files

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

from fake_api import FakeAPI, FakeClient

from kubewright.base.randomness import SeededRandom
from kubewright.controllers import options
from kubewright.controllers.manager import Manager
from kubewright.controllers.options import Options
from kubewright.controllers.serving.locations import PolicyObject
from kubewright.controllers.serving.sources.interface import Tools
from kubewright.controllers.telemetry import ControllerMetrics
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.credentials import Access
from kubewright.kube.daemons.electing import Election
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST

EVERY_ONE = options.selected(["*", "bootstrapsigner", "tokencleaner"])
CA, CA_KEY = PurePosixPath("/pki/ca.crt"), PurePosixPath("/pki/ca.key")
NODE_POLICY = PurePosixPath("/policy.yaml")
TEXT = "apiVersion: v1\n"
GARBAGE = {"expiration": "garbage"}


class LoopClock:
    """The wall clock, which follows the loop's virtual time."""

    def now(self) -> datetime:
        return NOW + timedelta(seconds=asyncio.get_running_loop().time())


class Client(FakeClient):
    """Answers access reviews: those for `allowed` subresources are granted."""

    allowed = frozenset({"nodeclient", "selfnodeclient"})
    """Changed by tests, on an instance."""

    async def send(self, call):
        if call.resource.kind == "SubjectAccessReview":
            await self._enter(call.verb, "subjectaccessreviews", "", call.body)
            return {"status": {"allowed": call.body["spec"]["resourceAttributes"]["subresource"] in self.allowed}}
        return await super().send(call)


class Cluster:
    """The objects, and a manager of controllers. `through` makes the manager's client from one with all permissions."""

    def __init__(
        self,
        *objects: dict,
        files: dict | None = None,
        tools: Tools | None = None,
        election: Election | None = None,
        wanted=EVERY_ONE,
        allowed=None,
        metrics: ControllerMetrics | None = None,
        policy: str | PolicyObject = "",
        through: Callable[[AsyncKubeAPI], AsyncKubeAPI] = lambda client: client,
    ) -> None:
        self.api = FakeAPI()
        for obj in objects:
            obj["metadata"].pop("resourceVersion", None)
            self.api.put(obj)
        self.client = Client(self.api, Access(server="https://api"))
        if allowed is not None:
            self.client.allowed = frozenset(allowed)
        self.files = dict(zip((CA, CA_KEY), authority_files(), strict=True)) if files is None else files
        chosen = Options(
            controllers=wanted,
            files=dict.fromkeys(("kubelet-client", "kubelet-serving", "kube-apiserver-client", "legacy-unknown"), (CA, CA_KEY)),
            election=election,
            qps=1000,
            burst=1000,
            node_policy=policy if isinstance(policy, PolicyObject) else NODE_POLICY if policy else None,
        )
        if isinstance(policy, str):
            self.set_policy(policy)
        self.manager = Manager(
            through(self.client),
            chosen,
            identity="me",
            read=self.files.get,
            clock=LoopClock(),
            random=SeededRandom(1),
            metrics=metrics,
            tools=tools,
        )

    def set_policy(self, text: str) -> None:
        """Change the file of the NodeApprovalPolicy."""
        self.files[NODE_POLICY] = text.encode()

    def events(self) -> list[dict]:
        return [obj for obj in self.api.objects.values() if obj["kind"] == "Event"]

    @asynccontextmanager
    async def running(self, seconds: float = 1.0):
        task = asyncio.create_task(self.manager.run())
        await asyncio.sleep(seconds)
        yield self
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def csr(self, name="csr-1") -> dict:
        return self.api.get(CERTIFICATE_SIGNING_REQUEST, name)

    def kinds(self, name="csr-1") -> list[str]:
        return [one["type"] for one in self.csr(name)["status"].get("conditions", ())]

    def writes(self, what: str = "certificatesigningrequests") -> int:
        return len(self.api.made("update", what))


def token(id_="abcdef", **values: str) -> dict:
    content = {"token-id": id_, "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true", **values}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": f"bootstrap-token-{id_}", "namespace": "kube-system", "uid": f"uid-{id_}"},
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in content.items()},
    }


def cluster_info(**data: str) -> dict:
    metadata = {"name": "cluster-info", "namespace": "kube-public"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"kubeconfig": TEXT, **data}}
