"""The sources of a NodeApprovalPolicy that are asked for each node: join records, Machines, DNS, a webhook. Pure.

    - joinRecords: {state: /var/lib/kubewright/hub.db, keyFile: /etc/kubewright/hub.key, cluster: team-a}
    - machines: {kubeconfig: /etc/kubewright/management.conf, namespace: team-a, cluster: team-a}
    - dns: {names: ["{node}.nodes.example.com"], resolvers: [10.0.0.53]}
    - webhook:
        url: https://inventory.example.com/nodes
        certificateAuthority: |
          -----BEGIN CERTIFICATE-----

A kind of source is a row of `KINDS`. Its settings in the policy are checked here; how it is queried is in
`controllers.serving.sources`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from kubewright.apis import formats
from kubewright.apis.findings import Place
from kubewright.apis.scalars import FLAG, INT32, SPAN, TEXT
from kubewright.apis.schema import List, member, struct
from kubewright.base.durations import Duration
from kubewright.base.records import dataclass

NODE_NAME: Final = "{node}"
"""Stands for the node's name in patterns."""
LONGEST_TIMEOUT: Final = Duration.of_seconds(30)
"""The longest time that a worker of the approver waits."""
MACHINE_APIS: Final = ("cluster.x-k8s.io/v1beta2", "cluster.x-k8s.io/v1beta1", "machine.openshift.io/v1beta1")
"""The APIs of Machines: Cluster API (since 1.11, and before), OpenShift."""
KUBELET_PORT: Final = 10250
_PEM: Final = "-----BEGIN CERTIFICATE-----"


@struct
class JoinRecordsSource:
    """The join records of a hub: the names and the VPN addresses with which each node has joined."""

    state: str = member(TEXT, "state of the hub: a file, or secrets:NAMESPACE/NAME", default="")
    state_kubeconfig: str = member(TEXT, "kubeconfig of the cluster that has the Secrets", default="")
    key_file: str = member(TEXT, "key of the state", default="")
    cluster: str = member(TEXT, "name of this cluster in the hub", default="")
    required: bool = member(FLAG, "nodes without a join record wait", default=False)
    credentials: bool = member(FLAG, "only certificates that the hub or the API server has issued count as a node's", default=False)
    timeout: Duration = member(SPAN, "longest time for one answer", default=Duration.of_seconds(5))


@struct
class MachinesSource:
    """Machine objects of Cluster API or OpenShift: the addresses that the infrastructure has given to each machine."""

    kubeconfig: str = member(TEXT, "kubeconfig of the cluster that has the Machines", default="")
    api_version: str = member(TEXT, f"one of {', '.join(MACHINE_APIS)}", default=MACHINE_APIS[0])
    namespace: str = member(TEXT, "namespace of the Machines", default="")
    cluster: str = member(TEXT, "name of the Cluster of the Machines (Cluster API)", default="")
    timeout: Duration = member(SPAN, "longest time for one answer", default=Duration.of_seconds(10))


@struct
class DNSSource:
    """DNS: the addresses of names that only the node can have, each of which must lead back to the name."""

    names: tuple[str, ...] = member(List(TEXT), "names of a node; {node} is its name", default=())
    resolvers: tuple[str, ...] = member(List(TEXT), "addresses of DNS servers, those of resolv.conf by default", default=())
    forward_only: bool = member(FLAG, "accept addresses without a reverse record", default=False)
    timeout: Duration = member(SPAN, "longest time for one answer", default=Duration.of_seconds(3))


@struct
class WebhookSource:
    """An HTTPS service that says which names and addresses a node has."""

    url: str = member(TEXT, "https://HOST[:PORT]/PATH", default="")
    certificate_authority: str = member(TEXT, "PEM of the CA that has signed the service's certificate", default="")
    timeout: Duration = member(SPAN, "longest time for one answer", default=Duration.of_seconds(5))


@struct
class DNSCheck:
    """Each DNS name of a request must resolve to an address of the request, and to none that the node may not have."""

    resolvers: tuple[str, ...] = member(List(TEXT), "addresses of DNS servers, those of resolv.conf by default", default=())
    timeout: Duration = member(SPAN, "longest time for one answer", default=Duration.of_seconds(3))


@struct
class CallBack:
    """Connect to each address of a request: a kubelet that shows another node's certificate there has the address."""

    certificate_authority: str = member(TEXT, "PEM of the CA that signs serving certificates of kubelets", default="")
    port: int = member(INT32, "port of the kubelet API", default=KUBELET_PORT)
    timeout: Duration = member(SPAN, "longest time for one connection", default=Duration.of_seconds(2))


AskedSource = JoinRecordsSource | MachinesSource | DNSSource | WebhookSource


