"""Requests, evidence and policies for tests of the approver of serving certificates."""

from __future__ import annotations

from typing import Any

import controllers_kit
from controllers_kit import NODES, SERVING_USAGES, request

from kubewright.apis import node_approval
from kubewright.controllers import requests
from kubewright.controllers.requests import KUBELET_SERVING, SigningRequest
from kubewright.controllers.serving.evidence import Evidence, KnownNode

USER = "system:node:a"
IP = ("ip", b"\x0a\x01\x00\x07")
DNS = ("dns", "a")
SANS = ("a", "10.1.0.7")
POLICY = """apiVersion: controllers.kubewright/v1alpha1
kind: NodeApprovalPolicy
sources:
- file:
    nodes:
    - node: a
      names: ["{node}.nodes.example.com"]
      addresses: [10.1.0.7, 10.1.0.9]
    - node: worker-*
      addresses: [10.1.0.0/24]
reserved: [api.example.com, 10.1.0.9, 10.9.0.0/16]
maximumLifetime: 2160h
"""


def policy(text: str = POLICY) -> node_approval.NodeApprovalPolicy:
    return node_approval.read(text.encode(), source="policy.yaml")


def serving_csr(text: bytes | None = None, **fields: Any) -> dict:
    """A request for a serving certificate as the API server has it: the node a asks for its name and its address."""
    wanted = {"signer": KUBELET_SERVING, "usages": SERVING_USAGES, "username": USER, "groups": (NODES, "system:authenticated")}
    return controllers_kit.csr(request(names=(DNS, IP)) if text is None else text, **{**wanted, **fields})


def serving(text: bytes | None = None, **fields: Any) -> SigningRequest:
    return requests.read(serving_csr(text, **fields))


def evidence(**fields: Any) -> Evidence:
    """Evidence with which a request for `SANS` is approved."""
    known = {"node": KnownNode(name="a", reported=frozenset(SANS)), "owned": dict.fromkeys(SANS, "file")}
    return Evidence(**{**known, **fields})
