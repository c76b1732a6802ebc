"""kubelet-serving-approving-controller: gather evidence, decide (pure), write once with the observed resourceVersion."""

from __future__ import annotations

from kubewright.base.clock import Clock
from kubewright.controllers.certificates import is_open
from kubewright.controllers.requests import KUBELET_SERVING, SigningRequest
from kubewright.controllers.serving import journal
from kubewright.controllers.serving.deciding import Ask, Decision, decide
from kubewright.controllers.serving.evidence import node_of
from kubewright.controllers.serving.gathering import Gatherer
from kubewright.controllers.serving.policies import Policy
from kubewright.controllers.serving.policy_controller import PolicyController
from kubewright.controllers.telemetry import Telemetry
from kubewright.kube import core
from kubewright.kube.answers import WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.kube.daemons.controller import SharedInformer
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, ENDPOINTS, NODE, SERVICE_CIDR


class ServingApprover(PolicyController):
    """Approves requests for serving certificates whose names and addresses are proven to be the node's own."""

    name = "servingapproving"

    def __init__(
        self,
        api: AsyncKubeAPI,
        csrs: SharedInformer,
        *,
        clients: SharedInformer,
        nodes: SharedInformer,
        api_servers: SharedInformer,
        service_networks: SharedInformer,
        policy: Policy,
        write: journal.Write,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        super().__init__(api, csrs, wanted=_is_ours, nodes=nodes, policy=policy, write=write, clock=clock, telemetry=telemetry)
        self._clients = clients
        self._api_servers = api_servers
        self._service_networks = service_networks
        self._gatherer = Gatherer()
        self.history = self._gatherer.history
        """Facts about earlier requests, collected while this controller runs."""

    async def run(self) -> None:
        """Work until cancelled."""
        self._policy.subscribe(self._check_all)
        watched = {
            NODE: (self._nodes,),
            ENDPOINTS: (self._api_servers,),
            SERVICE_CIDR: (self._service_networks,),
            # one informer serves both kinds of requests where another controller needs all of them
            CERTIFICATE_SIGNING_REQUEST: (self._csrs,) if self._csrs is self._clients else (self._csrs, self._clients),
        }
        for resource, informers in watched.items():
            for informer in informers:
                informer.subscribe(self._gatherer.readers[resource])
        self._nodes.subscribe(self._node_changed)
        for informer in (self._nodes, self._api_servers, self._service_networks, self._clients):
            await informer.wait_synced()
        await self._wait_for_policy()
        await super().run()

    async def _decision(self, csr: SigningRequest) -> Decision:
        """Decide with the known evidence; ask the sources only if that is not enough.

        Raises NotNow if the policy changes in the meantime.
        """
        policy = self._policy.current
        evidence = self._gatherer.gather(csr, policy, now=self._clock.now())
        decision = decide(csr, evidence, policy, now=self._clock.now())
        if not isinstance(decision, Ask):
            return decision
        fetched = await self._policy.sources.fetch(self._gatherer.question(csr))
        self._require_current(policy, csr)
        now = self._clock.now()  # the answers took time: objects that are watched may have changed as well
        return decide(csr, self._gatherer.gather(csr, policy, now=now).completed(fetched), policy, now=now)

    def _node_changed(self, event: WatchEvent) -> None:
        node, _ = core.identity_of(event.object)
        for name in self._gatherer.history.open_requests(node):
            self._queue.add(name, owner=f"system:node:{node}")

    def _node_of(self, csr: SigningRequest) -> str:
        return node_of(csr.username)


def _is_ours(csr: Object) -> bool:
    return (csr.get("spec") or {}).get("signerName") == KUBELET_SERVING and is_open(csr)
