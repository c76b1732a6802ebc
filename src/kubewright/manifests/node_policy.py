"""The NodeApprovalPolicy of a cluster in its ConfigMap: the addresses of its nodes, and the names that no node may have. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from kubewright.apis import formats, node_approval
from kubewright.apis.kubeadm.types import Configuration, NodeRegistration
from kubewright.apis.machine import Detected
from kubewright.apis.node_approval import STRICT, FileRow, NodeApprovalPolicy
from kubewright.base import yaml
from kubewright.base.errors import DocumentError, UsageError, ValidationError
from kubewright.base.fields import FieldPath
from kubewright.base.messages import quoted
from kubewright.base.records import replace
from kubewright.manifests import pods

NAME: Final = "kubewright-node-policy"
KEY: Final = "policy.yaml"
LOCATION: Final = f"configmap:{pods.NAMESPACE}/{NAME}"
"""The value of `--node-policy` for it."""
USED_TOKENS: Final = "kubewright-used-tokens"
"""The ConfigMap in which the approver stores which bootstrap token was used with which key."""
IMAGE: Final = "controllers.kubewright/image"
"""The annotation with the image of the approver."""
_NODE_IP: Final = "node-ip"

ANY_NODE: Final = "*"
_FIRST_ROW: Final = "sources[0].file.nodes[0]."

Document = dict[str, Any]


def of_cluster(configuration: Configuration, rows: Sequence[FileRow], *, strict_clients: bool = False) -> str:
    """Return the policy of a new cluster, which lists these nodes."""
    policy = {
        "apiVersion": node_approval.API_VERSION,
        "kind": node_approval.KIND,
        "sources": [{"file": {"nodes": [_document(row, strict=strict_clients) for row in rows]}}],
        "reserved": reserved(configuration),
        "clusterDomain": configuration.cluster.networking.dns_domain,
        "clients": STRICT if strict_clients else "",
    }
    return yaml.dump(_filled(policy))


def with_rows(text: str, rows: Sequence[FileRow], *, strict_clients: bool = False) -> str:
    """Return a policy that lists these nodes as well; the text itself if it does already.

    An existing row stays unchanged, except that the tokens are added. Names and addresses of new rows of single nodes
    are no longer reserved. `strict_clients` sets `clients: strict`; tokens count, and are written, only with it. Raises
    DocumentError for a text that is not a policy.
    """
    policy = _content(text)
    if strict_clients:
        policy["clients"] = STRICT
    strict = policy.get("clients") == STRICT
    known = {row.get("node"): row for row in _file_rows(policy)}
    missing: list[FileRow] = []
    for row in rows:
        if row.node not in known:
            missing.append(row)
        elif strict:
            _add_tokens(known[row.node], row.tokens)
    _insert(policy, [_document(row, strict=strict) for row in missing])
    own = {text for row in missing if row.node != ANY_NODE for text in (row.node, *row.addresses)}
    policy["reserved"] = [one for one in policy.get("reserved") or () if one not in own]
    changed = _filled(policy)
    return text if changed == _filled(_content(text)) else yaml.dump(changed)


def with_node(text: str, row: FileRow, *, tokens: Collection[str]) -> str:
    """Return a policy with the row of one node or pattern, for which an administrator has created a token.

    The row's names and addresses replace those of an existing row for the same node, which keeps them if the new one has
    none. A row for a new node that has no addresses gets those of the pattern that matched the node before. The row's
    tokens are added. `tokens` are the ids of all existing tokens; others are removed from the row.

    Raises DocumentError for a text that is not a policy, ValidationError for an invalid one, and UsageError if nothing
    gives an address to the node, or if the policy reserves one of its names or addresses.
    """
    policy, valid = _content(text), node_approval.read(text.encode(), source=f"{pods.NAMESPACE}/{NAME}")
    _require_unreserved(row, valid)
    found = next((one for one in _file_rows(policy) if one.get("node") == row.node), None)
    if found is None:
        _insert(policy, [_document(_with_addresses(row, policy), strict=True)])
    else:
        kept = [one for one in found.get("tokens") or () if one in tokens and one not in row.tokens]
        found |= _document(replace(row, tokens=(*kept, *row.tokens)), strict=True)
    changed = yaml.dump(_filled(policy))
    node_approval.read(changed.encode(), source="the policy with this node")
    return changed


def _require_unreserved(row: FileRow, policy: NodeApprovalPolicy) -> None:
    for name in (row.node, *row.names, *row.addresses):
        if name in policy.reserved_names or node_approval.contains(policy.reserved_networks, name):
            raise UsageError(f"the policy reserves {name}: no node may have it", remedy=f"remove it from `reserved` in {LOCATION}")


def _with_addresses(row: FileRow, policy: Document) -> FileRow:
    """Return a new row, with the addresses of the pattern that matched its node before if it has none of its own."""
    if row.addresses:
        return row
    for known in _file_rows(policy):
        if fnmatch.fnmatchcase(row.node, str(known.get("node"))):
            return replace(row, addresses=tuple(known.get("addresses") or ()), names=row.names or tuple(known.get("names") or ()))
    if len(policy.get("sources") or ()) < 2:
        raise UsageError(f"the policy gives no address to {quoted(row.node)}", remedy="set its addresses with --address")
    return row


def _add_tokens(row: Document, tokens: Sequence[str]) -> None:
    known = row.get("tokens") or ()
    if not set(tokens) <= set(known):
        row["tokens"] = list(dict.fromkeys((*known, *tokens)))


def require_valid(row: FileRow) -> None:
    """Raise ValidationError, with the fields of the row, for one that no policy may contain."""
    document = {"sources": [{"file": {"nodes": [_document(row, strict=True)]}}]}
    head = {"apiVersion": node_approval.API_VERSION, "kind": node_approval.KIND}
    try:
        node_approval.read(yaml.dump({**head, **document}).encode(), source="the row of the node")
    except ValidationError as error:
        own = [replace(one, path=FieldPath(one.path.text.removeprefix(_FIRST_ROW)), source="") for one in error.errors]
        raise ValidationError(f"the row of the node {quoted(row.node)} is not valid", own, remedy="correct these fields") from error


def is_strict(text: str) -> bool:
    """Whether a policy says `clients: strict`. Raises DocumentError for a text that is not a policy."""
    return _content(text).get("clients") == STRICT


def config_map(text: str, *, image: str = "") -> dict[str, Any]:
    """Return the ConfigMap with a policy. `image` is that of the approver, which further control planes run too."""
    metadata: dict[str, Any] = {"name": NAME, "namespace": pods.NAMESPACE}
    if image:
        metadata["annotations"] = {IMAGE: image}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: text}}


def used_tokens() -> dict[str, Any]:
    """Return the ConfigMap of used tokens as it is created: the approver may change it, and not create it."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": USED_TOKENS, "namespace": pods.NAMESPACE}}


