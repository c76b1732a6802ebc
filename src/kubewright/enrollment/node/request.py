"""The options of `node join`, and the configuration that results from them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kubewright.apis import formats
from kubewright.apis.node_join_requests import MOST_SANS
from kubewright.base import yaml
from kubewright.base.errors import CertificateError, DocumentError, HostError, UsageError
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass, field, replace
from kubewright.enrollment.node import kubelet_fields
from kubewright.enrollment.protocol import decisions
from kubewright.lifecycle import machine_record
from kubewright.lifecycle.machine import TargetMachine
from kubewright.lifecycle.machine_record import MachineRecord
from kubewright.lifecycle.operation import Prepared
from kubewright.pki import certificates
from kubewright.pki.pins import Pin
from kubewright.tokens import strings
from kubewright.tokens.strings import BootstrapTokenString

if TYPE_CHECKING:
    from kubewright.host.seam import Host

RUNTIME_ENDPOINT: Final = "unix:///run/containerd/containerd.sock"
NAME: Final = "node join"
_LONGEST_NAME: Final = 63
_RUNTIME: Final = "containerRuntimeEndpoint"
"""The same text as in the kubelet's configuration."""


@dataclass(frozen=True, kw_only=True)
class NodeJoinOptions:
    """One call of `node join` or of one of its phases. `ca_pem` is the content of the file; empty texts were not given.

    `accepted` are fields of the kubelet's configuration that the hub may set on this machine, in addition to those
    that every hub may set.
    """

    node: str = ""
    server: str
    ca_pem: bytes = field(repr=False)
    token: str = field(repr=False)
    runtime_endpoint: str = ""
    image_endpoint: str = ""
    sans: Sequence[str] = ()
    fingerprint: str = ""
    accepted: Sequence[str] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NodeJoin:
    """The configuration of a machine as a node of a cluster. `pin` is that of the hub's join key, None if the user did not give one."""

    node: str
    server: str
    ca_pem: bytes = field(repr=False)
    token: BootstrapTokenString
    runtime_endpoint: str
    image_endpoint: str
    sans: tuple[str, ...]
    pin: Pin | None
    accepted: frozenset[str] = frozenset()
    ignored: tuple[str, ...] = ()


def configure(request: NodeJoinOptions, machine: TargetMachine) -> Prepared[NodeJoin]:
    """Check the options. Raises UsageError and CertificateError."""
    here = machine.at(machine.layout)
    node = request.node or here.facts.detected.host_name.strip().lower()
    problems = formats.subdomain_problems(node) or _too_long(node)
    if problems:
        raise UsageError(
            f"a node cannot have the name {quoted(node)}", detail="; ".join(problems), remedy="choose another one with --nodename"
        )
    if len(request.sans) > MOST_SANS:
        raise UsageError(f"{len(request.sans)} further names are more than {MOST_SANS}", remedy="pass fewer with --extra-san")
    runtime = request.runtime_endpoint or RUNTIME_ENDPOINT
    join = NodeJoin(
        node=node,
        server=_server(request.server),
        ca_pem=_authority(request.ca_pem),
        token=strings.parse(request.token),
        runtime_endpoint=runtime,
        image_endpoint=request.image_endpoint or runtime,
        sans=tuple(request.sans),
        pin=Pin.parse(request.fingerprint) if request.fingerprint else None,
        accepted=kubelet_fields.consent(request.accepted),
        ignored=request.ignored,
    )
    return Prepared(
        configuration=join,
        host=machine.at(replace(machine.layout, cri_socket=runtime)),
        warnings=() if join.pin is not None else (_UNPINNED,),
        only=request.only,
        skip=request.skip,
        record=lambda: record(join),
    )


_UNPINNED: Final = (
    "the join key of the hub is not pinned: anyone with write access to the cluster could read this join and answer it;"
    " `kubewright hub cluster list` on the hub shows the value of --join-key-fingerprint"
)


def _too_long(node: str) -> list[str]:
    """Say that the API server would refuse the Node, because its kubelet uses the name as the value of the label kubernetes.io/hostname."""
    return (
        [f"a node's name has at most {_LONGEST_NAME} characters, because the kubelet also uses it as a label"]
        if len(node) > _LONGEST_NAME
        else []
    )


def _server(text: str) -> str:
    """Return the URL in the form of kubeconfigs. Raises UsageError."""
    problem = decisions.endpoint_problem(text) if text else "is empty"
    if problem:
        raise UsageError(
            f"{quoted(text)} is not the URL of an API server",
            detail=f"it {problem}",
            remedy="pass it as https://HOST:PORT with --apiserver-endpoint",
        )
    return text.rstrip("/")


def _authority(text: bytes) -> bytes:
    found = certificates.parse(text, source="--apiserver-ca-cert-file")
    if not any(one.is_authority for one in found):
        raise CertificateError("--apiserver-ca-cert-file contains no CA certificate", remedy="pass the cluster's ca.crt")
    return b"".join(one.pem() for one in found)


def runtime_of(host: Host) -> str:
    """Return the container runtime that a machine has joined with: from its record or its kubelet's configuration; '' if neither can be read."""
    with suppress(HostError):
        found = machine_record.load(host)
        if found is not None and found.workflow == NAME:
            return _runtime(found.configuration)
    return _runtime((host.read(host.layout.kubelet_config) or b"").decode(errors="replace"))


def _runtime(text: str) -> str:
    try:
        found = yaml.load(text, source="the configuration of this machine")
    except DocumentError:
        return ""
    return str(found.get(_RUNTIME) or "") if isinstance(found, dict) else ""


def record(join: NodeJoin) -> MachineRecord:
    """Return the record of a machine that begins to join. Token and pin are not included, because another run may use others."""
    document = {
        "nodeName": join.node,
        "apiServerEndpoint": join.server,
        _RUNTIME: join.runtime_endpoint,
        "imageServiceEndpoint": join.image_endpoint,
        "extraSANs": list(join.sans),
    }
    return MachineRecord(workflow=NAME, configuration=yaml.dump(document))
