"""NodeApprovalPolicy: the names and addresses for which nodes may get serving certificates. Pure.

    apiVersion: controllers.kubewright/v1alpha1
    kind: NodeApprovalPolicy
    sources:
    - file:
        nodes:
        - node: worker-*
          names: ["{node}.nodes.example.com"]
          addresses: [10.1.0.0/16]
    reserved: [api.example.com, 10.1.0.5]
    maximumLifetime: 2160h

A source says where the names and addresses of a node come from, independent of the node itself. A name is allowed if
any source allows it. Sources that have to be asked are in `apis.node_sources`.
"""

from __future__ import annotations

import fnmatch
import hashlib
import ipaddress
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kubewright.apis import formats, node_sources
from kubewright.apis.findings import Findings, Place
from kubewright.apis.formats import Network
from kubewright.apis.node_sources import (
    NODE_NAME,
    AskedSource,
    CallBack,
    DNSCheck,
    DNSSource,
    JoinRecordsSource,
    MachinesSource,
    WebhookSource,
)
from kubewright.apis.scalars import FLAG, SPAN, TEXT
from kubewright.apis.schema import List, Pointer, Struct, member, members, struct
from kubewright.base import yaml
from kubewright.base.durations import Duration
from kubewright.base.errors import DocumentError, ValidationError
from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass, field, replace
from kubewright.base.yaml import Document

API_VERSION: Final = "controllers.kubewright/v1alpha1"
KIND: Final = "NodeApprovalPolicy"
DEFAULT_LIFETIME: Final = Duration.of_seconds(90 * 86400)
LONGEST_LIFETIME: Final = Duration.of_seconds(366 * 86400)
SOURCES, CERTIFICATE = "sources", "certificate"
"""The requirements for a renewal: those of every request, or only that its names are in the node's present serving certificate."""
STOCK, STRICT = "stock", "strict"
"""The approver of nodes' client certificates: that of kube-controller-manager, or these rules."""
AUTOMATIC, HUMAN = "automatic", "human"
_TOKEN_ID: Final = Pattern(r"[a-z0-9]{6}")
MOST_NODES: Final = 20_000
"""Rows of one file source."""
LARGEST: Final = 8 << 20
"""The largest policy in bytes: more than all permitted rows take. A ConfigMap has at most 1 MiB."""
_META: Final = frozenset({"apiVersion", "kind", "metadata"})


@struct
class FileRow:
    """The names that a node, or every node with a matching name, may have, and its addresses."""

    node: str = member(TEXT, "name of a node, or a pattern with * and ?", default="")
    names: tuple[str, ...] = member(List(TEXT), "further DNS names, or patterns with * and ?; {node} is the node's name", default=())
    addresses: tuple[str, ...] = member(List(TEXT), "addresses and CIDRs", default=())
    tokens: tuple[str, ...] = member(
        List(TEXT), "ids of bootstrap tokens for its first client certificate, with clients: strict", default=()
    )


@struct
class FileSource:
    """A list of nodes in the policy itself. The first row whose name matches counts."""

    nodes: tuple[FileRow, ...] = member(List(Struct(FileRow)), "nodes with the names and addresses that they may have", default=())


@struct
class NodesSource:
    """The addresses that kubelets report about themselves: weak evidence, limited by `nodeCIDRs` and `dnsSuffixes`."""

    trust_reported_addresses: bool = member(FLAG, "must be true: nodes can report any address", default=False)


@struct
class Source:
    """Exactly one of the fields is set."""

    file: FileSource | None = member(Pointer(Struct(FileSource)), "nodes that this policy lists", default=None)
    join_records: JoinRecordsSource | None = member(Pointer(Struct(JoinRecordsSource)), "the join records of a hub", default=None)
    machines: MachinesSource | None = member(Pointer(Struct(MachinesSource)), "Machines of a management cluster", default=None)
    dns: DNSSource | None = member(Pointer(Struct(DNSSource)), "forward and reverse DNS records", default=None)
    webhook: WebhookSource | None = member(Pointer(Struct(WebhookSource)), "an HTTPS service", default=None)
    nodes: NodesSource | None = member(Pointer(Struct(NodesSource)), "addresses that the Nodes report", default=None)


@struct
class _Document:
    sources: tuple[Source, ...] = member(List(Struct(Source)), "where names and addresses come from, in order", default=())
    reserved: tuple[str, ...] = member(List(TEXT), "names, addresses and CIDRs that no node may have", default=())
    node_cidrs: tuple[str, ...] = member(List(TEXT), "networks of the nodes", default=(), name="nodeCIDRs")
    dns_suffixes: tuple[str, ...] = member(List(TEXT), "domains of the nodes' names", default=())
    cluster_domain: str = member(TEXT, "DNS domain of Services", default="cluster.local")
    maximum_lifetime: Duration = member(SPAN, "longest expirationSeconds of a request", default=DEFAULT_LIFETIME)
    dns_check: DNSCheck | None = member(Pointer(Struct(DNSCheck)), "each DNS name resolves to an address of the request", default=None)
    call_back: CallBack | None = member(Pointer(Struct(CallBack)), "no kubelet of another node answers at an address", default=None)
    renewal: str = member(TEXT, "what renewals need: sources or certificate", default=SOURCES)
    clients: str = member(TEXT, "who approves client certificates of nodes: stock, or strict for these rules", default=STOCK)
    approval: str = member(TEXT, "automatic, or human: first client certificates wait for a person", default=AUTOMATIC)


