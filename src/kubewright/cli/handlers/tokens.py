"""The `token` commands that need a cluster: create, list, delete. `token generate` is in `light_commands`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final

from kubewright.apis.kubeadm.loading import load_tokens
from kubewright.apis.kubeadm.overrides import as_flags, refuse_flags_with_config
from kubewright.apis.kubeadm.types import BootstrapToken
from kubewright.base import yaml
from kubewright.base.clock import SystemClock, rfc3339
from kubewright.base.errors import Unreachable, UsageError, ValidationError
from kubewright.base.masking import mask
from kubewright.base.randomness import SystemRandom
from kubewright.base.yaml import Document
from kubewright.cli.handlers import cluster_access
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.inputs import read_documents
from kubewright.cli.parsing.parser import Parsed, as_called
from kubewright.cli.printers import output
from kubewright.cli.printers.output import printer, write_result
from kubewright.kube.api import KubeAPI
from kubewright.kube.credentials import Access
from kubewright.kube.recording import RecordedCall, RecordingKube, dry_run_lines
from kubewright.lifecycle import bootstrap_tokens
from kubewright.lifecycle.bootstrap_tokens import ClusterInfo, ControlPlane
from kubewright.pki.encryption import sealing
from kubewright.tokens import strings
from kubewright.tokens.secrets import StoredToken, parse_secret, secret_object

if TYPE_CHECKING:
    from kubewright.apis.node_approval import FileRow

_OURS: Final = frozenset({"print-bootstrap-kubeconfig", "node", "address", "name"})
"""Flags that kubeadm does not have; they may be combined with --config."""
_ROW_FLAGS: Final = {"node": "--node", "addresses": "--address", "names": "--name"}


def create(parsed: Parsed) -> int:
    """Create a token, and print it, the command to join with it, or the kubeconfig of a kubelet."""
    wanted = _wanted(parsed)
    _require_fitting(parsed)
    node = _node(parsed, wanted)
    access = cluster_access.of_user(inputs.given_text(parsed, "kubeconfig"))
    door = _door(access) if parsed.flag("print-join-command") or parsed.flag("print-bootstrap-kubeconfig") else None
    with _cluster(parsed, access) as api:
        if node is not None:
            _admit(api, node, wanted)
        bootstrap_tokens.create(api, wanted, clock=SystemClock())
    _print_created(parsed, wanted[0], door)
    return 0


def _node(parsed: Parsed, wanted: Sequence[BootstrapToken]) -> FileRow | None:
    """Return the node that the token is for, None if it is for any. Raises UsageError for flags that do not fit."""
    node = parsed.text("node")
    if not node:
        for flag in (flag for flag in ("address", "name") if parsed.strings(flag)):
            raise UsageError(f"--{flag} needs --node", remedy="set the node with --node, or leave this flag out")
        return None
    if len(wanted) != 1:
        raise UsageError(f"--node is for one token, and the file has {len(wanted)}", remedy="create one token for each node")
    from kubewright.apis.node_approval import FileRow  # most tokens are for any node
    from kubewright.manifests import node_policy

    token = strings.parse(wanted[0].token).id
    row = FileRow(node=node, addresses=parsed.strings("address"), names=parsed.strings("name"), tokens=(token,))
    try:
        node_policy.require_valid(row)
    except ValidationError as error:
        raise as_flags(error, _ROW_FLAGS) from error
    return row


def _admit(api: KubeAPI, node: FileRow, wanted: Sequence[BootstrapToken]) -> None:
    """Write the node into the policy before its token exists: a request that no row allows is denied permanently."""
    from kubewright.lifecycle.steps import serving_approver

    bootstrap_tokens.require_free(api, [strings.parse(token.token).id for token in wanted])
    ids = [token.token.id for token in bootstrap_tokens.stored(api).tokens]
    serving_approver.admit(api, node, tokens=ids)


def _wanted(parsed: Parsed) -> tuple[BootstrapToken, ...]:
    """Return the tokens of the file, or the one of the command line. Raises ValidationError with every problem."""
    file, arguments = parsed.text("config"), parsed.strings("token")
    if not file:
        try:
            return _checked([_document(parsed, arguments)])
        except ValidationError as error:
            raise as_flags(error, {f"bootstrapTokens.0.{name}": f"--{name}" for name in ("ttl", "usages", "groups")}) from error
    refuse_flags_with_config(sorted(parsed.given - _OURS))
    if arguments:
        raise UsageError("a token on the command line and --config exclude each other", remedy="put it into bootstrapTokens of the file")
    return _checked(read_documents(file))


def _document(parsed: Parsed, arguments: tuple[str, ...]) -> Document:
    """Return the flags as a document, to which the rules apply. Surplus arguments are ignored, as in kubeadm v1.36."""
    entry = {
        "token": strings.parse(inputs.secret(arguments[0])).text if arguments else strings.generate(SystemRandom()).text,
        "description": parsed.text("description"),
        "ttl": parsed.text("ttl"),
        "usages": list(parsed.strings("usages")),
        "groups": list(parsed.strings("groups")),
    }
    value = {"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "InitConfiguration", "bootstrapTokens": [entry]}
    return Document(value=value, source="the command line")


def _checked(documents: list[Document]) -> tuple[BootstrapToken, ...]:
    return tuple(load_tokens(documents, random=SystemRandom()))


def _require_fitting(parsed: Parsed) -> None:
    """Refuse options that cannot be printed. kubeadm fails only after it has created the token."""
    key = parsed.text("certificate-key")
    if key and not parsed.flag("print-join-command"):
        raise UsageError("--certificate-key needs --print-join-command", remedy="add --print-join-command, or leave the key out")
    if key:
        sealing.parse_key(key)
    if parsed.flag("print-join-command") and parsed.flag("print-bootstrap-kubeconfig"):
        raise UsageError("--print-join-command and --print-bootstrap-kubeconfig exclude each other", remedy="choose one")


def _door(access: Access) -> ClusterInfo:
    if not access.ca_pem:
        raise UsageError("the kubeconfig contains no CA certificate", remedy="use one with certificate-authority-data")
    return ClusterInfo(server=access.server, ca_pem=access.ca_pem)


def _print_created(parsed: Parsed, made: BootstrapToken, door: ClusterInfo | None) -> None:
    form = parsed.text("output")
    if door is not None and parsed.flag("print-bootstrap-kubeconfig"):
        document = bootstrap_tokens.bootstrap_kubeconfig(door, made.token)
        sys.stdout.write(yaml.dump(document)) if form != "json" else write_result(document, form=form)
        return
    key = parsed.text("certificate-key")
    control_plane = ControlPlane(certificate_key=key) if key else None
    node_name = "" if set(parsed.text("node")) & set("*?[") else parsed.text("node")
    join = "" if door is None else bootstrap_tokens.join_command(door, made.token, control_plane=control_plane, node_name=node_name)
    command = as_called(join)
    if form == "text":
        sys.stdout.write(f"{command or made.token}\n")
        return
    stored = parse_secret(secret_object(made, clock=SystemClock()))
    write_result({**bootstrap_tokens.as_map(stored), **({"joinCommand": command} if command else {})}, form=form)


def list_tokens(parsed: Parsed) -> int:
    """Show the tokens of the cluster; an empty list prints nothing, as in kubeadm."""
    printed = printer(parsed)
    access = cluster_access.of_user(inputs.given_text(parsed, "kubeconfig"))
    with closing(cluster_access.client(access)) as api:
        found = bootstrap_tokens.stored(api)
    inputs.warn([problem.what for problem in found.problems])
    if printed is not None:
        sys.stdout.write(printed([bootstrap_tokens.as_map(token) for token in found.tokens]))
    elif found.tokens:
        sys.stdout.write(text_list(found.tokens, now=SystemClock().now()))
    return 0


def text_list(found: Sequence[StoredToken], *, now: datetime) -> str:
    """Return kubeadm's table: the first token is aligned with the heading, each further one is formatted separately."""
    first, *others = ([_cells(token, now)] for token in found)
    head = ["TOKEN", "TTL", "EXPIRES", "USAGES", "DESCRIPTION", "EXTRA GROUPS"]
    return "".join(output.kubeadm_table(block) for block in ([head, *first], *others))


