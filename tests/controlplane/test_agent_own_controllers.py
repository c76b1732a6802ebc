"""`agent run` in a cluster whose certificates are approved and signed by kubewright's own controllers."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from agent_process import Agent, eventually, ready_node, requests_of, usable_address
from local_agents import LocalAgentCluster, local_agent_cluster

from kubewright.kube.client import KubeClient
from kubewright.pki.requests import csr

SIGNED = "60s"
"""With five minutes of backdating they are renewed 24 s after signing at the latest, serving certificates once they are approved."""


@pytest.fixture
def cluster() -> Iterator[LocalAgentCluster]:
    with local_agent_cluster(signing_duration=SIGNED) as running:
        yield running


@pytest.fixture
def api(cluster: LocalAgentCluster) -> Iterator[KubeClient]:
    made = cluster.client()
    yield made
    made.close()


def serving(api: KubeClient, *, undecided: bool = False) -> list[dict[str, Any]]:
    rows = [row for row in requests_of(api, "device-1") if row["spec"]["signerName"] == csr.SERVING_SIGNER]
    return [row for row in rows if not (undecided and (row.get("status") or {}).get("conditions"))]


def conditions(row: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["type"], one["reason"]) for one in row["status"]["conditions"]]


def test_client_certificates_are_approved_serving_certificates_wait_for_a_person_and_both_are_renewed(
    cluster: LocalAgentCluster, api: KubeClient, tmp_path: Path
) -> None:
    address = usable_address()
    pki = tmp_path / "root" / "pki"
    (tmp_path / "ca.crt").write_bytes(cluster.ca_pem)
    agent = Agent(tmp_path, cluster, "device-1", cluster.token())
    flags = (f"--node-ip={address}", f"--address={address}", f"--client-ca-file={tmp_path / 'ca.crt'}", "--rotate-server-certificates")
    agent.start(*flags)
    try:
        ready_node(api, agent)
        first = eventually(lambda: list(pki.glob("kubelet-client-2*")), "the certificate", agent)[0].name
        clients = eventually(lambda: clients_decided(api), "all requests for client certificates to be decided", agent)
        assert {one for row in clients for one in conditions(row)} == {("Approved", "AutoApproved")}

        [request] = eventually(lambda: serving(api), "the serving request", agent)
        eventually(lambda: (pki / "kubelet-client-current.pem").resolve().name > first, "another client certificate", agent)
        [waits] = serving(api)
        assert (waits["metadata"]["uid"], waits.get("status") or {}) == (request["metadata"]["uid"], {})
        assert agent.status()[1]["servingCertificate"]["waiting"]["request"] == request["metadata"]["name"]

        def served(last: str) -> str:
            """Approve what waits: on a busy machine a certificate may expire before it is served, and is requested again."""
            for row in serving(api, undecided=True):
                cluster.kubectl("certificate", "approve", row["metadata"]["name"])
            found = served_until(address, cluster.ca_pem)
            return found if found > last else ""

        first_end = eventually(lambda: served(""), "the certificate to be served", agent)
        eventually(lambda: served(first_end), "another one to be served", agent)
        assert "Traceback" not in agent.log()
    finally:
        agent.stop()


def clients_decided(api: KubeClient) -> list[dict[str, Any]]:
    """Return the requests for client certificates; none while one waits, for example that of a renewal."""
    found = [row for row in requests_of(api, "device-1") if row["spec"]["signerName"] == csr.CLIENT_SIGNER]
    return found if all(row.get("status") for row in found) else []


def served_until(address: str, ca_pem: bytes) -> str:
    """Return the expiry of the certificate that a kubelet API uses, which must be signed by the cluster and for this address.

    '' for none.
    """
    context = ssl.create_default_context(cadata=ca_pem.decode())
    try:
        with socket.create_connection((address, 10250), 10) as plain, context.wrap_socket(plain, server_hostname=address) as wrapped:
            shown = wrapped.getpeercert() or {}
    except OSError:
        return ""
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(shown["notAfter"])), UTC).isoformat()
