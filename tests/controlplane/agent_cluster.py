"""A whole control plane for node agents: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and the permissions that kubeadm grants."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trustme
from local_kit import program

from kubewright.agent.certificates.bootstrap import TokenBootstrap
from kubewright.agent.server import KubeletServer
from kubewright.agent.view import NodeView
from kubewright.apis.kubeadm.types import BootstrapToken
from kubewright.apis.kubeconfig import EmbeddedCertificate, kubeconfig_document
from kubewright.base import unexpected, yaml
from kubewright.base.clock import SystemClock
from kubewright.base.errors import APIError, NotFound
from kubewright.base.randomness import SystemRandom
from kubewright.fleet.nodes import Fleet
from kubewright.kube import resources
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access, ClientCertificate
from kubewright.pki.pins import of_bundle
from kubewright.tokens import cluster_info, secrets, strings
from kubewright.tokens.strings import BootstrapTokenString
from loopback import free_address

RBAC = "rbac.authorization.k8s.io"
BOOTSTRAPPERS = "system:bootstrappers:kubeadm:default-node-token"
BINDINGS = (
    ("kubeadm:cluster-admins", "cluster-admin", "kubeadm:cluster-admins"),
    ("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", BOOTSTRAPPERS),
    ("kubeadm:node-autoapprove-bootstrap", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", BOOTSTRAPPERS),
    (
        "kubeadm:node-autoapprove-certificate-rotation",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        "system:nodes",
    ),
)


@dataclass
class AgentCluster:
    """The control plane's address, and what is needed to join it."""

    place: Path
    address: str
    authority: trustme.CA
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    token: BootstrapTokenString = field(default_factory=lambda: strings.generate(SystemRandom()))
    _ended: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"https://{self.address}:6443"

    @property
    def ca_pem(self) -> bytes:
        return self.authority.cert_pem.bytes()

    def access(self, name: str = "kubernetes-admin", *groups: str) -> Access:
        leaf = self.authority.issue_cert(
            "client.example",
            common_name=name,
            organization_name=(groups or ("system:masters",))[0] if groups or name == "kubernetes-admin" else None,
        )
        pem = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        return Access(server=self.url, ca_pem=self.ca_pem, identity=ClientCertificate(cert_pem=pem, key_pem=leaf.private_key_pem.bytes()))

    def kubeconfig(self, name: str, *groups: str) -> Path:
        access = self.access(name, *groups)
        assert isinstance(access.identity, ClientCertificate)
        document = kubeconfig_document(
            server=access.server,
            cluster_name="test",
            user=name,
            credentials=EmbeddedCertificate(certificate_pem=access.identity.cert_pem, key_pem=access.identity.key_pem),
            ca_pem=access.ca_pem,
        )
        path = self.place / f"{name.replace(':', '-')}.conf"
        path.write_text(yaml.dump(document))
        return path

    def bootstrap(self) -> TokenBootstrap:
        return TokenBootstrap(self.url, self.token, pins=of_bundle(self.ca_pem), clock=SystemClock(), within=600)

    def client(self) -> KubeClient:
        """Make a client of its administrator."""
        return KubeClient(self.access(), timeout=600)

    def kubectl(self, *arguments: str, check: bool = True, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        admin = self.place / "kubernetes-admin.conf"
        if not admin.exists():
            self.kubeconfig("kubernetes-admin")
        return subprocess.run(
            [program("kubectl"), f"--kubeconfig={admin}", *arguments], check=check, capture_output=True, text=True, input=stdin, timeout=900
        )

    def kill_server(self) -> None:
        """Kill the API server; `revive_server` starts it again."""
        [process] = [one for one in self.processes if Path(_argv(one)[0]).name == "kube-apiserver"]
        process.kill()
        process.wait(600)
        self.processes.remove(process)
        self._ended = _argv(process)

    def revive_server(self) -> None:
        start(self, "kube-apiserver", *self._ended[1:])

    def cpu_seconds(self) -> float:
        """User and system time of all components."""
        ticks = 0
        for process in self.processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def agent_cluster(
    place: Path, *, signing_duration: str = "8760h", audit: bool = False, grace: str = "50s", manager: Sequence[str] = ()
) -> Iterator[AgentCluster]:
    """Start everything, wait until nodes can join, and stop everything at the end.

    `manager` are additional flags of kube-controller-manager.
    """
    authority, address = trustme.CA(), free_address((2379, 2380, 6443, 10250, 10257, 10259))
    cluster = AgentCluster(place, address, authority)
    leaf = authority.issue_cert(address, "127.0.0.1", "localhost", "10.96.0.1", "kubernetes.default.svc")
    leaf.private_key_and_cert_chain_pem.write_to_path(str(place / "server.pem"))
    leaf.private_key_pem.write_to_path(str(place / "sa.key"))
    authority.cert_pem.write_to_path(str(place / "ca.crt"))
    authority.private_key_pem.write_to_path(str(place / "ca.key"))
    kubelet = authority.issue_cert(
        "client.example", common_name="kube-apiserver-kubelet-client", organization_name="kubeadm:cluster-admins"
    )
    kubelet.private_key_and_cert_chain_pem.write_to_path(str(place / "kubelet-client.pem"))
    try:
        start_api(cluster, audit=audit)
        grant(cluster)
        start_controllers(cluster, signing_duration, grace, *manager)
        wait_for(lambda: b"jws-kubeconfig" in _get(cluster, "/api/v1/namespaces/kube-public/configmaps/cluster-info"), cluster)
        wait_for(lambda: b'"default"' in _get(cluster, "/api/v1/namespaces/default/serviceaccounts/default"), cluster)
        yield cluster
    finally:
        for process in reversed(cluster.processes):  # none of their data is kept
            process.kill()
            process.wait()


def start_api(cluster: AgentCluster, *, audit: bool) -> None:
    place, address = cluster.place, cluster.address
    etcd_url, pair = f"http://{address}:2379", str(place / "server.pem")
    start(
        cluster,
        "etcd",
        *(f"--data-dir={place / 'etcd'}", "--name=test", "--unsafe-no-fsync"),
        *(f"--listen-client-urls={etcd_url}", f"--advertise-client-urls={etcd_url}"),
        *(f"--listen-peer-urls=http://{address}:2380", f"--initial-advertise-peer-urls=http://{address}:2380"),
        *(f"--initial-cluster=test=http://{address}:2380", "--heartbeat-interval=10", "--election-timeout=100"),
    )
    auditing: tuple[str, ...] = ()
    if audit:
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}
        (place / "audit.yaml").write_text(json.dumps(policy))
        auditing = (f"--audit-policy-file={place / 'audit.yaml'}", f"--audit-log-path={place / 'audit.log'}")
    start(
        cluster,
        "kube-apiserver",
        *(f"--etcd-servers={etcd_url}", f"--tls-cert-file={pair}", f"--tls-private-key-file={pair}"),
        *(f"--client-ca-file={place / 'ca.crt'}", "--authorization-mode=Node,RBAC", "--enable-bootstrap-token-auth"),
        *("--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={place / 'sa.key'}"),
        *(f"--service-account-signing-key-file={place / 'sa.key'}", "--service-cluster-ip-range=10.96.0.0/24"),
        *(f"--bind-address={address}", f"--advertise-address={address}", "--endpoint-reconciler-type=none"),
        *("--enable-admission-plugins=NodeRestriction", "--shutdown-delay-duration=0s", "--kubelet-preferred-address-types=InternalIP"),
        *(f"--kubelet-client-certificate={place / 'kubelet-client.pem'}", f"--kubelet-client-key={place / 'kubelet-client.pem'}"),
        *auditing,
    )
    wait_for(lambda: _get(cluster, "/readyz") == b"ok", cluster)
    wait_for(lambda: bool(_get(cluster, "/api/v1/namespaces/default")), cluster)  # the last one that the server creates, with a delay