def _cells(token: StoredToken, now: datetime) -> list[str]:
    expires = token.expires
    return [
        token.token.text,
        f"{'<forever>' if expires is None else output.short_duration((expires - now).total_seconds()):9}",
        "<never>" if expires is None else rfc3339(expires),
        f"{','.join(token.usages) or '<none>':22}",
        f"{token.description or '<none>':56}",
        ",".join(token.groups) or "<none>",
    ]


def delete(parsed: Parsed) -> int:
    """Delete tokens, given by their ids or as a whole. All names are parsed before anything is deleted."""
    given = parsed.strings("token")
    if not given:
        raise UsageError("no token is given", remedy="pass at least one, by its id or as a whole")
    ids = [strings.parse_id(inputs.secret(one)) for one in given]
    access = cluster_access.of_user(inputs.given_text(parsed, "kubeconfig"))
    form = parsed.text("output")
    with _cluster(parsed, access, ids=ids) as api:
        for token_id in ids:
            bootstrap_tokens.delete(api, token_id)
            if form == "text":
                sys.stdout.write(f'bootstrap token "{token_id}" deleted\n')
    if form != "text":
        write_result({"deleted": ids}, form=form)
    return 0


@contextmanager
def _cluster(parsed: Parsed, access: Access, *, ids: Sequence[str] = ()) -> Iterator[KubeAPI]:
    """Yield the cluster, or with --dry-run a recording over it, which is printed at the end.

    A dry run continues if the cluster cannot be reached, as in kubeadm; tokens with these ids are then assumed to
    exist.
    """
    with closing(cluster_access.client(access)) as api:
        if not parsed.flag("dry-run"):
            yield api
            return
        recording = _recording(api, ids)
        yield recording
        if parsed.text("output") == "text":
            sys.stdout.write("".join(map(_dry_run_text, recording.actions)))


def _dry_run_text(action: RecordedCall) -> str:
    """Return a dry run's text about a call, each part with kubeadm's prefix and its further lines indented."""
    parts = [f"[dryrun] {said}".splitlines() for said in dry_run_lines(action)]
    return "".join(f"{first}\n" + "".join(f"\t{line}\n" for line in rest) for first, *rest in parts)


def _recording(api: KubeAPI, ids: Sequence[str]) -> RecordingKube:
    try:
        api.raw("GET", "/version")
    except Unreachable as error:
        sys.stderr.write(mask(f"warning: {error.what}; which tokens exist is not known\n"))
        known = (BootstrapToken(token=f"{token_id}.{'0' * 16}") for token_id in ids)
        return RecordingKube(stand_ins=[secret_object(token, clock=SystemClock()) for token in known])
    return RecordingKube(api)
