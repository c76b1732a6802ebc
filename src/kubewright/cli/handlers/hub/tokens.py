"""`hub token`: the tokens with which nodes join. Only `create` shows one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Final

from kubewright.base.clock import SystemClock, rfc3339
from kubewright.base.durations import Duration
from kubewright.base.errors import APIError, UsageError
from kubewright.base.messages import quoted
from kubewright.base.randomness import SystemRandom
from kubewright.base.records import dataclass
from kubewright.cli.handlers.hub import state
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import write_output, write_rows
from kubewright.enrollment.hub import tenant_objects
from kubewright.enrollment.state.clusters import LoadedCluster, TenantCluster
from kubewright.enrollment.state.store import JoinToken
from kubewright.kube.api import KubeAPI
from kubewright.kube.objects import DesiredObject, ensure_object, remove_object
from kubewright.kube.resources import SECRET
from kubewright.tokens import secrets, strings

_COLUMNS: Final = (("cluster", "CLUSTER"), ("id", "TOKEN"), ("expires", "EXPIRES"), ("description", "DESCRIPTION"))


@dataclass(frozen=True, kw_only=True)
class TokenOptions:
    """The flags of `hub token create`."""

    ttl: Duration
    description: str


def create(parsed: Parsed) -> int:
    """Create a token, and print it."""
    name, options = parsed.text("cluster"), inputs.complete(parsed, TokenOptions)
    with state.store(parsed) as store:
        loaded = LoadedCluster(state.cluster(store, name))
        token = JoinToken(
            cluster=name,
            token=strings.generate(SystemRandom()),
            expires=rfc3339(SystemClock().now() + timedelta(seconds=options.ttl.seconds)),
            description=options.description,
        )
        done = state.event(name, "token created", token=token.token.id, expires=token.expires)
        store.save_token(token, done, generation=loaded.cluster.generation)
    _at_once(loaded.cluster, lambda api: ensure_object(api, DesiredObject(tenant_objects.token_secret(token))))
    data = {**_row(token), "token": token.token.text, "server": loaded.cluster.server, "joinKey": str(loaded.recipient.pin)}
    write_output(data, f"{token.token.text}\n", form=parsed.text("output"))
    return 0


def list_tokens(parsed: Parsed) -> int:
    """List the tokens."""
    with state.store(parsed) as store:
        rows = [_row(token) for token in store.tokens()]
    write_rows(rows, columns=_COLUMNS, form=parsed.text("output"))
    return 0


def revoke(parsed: Parsed) -> int:
    """Revoke a token."""
    name, text = parsed.strings("which")
    token_id = strings.parse_id(text)
    done = state.event(name, "token revoked", token=token_id)
    with state.store(parsed) as store:
        cluster = state.cluster(store, name)
        token = next((one for one in store.tokens(name) if one.token.id == token_id), None)
        if token is None or not store.remove_token(token, done):
            raise UsageError(f"{quoted(name)} has no token {token_id}", remedy="`kubewright hub token list` shows them")
    _at_once(cluster, lambda api: remove_object(api, SECRET, secrets.name_of(token_id), secrets.NAMESPACE))
    return state.print_result(parsed, done)


def _at_once(cluster: TenantCluster, work: Callable[[KubeAPI], object]) -> None:
    """Change the cluster as the hub would do a moment later. If that fails, the hub does it when it can."""
    try:
        with closing(state.client(cluster)) as api:
            work(api)
    except APIError as error:
        inputs.warn([f"{cluster.name} does not know it yet, and will when the hub reaches it: {error}"])


def _row(token: JoinToken) -> dict[str, object]:
    return {"cluster": token.cluster, "id": token.token.id, "expires": token.expires, "description": token.description}
