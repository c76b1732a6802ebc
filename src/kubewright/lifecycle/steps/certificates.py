"""The phases `certs/*` and `kubeconfig/*`, one for each row of pki's tables; and the files that all control planes of a cluster share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.kubeadm.types import ClusterConfiguration
from kubewright.apis.machine import Layout
from kubewright.base.change import Action, Change
from kubewright.lifecycle.context import MachineContext
from kubewright.pki import ensure, kubeconfigs, specs, table
from kubewright.pki.keys import Algorithm

_ALWAYS: Final = ("ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.pub", "sa.key")
_LOCAL_ETCD: Final = ("etcd/ca.crt", "etcd/ca.key")


def certificate_directory(ctx: MachineContext) -> Iterable[Change]:
    """Say where certificates go, and begin to make the keys that this run needs: RSA takes its time, in threads."""
    ctx.say("certs", f'Using certificate directory "{ctx.layout.pki}"')
    reserve_keys(ctx)
    return ()


def reserve_keys(ctx: MachineContext) -> None:
    """Begin to make the keys of certificates and kubeconfigs that this run lacks. A second time begins nothing anew."""
    wanted = specs.certificates_for(ctx.configuration, ctx.addresses)
    missing = [spec for spec in wanted if ctx.runs(f"certs/{spec.name}") and ctx.certificates.read(spec.key_file) is None]
    ctx.reserve_keys([*(spec.algorithm for spec in missing), *_of_kubeconfigs(ctx)])


def certificate(row: table.Row) -> Callable[[MachineContext], Iterable[Change]]:
    """Return the phase of one row of the certificate table."""

    def run(ctx: MachineContext) -> Iterable[Change]:
        spec = specs.of(row, ctx.configuration, ctx.addresses)
        change = ensure.ensure(ctx.certificates, spec, clock=ctx.clock, random=ctx.random, key_source=ctx.keys, started=ctx.started)
        ctx.say("certs", f'{"Generated" if change else "Using existing"} "{row.base}" {_consisting_of(row)}')
        if change and isinstance(spec, specs.CertificateSpec) and table.Usage.SERVER in spec.usages:
            names = spec.names
            ctx.say("certs", f"{row.base} is for the names [{' '.join(names.dns)}] and the addresses [{' '.join(names.ips)}]")
        yield change

    return run


def _consisting_of(row: table.Row) -> str:
    return "key and public key" if isinstance(row, table.KeyPair) else "certificate and key"


def only_local_etcd(ctx: MachineContext) -> str | None:
    """Certificates of etcd are made for a local member only."""
    return None if ctx.cluster.etcd.external is None else "etcd is external"


def kubeconfig_directory(ctx: MachineContext) -> Iterable[Change]:
    """Say where kubeconfigs go."""
    ctx.say("kubeconfig", f'Using kubeconfig directory "{ctx.layout.kubernetes}"')
    if not ctx.runs("certs"):
        ctx.reserve_keys(_of_kubeconfigs(ctx))
    return ()


def _of_kubeconfigs(ctx: MachineContext) -> list[Algorithm]:
    wanted = specs.kubeconfigs_for(ctx.configuration, ctx.addresses)
    missing = [spec for spec in wanted if ctx.runs(f"kubeconfig/{spec.name}") and ctx.kubeconfigs.read(spec.file) is None]
    return [spec.certificate.algorithm for spec in missing]


def kubeconfig(row: table.Kubeconfig) -> Callable[[MachineContext], Iterable[Change]]:
    """Return the phase of one row of the kubeconfig table."""

    def run(ctx: MachineContext) -> Iterable[Change]:
        spec = specs.of_kubeconfig(row, ctx.configuration, ctx.addresses)
        change = kubeconfigs.ensure_kubeconfig(
            ctx.kubeconfigs,
            ctx.certificates,
            spec,
            clock=ctx.clock,
            random=ctx.random,
            key_source=ctx.keys,
            started=ctx.started,
        )
        ctx.say("kubeconfig", f'{"Wrote" if change.action is not Action.NONE else "Using existing"} "{row.file}"')
        yield change

    return run


def shared_files(cluster: ClusterConfiguration, layout: Layout) -> dict[str, PurePosixPath | None]:
    """Return the names and where the files lie on a machine; None for a file of an external etcd that is not configured."""
    external = cluster.etcd.external
    names = _ALWAYS if external is not None else (*_ALWAYS, *_LOCAL_ETCD)
    places: dict[str, PurePosixPath | None] = {name.replace("/", "-"): layout.pki / name for name in names}
    if external is not None:
        given = {"external-etcd-ca.crt": external.ca_file, "external-etcd.crt": external.cert_file, "external-etcd.key": external.key_file}
        places |= {name: PurePosixPath(path) if path else None for name, path in given.items()}
    return places
