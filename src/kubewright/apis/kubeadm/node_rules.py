"""The checks of JoinConfiguration, ResetConfiguration and UpgradeConfiguration, as in `rules`: each yields reasons and the values to show."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from kubewright.apis import formats
from kubewright.apis.findings import Problems, did_you_mean
from kubewright.apis.kubeadm.node_types import BootstrapTokenDiscovery, Discovery
from kubewright.apis.kubeadm.rules import token
from kubewright.base.messages import quoted, shown_url
from kubewright.base.patterns import Pattern

UNMOUNT_FLAGS: Final = ("MNT_FORCE", "MNT_DETACH", "MNT_EXPIRE", "UMOUNT_NOFOLLOW")
_PIN: Final = Pattern(r"sha256:[0-9a-f]{64}", re.ASCII | re.IGNORECASE)


def one_discovery(discovery: Discovery) -> Problems:
    """Require exactly one discovery method."""
    if discovery.bootstrap_token is None and discovery.file is None:
        yield "either bootstrapToken or file is required", ""
    elif discovery.bootstrap_token is not None and discovery.file is not None:
        yield "bootstrapToken and file are mutually exclusive", ""


def tls_bootstrap_token(discovery: Discovery) -> Problems:
    """Require a bootstrap token for the kubelet, unless a discovery file may contain another credential."""
    if discovery.bootstrap_token is not None or (discovery.file is not None and discovery.tls_bootstrap_token):
        yield from token(discovery.tls_bootstrap_token)


def endpoint_given(endpoint: str) -> Problems:
    """Require the address of an API server."""
    if not endpoint:
        yield "apiServerEndpoint is missing: the address of an API server of the cluster", None


def host_and_port(endpoint: str) -> Problems:
    """Require `host:port`, as Go splits it."""
    try:
        formats.split_host_port(endpoint)
    except ValueError as error:
        yield f"must be host:port; {error}", endpoint


def pins_or_unsafe(discovery: BootstrapTokenDiscovery) -> Problems:
    """Require pins of the CA, unless their absence is explicitly allowed."""
    if not discovery.ca_cert_hashes and not discovery.unsafe_skip_ca_verification:
        yield "without pins, anyone who knows the token can impersonate the cluster: set them, or set unsafeSkipCAVerification", ""


def pins(hashes: Sequence[str]) -> Problems:
    """Require pins of the form `sha256:HEX`. kubeadm checks them only when it joins."""
    yield from (("a pin is sha256: and 64 hexadecimal digits", pin) for pin in hashes if _PIN.fullmatch(pin) is None)


def discovery_file(exists: Callable[[str], bool]) -> Callable[[str], Problems]:
    """Return a check that requires an https URL, or a path for which `exists` returns True."""

    def check(path: str) -> Problems:
        try:
            scheme = formats.url_scheme(path)
        except ValueError:
            yield "must be an existing file or an https URL", shown_url(path)
            return
        if scheme not in {"", "https"}:
            yield f"a URL must have the scheme https, not {quoted(scheme)}", shown_url(path)
        elif not scheme and not exists(path):
            yield "this file does not exist", path

    return check


def authority_path(path: str) -> Problems:
    """Require an absolute path that ends with `.crt`."""
    if not path.startswith("/") or not path.endswith(".crt"):
        yield "must be an absolute path that ends with .crt", path


def unmount_flags(flags: Sequence[str]) -> Problems:
    """Require flags of unmount."""
    wrong = ((index, flag) for index, flag in enumerate(flags) if flag not in UNMOUNT_FLAGS)
    for index, flag in wrong:
        meant = did_you_mean(flag, UNMOUNT_FLAGS)
        yield f"{quoted(flag)} is not a flag of unmount; known are {', '.join(UNMOUNT_FLAGS)}{meant}", f"index {index}"