def grant(cluster: AgentCluster) -> None:
    """Write what kubeadm's init writes so that machines with a token can join."""
    api = cluster.client()
    for name, role, group in BINDINGS:
        api.create(
            binding("ClusterRoleBinding", name, role={"kind": "ClusterRole", "name": role}, subject={"kind": "Group", "name": group})
        )
    role = resources.Resource(group=RBAC, version="v1", kind="Role", plural="roles", namespaced=True)
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["cluster-info"], "verbs": ["get"]}]
    metadata = {"name": "kubeadm:bootstrap-signer-clusterinfo", "namespace": "kube-public"}
    api.create({"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules}, resource=role)
    anonymous = {"kind": "User", "name": "system:anonymous"}
    body = binding("RoleBinding", metadata["name"], role={"kind": "Role", "name": metadata["name"]}, subject=anonymous)
    body["metadata"]["namespace"] = "kube-public"
    api.create(body)
    api.create(cluster_info.config_map(server=cluster.url, ca_pem=cluster.ca_pem))
    token = BootstrapToken(token=cluster.token.text, groups=[BOOTSTRAPPERS], usages=["signing", "authentication"])
    api.create(secrets.secret_object(token, clock=SystemClock()))
    api.close()


def binding(kind: str, name: str, *, role: dict[str, str], subject: dict[str, str]) -> dict:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, **role},
        "subjects": [{"apiGroup": RBAC, **subject}],
    }