def reserved(configuration: Configuration) -> list[str]:
    """Return the names and addresses of the API servers and etcd, without those of this node itself."""
    cluster, init = configuration.cluster, configuration.init
    endpoint = cluster.control_plane_endpoint
    found = [*([formats.host_port(endpoint)[0]] if endpoint else []), *cluster.api_server.cert_sans]
    if cluster.etcd.external is not None:
        found += [urlsplit(endpoint).hostname or "" for endpoint in cluster.etcd.external.endpoints]
    own = {"", init.node_registration.name, init.local_api_endpoint.advertise_address}
    return sorted({name for name in found if name not in own and not name.startswith("*")})


def addresses_of(registration: NodeRegistration, detected: Detected, advertised: str) -> list[str]:
    """Return the addresses that the kubelet of a control plane reports.

    These are those of `--node-ip`, or else the address of the default route, and the address of its API server.
    """
    given = [one.value for one in registration.kubelet_extra_args if one.name == _NODE_IP]
    reported = given[-1].split(",") if given else [detected.default_ipv4 or "", detected.default_ipv6 or ""]
    return list(dict.fromkeys(one for one in (advertised, *reported) if formats.address(one) is not None))


def _content(text: str) -> Document:
    policy = yaml.load(text, source=NAME)
    if not isinstance(policy, dict) or policy.get("kind") != node_approval.KIND:
        raise DocumentError(
            f"the ConfigMap {pods.NAMESPACE}/{NAME} does not contain a {node_approval.KIND}", remedy=f"correct its key {KEY}"
        )
    return policy


def _filled(policy: Document) -> Document:
    return {key: value for key, value in policy.items() if value}


def _file_rows(policy: Document) -> list[Document]:
    """Return the rows of the first file source; they may be changed in place."""
    files = [one["file"] for one in policy.get("sources") or () if isinstance(one, dict) and isinstance(one.get("file"), dict)]
    return [row for row in (files[0].get("nodes") or () if files else ()) if isinstance(row, dict)]


def _insert(policy: Document, rows: Iterable[Document]) -> None:
    """Insert rows into the first file source: single nodes before all rows, patterns after them, because the first row that matches counts."""
    new = list(rows)
    if not new:
        return
    single = [row for row in new if not set(row["node"]) & set("*?[")]
    patterns = [row for row in new if row not in single]
    sources = policy["sources"] = list(policy.get("sources") or ())
    file = next((one for one in sources if isinstance(one, dict) and isinstance(one.get("file"), dict)), None)
    if file is None:
        file = {"file": {}}
        sources.insert(0, file)
    known = list(file["file"].get("nodes") or ())
    last = [known.pop()] if known and isinstance(known[-1], dict) and known[-1].get("node") == ANY_NODE else []
    file["file"]["nodes"] = [*single, *known, *patterns, *last]


def _document(row: FileRow, *, strict: bool) -> Document:
    content = {"names": list(row.names), "addresses": list(row.addresses), "tokens": list(row.tokens) if strict else []}
    return {"node": row.node, **_filled(content)}
