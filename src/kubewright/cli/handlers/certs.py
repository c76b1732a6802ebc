"""`certs check-expiration` and `kubeconfig user`, and the options of `certs renew` and `certs generate-csr`."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.kubeadm.types import DEFAULT_CERTIFICATE_VALIDITY, ClusterConfiguration
from kubewright.apis.machine import Addresses
from kubewright.base import yaml
from kubewright.base.clock import SystemClock
from kubewright.base.durations import Duration
from kubewright.base.errors import CheckFailed, UsageError
from kubewright.base.randomness import SystemRandom
from kubewright.cli.handlers import cluster_access, machine
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.inputs import read_documents
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers import output
from kubewright.cli.printers.failure import write_error
from kubewright.cli.printers.output import printer, write_result
from kubewright.cli.printers.reporters import KubeadmText, PlainLines
from kubewright.host.certificates import HostCertificateStore
from kubewright.host.seam import Host
from kubewright.kube.api import KubeAPI
from kubewright.lifecycle.certs import configuration as given_configuration
from kubewright.lifecycle.certs import expiration, user_kubeconfig
from kubewright.lifecycle.certs.expiration import Expiration, Expiry
from kubewright.lifecycle.certs.renew import RenewOptions
from kubewright.lifecycle.certs.signing_requests import RequestOptions
from kubewright.lifecycle.certs.user_kubeconfig import KubeconfigUser
from kubewright.lifecycle.steps.renewal import CertificateLocations
from kubewright.pki import kubeconfigs

_DAYS: Final = re.compile(r"([0-9]{1,6})d(.*)", re.ASCII)


def check_expiration(parsed: Parsed) -> int:
    """Show when certificates and CAs expire; with --fail-within, exit with 4 if one expires too soon."""
    printed, limit = printer(parsed), parsed.text("fail-within")
    within = _length(limit) if limit else None
    host = machine.host()
    cluster = configuration(parsed, host, topic="check-expiration")
    places = CertificateLocations.of(host, certificates=PurePosixPath(cluster.certificates_dir))
    found = expiration.observe(places, cluster, now=SystemClock().now())
    sys.stdout.write(output.kubeadm_table(_table(found)) if printed is None else printed([found.as_map()]))
    return 0 if within is None else _exit_code(found, within, limit, verbosity=parsed.number("v") or 0)


def _exit_code(found: Expiration, within: timedelta, text: str, *, verbosity: int) -> int:
    """Exit with the code of the error: kubeadm has no such flag, so its single exit code does not apply here."""
    try:
        found.require(within, text=text)
    except CheckFailed as error:
        sys.stdout.flush()
        write_error(error, verbosity=verbosity)
        return error.exit_code
    return 0


def _length(text: str) -> timedelta:
    """Parse a duration in Go's form, or in days. Raises UsageError."""
    days = _DAYS.fullmatch(text)
    rest = days[2] if days else text
    try:
        length = timedelta(days=int(days[1]) if days else 0, seconds=Duration.parse(rest).seconds if rest else 0)
    except (ValueError, OverflowError) as error:
        remedy = "write a duration like 30d, 7d12h or 48h"
        raise UsageError(f'invalid argument "{text}" for "--fail-within"', remedy=remedy) from error
    return length


def _table(found: Expiration) -> list[list[str]]:
    head = ["CERTIFICATE", "EXPIRES", "RESIDUAL TIME", "CERTIFICATE AUTHORITY", "EXTERNALLY MANAGED"]
    roots = ["CERTIFICATE AUTHORITY", "EXPIRES", "RESIDUAL TIME", "EXTERNALLY MANAGED"]
    return [
        head,
        *(_cells(row, found, authority=[row.authority]) for row in found.certificates),
        [],
        roots,
        *(_cells(row, found, authority=[]) for row in found.authorities),
    ]


def _cells(row: Expiry, found: Expiration, *, authority: list[str]) -> list[str]:
    if row.expires is None:
        return [f"!MISSING! {row.name}", "", "", *("" for _ in authority), ""]
    residual = output.human_duration(row.residual(found.now).total_seconds())
    return [row.name, row.expires.strftime("%b %d, %Y %H:%M UTC"), residual, *authority, f"{'yes' if row.external else 'no':8}"]


