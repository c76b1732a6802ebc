"""The `certs` commands (check-expiration, renew, generate-csr), and `kubeconfig user`."""

from __future__ import annotations

import os
import re
import sys
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.kubeadm.types import DEFAULT_CERTIFICATE_VALIDITY, ClusterConfiguration
from kubewright.apis.machine import Addresses
from kubewright.base import events, yaml
from kubewright.base.clock import SystemClock
from kubewright.base.durations import Duration
from kubewright.base.errors import CheckFailed, UsageError
from kubewright.base.masking import mask
from kubewright.base.randomness import SystemRandom
from kubewright.cli.handlers import cluster_access, machine
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.documents import read_documents
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers import output
from kubewright.cli.printers.failure import write_error
from kubewright.cli.printers.output import printer, write_result
from kubewright.host.certificates import HostCertificateStore
from kubewright.host.desired import Directory
from kubewright.host.locks import Lock
from kubewright.host.seam import Host
from kubewright.kube.api import KubeAPI
from kubewright.lifecycle.certs import configuration as given_configuration
from kubewright.lifecycle.certs import expiration, signing_requests, user_kubeconfig
from kubewright.lifecycle.certs.expiration import Expiration, Expiry
from kubewright.lifecycle.certs.user_kubeconfig import KubeconfigUser
from kubewright.lifecycle.machine import LOCK, lock_directory
from kubewright.lifecycle.steps import renewal
from kubewright.lifecycle.steps.renewal import CertificateLocations
from kubewright.pki.renewal import Terms

_DAYS: Final = re.compile(r"([0-9]{1,6})d(.*)", re.ASCII)
_RESTART: Final = (
    "Done renewing certificates. Restart kube-apiserver, kube-controller-manager, kube-scheduler and etcd:"
    " they keep using the old certificates until then."
)


def check_expiration(parsed: Parsed) -> int:
    """Show when certificates and authorities end; with --fail-within exit 4 where one ends too soon."""
    printed, limit = printer(parsed), parsed.text("fail-within")
    within = _length(limit) if limit else None
    host = machine.host()
    cluster = configuration(parsed, host, topic="check-expiration")
    places = CertificateLocations.of(host, certificates=PurePosixPath(cluster.certificates_dir))
    found = expiration.observe(places, cluster, now=SystemClock().now())
    sys.stdout.write(output.kubeadm_table(_table(found)) if printed is None else printed([found.as_map()]))
    return 0 if within is None else _judge(found, within, limit, verbosity=parsed.number("v") or 0)


def _judge(found: Expiration, within: timedelta, text: str, *, verbosity: int) -> int:
    """Exit with the code of the error: kubeadm has no such flag, so that its single exit code binds nobody here."""
    try:
        found.require(within, text=text)
    except CheckFailed as error:
        sys.stdout.flush()
        write_error(error, verbosity=verbosity)
        return error.exit_code
    return 0


def _length(text: str) -> timedelta:
    """Read a duration in Go's form, with days as well. Raises UsageError."""
    days = _DAYS.fullmatch(text)
    rest = days[2] if days else text
    try:
        length = timedelta(days=int(days[1]) if days else 0, seconds=Duration.parse(rest).seconds if rest else 0)
    except (ValueError, OverflowError) as error:
        remedy = "write a length of time like 30d, 7d12h or 48h"
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


def renew(parsed: Parsed) -> int:
    """Renew one certificate, or all of them."""
    name, form = parsed.command.words[-1], parsed.text("output")
    host = machine.host()
    cluster = configuration(parsed, host, topic="renew")
    places = CertificateLocations.of(host, certificates=PurePosixPath(cluster.certificates_dir))
    chosen = renewal.renewables(cluster) if name == "all" else [renewal.named(name)]
    outcomes = []
    with locked(host, doing=f"certs renew {name}"):
        for outcome in renewal.renew(places, chosen, terms=Terms.of(cluster), clock=SystemClock(), random=SystemRandom()):
            outcomes.append(outcome.as_map())
            if form == "text":
                sys.stdout.write(f"{outcome.text}\n")
    if form != "text":
        write_result({"certificates": outcomes}, form=form)
    elif name == "all":
        sys.stdout.write(f"\n{_RESTART}\n")
    return 0


