"""The `kubeconfig` commands."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import PurePosixPath

from kubewright.apis.addresses import Addresses
from kubewright.apis.kubeadm.types import DEFAULT_CERTIFICATE_VALIDITY
from kubewright.base import yaml
from kubewright.base.clock import SystemClock
from kubewright.base.durations import Duration
from kubewright.base.errors import UsageError
from kubewright.base.randomness import SystemRandom
from kubewright.cli import certs, secret_input
from kubewright.cli.output import write_result
from kubewright.cli.parser import Parsed
from kubewright.host.certificates import HostCertificateStore
from kubewright.lifecycle.certs import source, users
from kubewright.lifecycle.certs.users import Person


def user(parsed: Parsed) -> int:
    """Print a kubeconfig for a user, followed by an empty line as kubeadm's."""
    person = _person(parsed)
    host = certs.machine()
    whole = source.whole_configuration(
        certs.asked(parsed), detected=host.facts.detected, random=SystemRandom(), reporter=certs.Said("yaml"), layout=host.layout
    )
    endpoint = whole.init.local_api_endpoint
    document = users.kubeconfig(
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


def _person(parsed: Parsed) -> Person:
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
    return Person(name=name, organizations=organizations, lifetime=timedelta(seconds=period.seconds), token=token)


def _token(parsed: Parsed) -> str:
    given, file = parsed.text("token"), parsed.text("token-file")
    if given and file:
        raise UsageError("--token and --token-file exclude each other", remedy="use --token-file: what stands on a command line is visible")
    if file or given == secret_input.STANDARD_INPUT:
        return secret_input.read_file(file or given)
    return given