@dataclass(frozen=True, kw_only=True)
class NodeRow:
    """One row of a file source, parsed: patterns, addresses and networks."""

    node: str
    names: tuple[str, ...]
    networks: tuple[Network, ...]
    tokens: frozenset[str] = frozenset()

    def allows(self, san: str, node: str) -> bool:
        """Whether a node that matches this row may have a name or an address.

        `{node}` in a pattern is the node's name.
        """
        if formats.address(san) is not None:
            return contains(self.networks, san)
        return san == node or any(fnmatch.fnmatchcase(san, pattern.replace(NODE_NAME, node)) for pattern in self.names)

    def lists(self, san: str) -> bool:
        """Whether the row lists an address by itself, not only as part of a network."""
        return contains([one for one in self.networks if one.num_addresses == 1], san)


@dataclass(frozen=True, kw_only=True)
class NodeApprovalPolicy:
    """A valid policy. `version` is a digest of its content: the same content has the same version.

    `asked` are the sources that have to be asked, in order.
    """

    version: str
    rows: tuple[NodeRow, ...] = ()
    asked: tuple[AskedSource, ...] = ()
    trust_reported: bool = False
    reserved_names: frozenset[str] = frozenset()
    reserved_networks: tuple[Network, ...] = ()
    node_networks: tuple[Network, ...] = ()
    dns_suffixes: tuple[str, ...] = ()
    cluster_domain: str = "cluster.local"
    maximum_lifetime: Duration = field(default=DEFAULT_LIFETIME)
    dns_check: DNSCheck | None = None
    call_back: CallBack | None = None
    renewal: str = SOURCES
    clients: str = STOCK
    approval: str = AUTOMATIC

    @property
    def asks(self) -> bool:
        """Whether evidence has to be fetched for each request, in addition to that from watches."""
        return bool(self.asked) or self.dns_check is not None or self.call_back is not None

    def row(self, node: str) -> NodeRow | None:
        """Return the first row of the file sources whose name or pattern matches a node."""
        return next((row for row in self.rows if fnmatch.fnmatchcase(node, row.node)), None)


def contains(networks: Iterable[Network], address: str) -> bool:
    """Whether one of the networks contains an address. False if the text is not an address."""
    found = formats.address(address)
    return found is not None and any(found.version == one.version and found in one for one in networks)


def read(text: bytes, *, source: str) -> NodeApprovalPolicy:
    """Read a policy.

    Raises DocumentError if the text is not a NodeApprovalPolicy, ValidationError with every invalid field.
    """
    if len(text) > LARGEST:
        raise DocumentError(f"{source} has {len(text)} bytes, at most {LARGEST} are read", remedy="use patterns for the names of nodes")
    document = yaml.load_one(text, source=source)
    content = document.value
    if not isinstance(content, Mapping) or (content.get("apiVersion"), content.get("kind")) != (API_VERSION, KIND):
        raise DocumentError(f"{source} is not a {KIND}", remedy=f"begin it with apiVersion: {API_VERSION} and kind: {KIND}")
    findings = Findings(locate=lambda path, _: document.where(path.text))
    found = Struct(_Document).decode({name: value for name, value in content.items() if name not in _META}, findings.root)
    policy = _parsed(found, findings.root)
    _require(findings, document)
    return replace(policy, version=_version(content))


