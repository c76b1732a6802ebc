"""Facts about earlier requests for client certificates: the name that each key has, and the key that each token was used with."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from typing import Final

from kubewright.base.errors import CertificateError
from kubewright.controllers import requests
from kubewright.controllers.requests import CLIENT_KUBELET, SigningRequest
from kubewright.controllers.serving import gathering
from kubewright.controllers.serving.clients import BOOTSTRAP_USER, ClientEvidence
from kubewright.controllers.serving.evidence import node_of
from kubewright.controllers.serving.history import RequestHistory, key_of
from kubewright.controllers.serving.sources.interface import Question
from kubewright.controllers.serving.used_tokens import Use, Uses
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.core import identity_of

MOST: Final = 50_000
"""Names and tokens that are remembered, the latest ones."""


class ClientHistory:
    """Follows Nodes and approved requests. A request counts from the moment at which its approval is decided."""

    def __init__(self, history: RequestHistory) -> None:
        self._history = history
        self._nodes: set[str] = set()
        self._names: OrderedDict[str, dict[bytes, str]] = OrderedDict()
        self._tokens: OrderedDict[str, dict[bytes, str]] = OrderedDict()

    def node_changed(self, event: WatchEvent) -> None:
        """Note that a Node exists, or that it was deleted: then its name is free again."""
        name, _ = identity_of(event.object)
        if event.type is EventType.DELETED:
            self._nodes.discard(name)
            self._names.pop(name, None)
        else:
            self._nodes.add(name)

    def changed(self, event: WatchEvent) -> None:
        """Note an approved request."""
        if event.type is not EventType.DELETED:
            csr = requests.read(event.object)
            if csr.signer == CLIENT_KUBELET and csr.approved:
                self.approved(csr)

    def used(self, uses: Uses) -> None:
        """Note the tokens that are stored as used."""
        for token, use in uses.items():
            user = f"{BOOTSTRAP_USER}{token}"
            if use.key not in self._tokens.get(user, {}):
                _latest(self._tokens, user)[use.key] = use.node

    def approved(self, csr: SigningRequest) -> None:
        """Tie the name and the token of a request to its key."""
        key, node = key_of(csr), _node(csr)
        if key is None or not node:
            return
        _latest(self._names, node).setdefault(key, csr.name)
        if csr.username.startswith(BOOTSTRAP_USER):
            _latest(self._tokens, csr.username)[key] = node

    def question(self, csr: SigningRequest) -> Question:
        """Return the question about a request that the join records are asked."""
        node = _node(csr)
        return gathering.question(csr, self._history, node=node, names=(node,), addresses=())

    def evidence(self, csr: SigningRequest, *, now: datetime) -> ClientEvidence:
        """Return the evidence about a request, without join records."""
        key, node = key_of(csr), _node(csr)
        if key is None:
            return ClientEvidence()
        others = [one for other, one in self._tokens.get(csr.username, {}).items() if other != key]
        known = self._names.get(node, {})
        return ClientEvidence(
            exists=node in self._nodes,
            name_key=bool(known.keys() - {key}),
            token_key=f"the bootstrap token was used for {others[0]}, with another key" if others else "",
            key_holder=next(
                iter(sorted(f"{user} for {signer}" for signer, user in self._history.holders(csr) if _is_other(signer, user, csr))), ""
            ),
            used=known.get(key, csr.name) != csr.name,  # the write of an approval may have to be repeated
            newer=self._history.newer(csr),
            recent=self._history.recent(csr, now=now),
        )


def use_of(csr: SigningRequest, *, now: datetime) -> Use | None:
    """Return for which key and node a request uses its token; None for a request that cannot be read."""
    key, node = key_of(csr), _node(csr)
    return Use.of(key, node, now=now) if key is not None and node else None


def _latest(known: OrderedDict[str, dict[bytes, str]], name: str) -> dict[bytes, str]:
    """Return the facts about a name, which becomes the latest one of at most `MOST`."""
    found = known.setdefault(name, {})
    known.move_to_end(name)
    while len(known) > MOST:
        known.popitem(last=False)
    return found


def _is_other(signer: str, user: str, csr: SigningRequest) -> bool:
    """Whether a holder of a key is someone else. A machine may request its first certificate again with another token."""
    if signer != csr.signer:
        return True
    both_first = user.startswith(BOOTSTRAP_USER) and csr.username.startswith(BOOTSTRAP_USER)
    return user != csr.username and not both_first


def _node(csr: SigningRequest) -> str:
    try:
        return node_of(csr.details().common_name)
    except CertificateError:
        return ""