def generate_csr(parsed: Parsed) -> int:
    """Make keys and requests for every certificate of this machine."""
    host, form = machine.host(), parsed.text("output")
    whole = given_configuration.whole_configuration(
        asked(parsed), detected=host.facts.detected, random=SystemRandom(), reporter=TextReporter(form), layout=host.layout
    )
    endpoint = whole.init.local_api_endpoint
    directory = PurePosixPath(whole.cluster.certificates_dir)
    kubeconfigs = inputs.absolute(parsed.text("kubeconfig-dir") or ".") if "kubeconfig-dir" in parsed.given else str(host.layout.kubernetes)
    places = CertificateLocations.of(host, certificates=directory, kubeconfigs=PurePosixPath(kubeconfigs))
    with locked(host, doing="certs generate-csr"):
        made = signing_requests.generate(
            whole, Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port), places=places
        )
    if form != "text":
        write_result({"certificates": list(made.certificates), "kubeconfigs": list(made.kubeconfigs)}, form=form)
        return 0
    for where, names in ((directory, made.certificates), (kubeconfigs, made.kubeconfigs)):
        sys.stdout.write(f"generating keys and CSRs in {where}\n" + "".join(f"  {name}\n" for name in names))
    return 0


def configuration(parsed: Parsed, host: Host, *, topic: str) -> ClusterConfiguration:
    """Return the configuration that counts for this call."""
    given = inputs.given_text(parsed, "kubeconfig")
    kubeconfig = given or str(host.layout.kubeconfig("admin"))
    with ExitStack() as opened:

        def connect() -> KubeAPI | None:
            client = cluster_access.of_file(kubeconfig)
            return None if client is None else opened.enter_context(closing(client))

        said = TextReporter(parsed.text("output"))
        return given_configuration.cluster_configuration(asked(parsed), connect=connect, reporter=said, topic=topic, layout=host.layout)


def asked(parsed: Parsed) -> given_configuration.GivenConfiguration:
    """Return what the command line says about the configuration."""
    file = parsed.text("config")
    has_directory = any(flag.name == "cert-dir" for flag in parsed.command.flags) and "cert-dir" in parsed.given
    directory = parsed.text("cert-dir") if has_directory else ""
    return given_configuration.GivenConfiguration(documents=read_documents(file) if file else None, cert_dir=inputs.absolute(directory))


class TextReporter:
    """Prints what is reported: lines on stdout where the result is text, warnings on stderr."""

    def __init__(self, form: str) -> None:
        self._lines = form == "text"

    def emit(self, event: events.Event, /) -> None:
        if isinstance(event, events.Warned):
            sys.stderr.write(mask(f"warning: {event.text}\n"))
        elif isinstance(event, events.Line) and self._lines:
            sys.stdout.write(f"[{event.topic}] {event.text}\n" if event.topic else f"{event.text}\n")


def locked(host: Host, *, doing: str) -> Lock:
    """Return the lock of this machine, which `init` takes as well, to hold while something is written."""
    directory = lock_directory(host, os.environ)
    host.ensure(Directory(path=directory, mode=0o700))
    return Lock(directory / LOCK, doing=doing)


def user(parsed: Parsed) -> int:
    """Print a kubeconfig for a user, followed by an empty line as kubeadm's."""
    person = _person(parsed)
    host = machine.host()
    whole = given_configuration.whole_configuration(
        asked(parsed), detected=host.facts.detected, random=SystemRandom(), reporter=TextReporter("yaml"), layout=host.layout
    )
    endpoint = whole.init.local_api_endpoint
    document = user_kubeconfig.kubeconfig(
        person,
        whole,
        Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port),
        certificates=HostCertificateStore(host, directory=PurePosixPath(whole.cluster.certificates_dir)),
        clock=SystemClock(),
        random=SystemRandom(),
    )
    if parsed.text("output") == "json":
        write_result(document, form="json")
    else:
        sys.stdout.write(yaml.dump(document) + "\n")
    return 0


def _person(parsed: Parsed) -> KubeconfigUser:
    name = parsed.text("client-name")
    if not name:
        raise UsageError("the flag --client-name is required", remedy="name the user, who becomes the certificate's common name")
    period = Duration.parse(parsed.text("validity-period"))
    token = _token(parsed)
    if period <= 0:
        raise UsageError(f"a validity period of {period} is none", remedy="write one like 24h")
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