@dataclass(frozen=True, kw_only=True)
class SourceKind:
    """A kind of source: its field of a policy, its struct, and the function that records errors in one."""

    name: str
    struct: type
    check: Callable[[Any, Place], None]


def _check_records(found: JoinRecordsSource, at: Place) -> None:
    _require(at, {"state": found.state, "keyFile": found.key_file, "cluster": found.cluster})
    scheme, colon, rest = found.state.partition(":")
    if colon and (scheme != "secrets" or not all(rest.partition("/")) or not found.state_kubeconfig):
        (at / "state").invalid("must be a file, or secrets:NAMESPACE/NAME with stateKubeconfig", found.state)
    check_timeout(found.timeout, at)


def _check_machines(found: MachinesSource, at: Place) -> None:
    _require(at, {"kubeconfig": found.kubeconfig, "namespace": found.namespace})
    if found.api_version not in MACHINE_APIS:
        (at / "apiVersion").invalid(f"must be one of {', '.join(MACHINE_APIS)}", found.api_version)
    elif found.api_version.startswith("cluster.x-k8s.io/") and not found.cluster:
        (at / "cluster").required("a namespace may have the Machines of several clusters")
    check_timeout(found.timeout, at)


def _check_dns(found: DNSSource, at: Place) -> None:
    if not found.names:
        (at / "names").required("without a name there is nothing to look up")
    for index, text in enumerate(found.names):
        if NODE_NAME not in text:
            (at / "names")[index].invalid(f"must contain {NODE_NAME}: every node would have the name", text)
        elif problems := formats.subdomain_problems(text.replace(NODE_NAME, "x")):
            (at / "names")[index].invalid("; ".join(problems), text)
    check_resolvers(found.resolvers, at)
    check_timeout(found.timeout, at)


def _check_webhook(found: WebhookSource, at: Place) -> None:
    try:
        url = urlsplit(found.url)
        good = url.scheme == "https" and bool(url.hostname) and not url.username and not url.fragment and url.port != 0
    except ValueError:
        good = False
    if not found.url:
        (at / "url").required("must be the URL of the service")
    elif not good or not found.url.isascii() or set(found.url) & set(' "\\'):
        (at / "url").invalid("must be https://HOST[:PORT]/PATH", found.url)
    check_authority(found.certificate_authority, at)
    check_timeout(found.timeout, at)


KINDS: Final = (
    SourceKind(name="joinRecords", struct=JoinRecordsSource, check=_check_records),
    SourceKind(name="machines", struct=MachinesSource, check=_check_machines),
    SourceKind(name="dns", struct=DNSSource, check=_check_dns),
    SourceKind(name="webhook", struct=WebhookSource, check=_check_webhook),
)


def check(source: AskedSource, at: Place) -> None:
    """Record the errors of a source."""
    next(kind for kind in KINDS if kind.struct is source.__class__).check(source, at)


def check_call_back(found: CallBack, at: Place) -> None:
    """Record the errors in the settings of the call-back."""
    check_authority(found.certificate_authority, at)
    if not 0 < found.port < 65536:
        (at / "port").invalid("must be a port number", found.port)
    check_timeout(found.timeout, at)


def check_authority(text: str, at: Place) -> None:
    """Record an error if the CA is missing or not in PEM form. Errors in its content are found when it is used."""
    if not text:
        (at / "certificateAuthority").required("without a CA any server would be trusted")
    elif _PEM not in text:
        (at / "certificateAuthority").invalid("is not a PEM certificate", text)


def check_timeout(found: Duration, at: Place) -> None:
    """Record an error if the timeout is missing or too long."""
    if not 0 < found <= LONGEST_TIMEOUT:
        (at / "timeout").invalid(f"must be more than 0 and at most {LONGEST_TIMEOUT}", str(found))


def check_resolvers(found: Iterable[str], at: Place) -> None:
    """Record an error for each DNS server that is not an address."""
    for index, text in enumerate(found):
        try:
            resolver(text)
        except ValueError as error:
            (at / "resolvers")[index].invalid(str(error), text)


def resolver(text: str) -> tuple[str, int]:
    """Return address and port of a DNS server: `10.0.0.53`, `10.0.0.53:5353`, `[2001:db8::53]:53`. Raises ValueError."""
    host, port = (text, "53") if formats.address(text) is not None else formats.split_host_port(text)
    address = formats.address(host)
    if address is None or not formats.is_port(port):
        raise ValueError("must be an address, with a port or without one")
    return str(address), int(port)


def _require(at: Place, fields: dict[str, str]) -> None:
    for name, value in fields.items():
        if not value:
            (at / name).required("must be given")
