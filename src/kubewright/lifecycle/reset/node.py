"""The hidden phase `delete-node`: the Node of this machine goes, if the user wants that, while there are credentials to do it with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubewright.base.change import Action, Change
from kubewright.base.errors import Forbidden, HostError, KubewrightError, NotFound
from kubewright.lifecycle.reset.context import ResetContext

PREFIX = "system:node:"


def not_wanted(ctx: ResetContext) -> str | None:
    """Say why the Node stays."""
    return None if ctx.remains.wanted.node else "--delete-node was not given"


def run(ctx: ResetContext) -> Iterable[Change]:
    """Delete the Node object of this machine; one that is gone is fine."""
    return ctx.attempt(lambda: _delete(ctx))


def _delete(ctx: ResetContext) -> Iterator[Change]:
    from kubewright.kube.resources import NODE

    if ctx.host.state(ctx.remains.layout.kubeconfig("kubelet")) is None:
        ctx.warn("this machine has no kubelet.conf, so its Node is not known: `kubectl delete node NAME` deletes it")
        return
    name = node_name(ctx)
    ctx.tell(f'Deleting the Node "{name}"', f'Would delete the Node "{name}"')
    target = f"node {name}"
    try:
        ctx.connect().delete(NODE, name)
    except NotFound:
        yield Change(target=target, action=Action.NONE)
        return
    except Forbidden as error:
        error.remedy = f"give a kubeconfig that may delete Nodes with --kubeconfig, or run `kubectl delete node {name}` elsewhere"
        raise
    yield Change(target=target, action=Action.DELETE)


def node_name(ctx: ResetContext) -> str:
    """Return the name of this machine's Node, which its kubelet's certificate bears. Raises HostError where nothing tells it."""
    from kubewright.kube.credentials import ClientCertificate
    from kubewright.kube.kubeconfigs import load_access
    from kubewright.pki import certificates

    path = ctx.remains.layout.kubeconfig("kubelet")
    try:
        identity = load_access(path, read=ctx.host.read).identity
        if not isinstance(identity, ClientCertificate):
            raise _unknown(f"{path} holds no client certificate")
        name = certificates.parse(identity.cert_pem, source=str(path))[0].common_name
    except KubewrightError as error:
        raise _unknown(str(error)) from error
    if not name.startswith(PREFIX):
        raise _unknown(f"the certificate of {path} is for {name!r}")
    return name.removeprefix(PREFIX)


def _unknown(why: str) -> HostError:
    return HostError("the name of this machine's Node is not known", detail=why, remedy="delete it by hand: kubectl delete node NAME")