def renew_request(parsed: Parsed, *, only: tuple[str, ...]) -> RenewOptions:
    """Return the options from the flags of `certs renew NAME`; `all` names no certificate."""
    name = parsed.command.words[-1]
    return inputs.record(parsed, RenewOptions, given=asked(parsed), only=only if name == "all" else (name,))


def signing_request(parsed: Parsed, *, only: tuple[str, ...]) -> RequestOptions:
    """Return the options from the flags of `certs generate-csr`; an empty directory is the working directory, as in kubeadm."""
    directory = inputs.absolute(parsed.text("kubeconfig-dir") or ".") if "kubeconfig-dir" in parsed.given else ""
    return inputs.record(parsed, RequestOptions, given=asked(parsed), kubeconfig_dir=directory, only=only)


def configuration(parsed: Parsed, host: Host, *, topic: str) -> ClusterConfiguration:
    """Return the configuration that applies to this command."""
    given = inputs.given_text(parsed, "kubeconfig")
    kubeconfig = given or str(host.layout.kubeconfig("admin"))
    with ExitStack() as opened:

        def connect() -> KubeAPI | None:
            client = cluster_access.of_file(kubeconfig)
            return None if client is None else opened.enter_context(closing(client))

        said = KubeadmText() if parsed.text("output") == "text" else PlainLines()
        return given_configuration.cluster_configuration(asked(parsed), connect=connect, reporter=said, topic=topic, layout=host.layout)


def asked(parsed: Parsed) -> given_configuration.GivenConfiguration:
    """Return the parts of the configuration that the command line sets."""
    file = parsed.text("config")
    has_directory = any(flag.name == "cert-dir" for flag in parsed.command.flags) and "cert-dir" in parsed.given
    directory = parsed.text("cert-dir") if has_directory else ""
    return given_configuration.GivenConfiguration(documents=read_documents(file) if file else None, cert_dir=inputs.absolute(directory))


def user(parsed: Parsed) -> int:
    """Print a kubeconfig for a user, followed by an empty line like kubeadm's."""
    person = _person(parsed)
    host = machine.host()
    loaded = given_configuration.whole_configuration(asked(parsed), detected=host.facts.detected, random=SystemRandom(), layout=host.layout)
    inputs.warn(loaded.warnings)
    whole = loaded.configuration
    endpoint = whole.init.local_api_endpoint
    store, clock = HostCertificateStore(host, directory=PurePosixPath(whole.cluster.certificates_dir)), SystemClock()
    addresses = Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port)
    document = user_kubeconfig.kubeconfig(person, whole, addresses, certificates=store, clock=clock, random=SystemRandom())
    inputs.warn(kubeconfigs.signer_warnings(store, clock.now()))
    if parsed.text("output") == "json":
        write_result(document, form="json")
    else:
        sys.stdout.write(yaml.dump(document) + "\n")
    return 0


def _person(parsed: Parsed) -> KubeconfigUser:
    name = parsed.text("client-name")
    if not name:
        raise UsageError("the flag --client-name is required", remedy="set the name of the user; it becomes the certificate's common name")
    period = Duration.parse(parsed.text("validity-period"))
    token = _token(parsed)
    if period <= 0:
        raise UsageError(f"a validity period of {period} is not possible", remedy="write one like 24h")
    if period > DEFAULT_CERTIFICATE_VALIDITY and not token:
        sys.stderr.write(
            f"warning: a validity period of {period} is longer than {DEFAULT_CERTIFICATE_VALIDITY}: a client certificate cannot be revoked\n"
        )
    organizations = parsed.strings("org")
    return KubeconfigUser(name=name, organizations=organizations, lifetime=timedelta(seconds=period.seconds), token=token)


def _token(parsed: Parsed) -> str:
    given, file = parsed.text("token"), parsed.text("token-file")
    if given and file:
        raise UsageError("--token and --token-file exclude each other", remedy="use --token-file: other users can see the command line")
    if file or given == inputs.STANDARD_INPUT:
        return inputs.read_file(file or given)
    return given