def start_controllers(cluster: AgentCluster, signing_duration: str, grace: str, *more: str) -> None:
    place, address = cluster.place, cluster.address
    manager = cluster.kubeconfig("system:kube-controller-manager")
    start(
        cluster,
        "kube-controller-manager",
        *(f"--kubeconfig={manager}", f"--authentication-kubeconfig={manager}", f"--authorization-kubeconfig={manager}"),
        *("--controllers=*,bootstrapsigner,tokencleaner", "--leader-elect=false", f"--bind-address={address}"),
        *(
            "--allocate-node-cidrs=true",
            "--cluster-cidr=10.128.0.0/9",
            "--node-cidr-mask-size=24",
            "--use-service-account-credentials=true",
        ),
        *(f"--cluster-signing-cert-file={place / 'ca.crt'}", f"--cluster-signing-key-file={place / 'ca.key'}"),
        *(f"--cluster-signing-duration={signing_duration}", f"--root-ca-file={place / 'ca.crt'}", f"--node-monitor-grace-period={grace}"),
        "--node-monitor-period=1s",
        *(f"--service-account-private-key-file={place / 'sa.key'}", "--kube-api-qps=1000", "--kube-api-burst=2000"),
        *more,
    )
    scheduler = cluster.kubeconfig("system:kube-scheduler")
    start(
        cluster,
        "kube-scheduler",
        *(f"--kubeconfig={scheduler}", f"--authentication-kubeconfig={scheduler}", f"--authorization-kubeconfig={scheduler}"),
        *("--leader-elect=false", f"--bind-address={address}", "--kube-api-qps=1000", "--kube-api-burst=2000"),
    )


def start(cluster: AgentCluster, name: str, *arguments: str) -> None:
    log = cluster.place / f"{name}.log"
    with log.open("ab") as stream:
        process = subprocess.Popen(
            [program(name), *arguments],
            stdout=stream,
            stderr=stream,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - no threads yet
        )
    cluster.processes.append(process)


def wait_for(condition, cluster: AgentCluster, *, within: float = 600) -> None:
    end = time.monotonic() + within
    while time.monotonic() < end:
        require_components(cluster)
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("the control plane did not come up")


def require_components(cluster: AgentCluster) -> None:
    """Fail, with the ends of the logs, if a component has ended."""
    dead = [process.args[0] for process in cluster.processes if process.poll() is not None]
    if dead:
        pytest.fail("\n".join([f"{dead} ended:", *last_lines(cluster)]))


def last_lines(cluster: AgentCluster) -> list[str]:
    """Return the end of each component's log."""
    names = [Path(_argv(process)[0]).name for process in cluster.processes]
    return [f"{name}:\n{(cluster.place / f'{name}.log').read_text()[-3000:]}" for name in names]


def _get(cluster: AgentCluster, path: str) -> bytes:
    client = KubeClient(cluster.access(), timeout=600)
    try:
        answer = client.raw("GET", path)
    except (APIError, NotFound):
        return b""
    finally:
        client.close()
    return answer.body if answer.status == 200 else b""


async def all_ready(cluster: AgentCluster, fleet: Fleet, *, within: float = 600) -> None:
    """Wait until every node of a fleet has been ready. Fails with what each node reports, and at once if a component has ended.

    The agents are looked up each time, because one that failed unexpectedly has been replaced.
    """
    try:
        async with asyncio.timeout(within):
            while not all(agent.ready.is_set() for agent in fleet.agents()):
                require_components(cluster)
                await asyncio.sleep(0.05)
    except TimeoutError:
        told = [f"unexpected errors: {dict(unexpected.counts())}", *map(str, views(fleet)), *last_lines(cluster)]
        pytest.fail("\n".join(["not all nodes became ready:", *told]))


def views(fleet: Fleet) -> list[NodeView]:
    """Return the state of every node of a fleet."""
    return [agent.view() for agent in fleet.agents()]


async def stop_serving(kubelet: KubeletServer) -> None:
    """Close a kubelet API at once: after a refused exec the API server leaves its connection half open for half a minute."""
    if kubelet._server is not None:
        for handler in list(kubelet._server._runner.server.connections):
            handler.transport.abort()
    await kubelet.stop()


def _argv(process: subprocess.Popen[bytes]) -> list[str]:
    return [str(word) for word in process.args]  # type: ignore[union-attr]


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