def _version(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _require(findings: Findings, document: Document) -> None:
    errors = sorted((*findings.errors, *findings.surplus), key=lambda one: document.position_of(one.path.text))
    if errors:
        raise ValidationError(
            f"{document.source} is not a valid {KIND}", errors, is_cut=findings.is_cut, remedy="correct the fields named above"
        )


def _parsed(found: _Document, at: Place) -> NodeApprovalPolicy:
    """Parse the values. Errors are recorded; the result is used only if there are none."""
    rows: list[NodeRow] = []
    if not found.sources:
        (at / "sources").required("without a source no name is allowed")
    for index, source in enumerate(found.sources):
        rows += _source_rows(source, (at / "sources")[index])
    _check_evidence(found, at)
    trust = any(source.nodes is not None for source in found.sources)
    if trust and not found.node_cidrs:
        (at / "nodeCIDRs").required("nodes can report any address: specify the networks that they are in")
    names = frozenset(text.lower() for text in found.reserved if not _is_network(text))
    for index, text in enumerate(found.reserved):
        if not _is_network(text) and formats.subdomain_problems(text):
            (at / "reserved")[index].invalid("is not a DNS name, address or CIDR", text)
    _each((found.cluster_domain,), at / "clusterDomain", lambda one: "; ".join(formats.subdomain_problems(one)))
    _each(found.dns_suffixes, at / "dnsSuffixes", lambda one: "; ".join(formats.subdomain_problems(one)))
    if not 0 < found.maximum_lifetime <= LONGEST_LIFETIME:
        (at / "maximumLifetime").invalid(f"must be more than 0 and at most {LONGEST_LIFETIME}", str(found.maximum_lifetime))
    return NodeApprovalPolicy(
        version="",
        rows=tuple(rows),
        asked=tuple(one for source in found.sources for one in _queried_kinds(source).values()),
        trust_reported=trust,
        reserved_names=names,
        reserved_networks=_networks([one for one in found.reserved if _is_network(one)], at / "reserved"),
        node_networks=_networks(found.node_cidrs, at / "nodeCIDRs"),
        dns_suffixes=found.dns_suffixes,
        cluster_domain=found.cluster_domain,
        maximum_lifetime=found.maximum_lifetime,
        dns_check=found.dns_check,
        call_back=found.call_back,
        renewal=found.renewal,
        clients=found.clients,
        approval=found.approval,
    )


def _check_evidence(found: _Document, at: Place) -> None:
    if found.dns_check is not None:
        node_sources.check_resolvers(found.dns_check.resolvers, at / "dnsCheck")
        node_sources.check_timeout(found.dns_check.timeout, at / "dnsCheck")
    if found.call_back is not None:
        node_sources.check_call_back(found.call_back, at / "callBack")
    if found.renewal not in {SOURCES, CERTIFICATE}:
        (at / "renewal").invalid(f"must be {SOURCES} or {CERTIFICATE}", found.renewal)
    if found.clients not in {STOCK, STRICT}:
        (at / "clients").invalid(f"must be {STOCK} or {STRICT}", found.clients)
    if found.approval not in {AUTOMATIC, HUMAN}:
        (at / "approval").invalid(f"must be {AUTOMATIC} or {HUMAN}", found.approval)
    records = [index for index, source in enumerate(found.sources) if source.join_records is not None]
    for index in records[1:]:
        ((at / "sources")[index] / "joinRecords").invalid("only one source can be the join records of this cluster", index)


def _queried_kinds(source: Source) -> dict[str, AskedSource]:
    """Return the kinds of a source that have to be asked, by their fields."""
    names = {kind.name for kind in node_sources.KINDS}
    found = {one.name: getattr(source, one.attribute) for one in members(Source) if one.name in names}
    return {name: value for name, value in found.items() if value is not None}


def _source_rows(source: Source, at: Place) -> list[NodeRow]:
    kinds = members(Source)
    given = [one.name for one in kinds if getattr(source, one.attribute) is not None]
    if len(given) != 1:
        at.required(f"needs exactly one of {', '.join(one.name for one in kinds)}; it has {' and '.join(given) or 'none'}")
    for name, value in _queried_kinds(source).items():
        node_sources.check(value, at / name)
    if source.nodes is not None and not source.nodes.trust_reported_addresses:
        (at / "nodes" / "trustReportedAddresses").required("must be true: nodes can report any address as theirs")
    if source.file is None:
        return []
    place = at / "file" / "nodes"
    if not source.file.nodes:
        place.required("must list at least one node")
    if len(source.file.nodes) > MOST_NODES:
        place.invalid(f"must have at most {MOST_NODES} rows", len(source.file.nodes))
        return []
    return [_row(row, place[index]) for index, row in enumerate(source.file.nodes)]


def _row(row: FileRow, at: Place) -> NodeRow:
    if not row.node:
        (at / "node").required("must be the name of a node")
    elif problem := _pattern_problem(row.node):
        (at / "node").invalid(problem, row.node)
    _each(row.names, at / "names", _pattern_problem)
    _each(row.tokens, at / "tokens", lambda one: "" if _TOKEN_ID.fullmatch(one) else "is not the id of a bootstrap token, such as abcdef")
    return NodeRow(node=row.node, names=row.names, networks=_networks(row.addresses, at / "addresses"), tokens=frozenset(row.tokens))


def _pattern_problem(text: str) -> str:
    plain = text.replace(NODE_NAME, "x").replace("*", "x").replace("?", "x")
    return "; ".join(formats.subdomain_problems(plain)) if text else "is empty"


def _each(texts: Iterable[str], at: Place, problem: Callable[[str], str]) -> None:
    for index, text in enumerate(texts):
        if found := problem(text):
            at[index].invalid(found, text)


def _is_network(text: str) -> bool:
    return "/" in text or formats.address(text) is not None


def _networks(texts: Iterable[str], at: Place) -> tuple[Network, ...]:
    found: list[Network] = []
    for index, text in enumerate(texts):
        try:
            address = formats.address(text)
            found.append(ipaddress.ip_network(address) if address is not None else ipaddress.ip_network(text))
        except ValueError:
            at[index].invalid("is not an address or CIDR", text)
    return tuple(found)
