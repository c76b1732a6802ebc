"""The phases `certs/*` and `kubeconfig/*`: one for each row of pki's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kubewright.base.change import Action, Change
from kubewright.lifecycle.init.context import InitContext
from kubewright.pki import ensure, kubeconfigs, specs, table


def certificate_directory(ctx: InitContext) -> Iterable[Change]:
    """Say where certificates go, and begin to make the keys that are missing: RSA takes its time, in threads."""
    ctx.say("certs", f'Using certificate directory "{ctx.layout.pki}"')
    wanted = specs.certificates_for(ctx.configuration, ctx.addresses)
    ctx.reserve_keys([spec.algorithm for spec in wanted if ctx.certificates.read(spec.key_file) is None])
    return ()


def certificate(row: table.Row) -> Callable[[InitContext], Iterable[Change]]:
    """Return the phase of one row of the certificate table."""

    def run(ctx: InitContext) -> Iterable[Change]:
        spec = specs.of(row, ctx.configuration, ctx.addresses)
        change = ensure.ensure(
            ctx.certificates, spec, clock=ctx.clock, random=ctx.random, key_source=ctx.keys, started=ctx.started
        )
        what = "key pair" if isinstance(row, table.KeyPair) else "certificate and key"
        ctx.say("certs", f'Generated "{row.name}" {what}' if change else f'Using existing "{row.name}" {what}')
        if change and isinstance(spec, specs.CertificateSpec) and table.Usage.SERVER in spec.usages:
            names = spec.names
            ctx.say("certs", f"{row.name} is for the names [{' '.join(names.dns)}] and the addresses [{' '.join(names.ips)}]")
        yield change

    return run


def only_local_etcd(ctx: InitContext) -> str | None:
    """Certificates of etcd are made for a local member only."""
    return None if ctx.cluster.etcd.external is None else "etcd is external"


def kubeconfig_directory(ctx: InitContext) -> Iterable[Change]:
    """Say where kubeconfigs go."""
    ctx.say("kubeconfig", f'Using kubeconfig directory "{ctx.layout.kubernetes}"')
    return ()


def kubeconfig(row: table.Kubeconfig) -> Callable[[InitContext], Iterable[Change]]:
    """Return the phase of one row of the kubeconfig table."""

    def run(ctx: InitContext) -> Iterable[Change]:
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
