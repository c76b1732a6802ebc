"""Warnings about certificates and kubeconfigs that are kept although nothing accepts them, as kubeadm has them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pki_kit import ADDRESSES, CONFIG, DAY, SPECS, START, full_store, sources

from kubewright.base.change import Action
from kubewright.base.events import RecordingReporter, Warned
from kubewright.base.records import replace
from kubewright.lifecycle.steps import certificates as steps
from kubewright.pki import specs
from kubewright.pki.store import MemoryStore

ADMIN = next(spec for spec in specs.kubeconfigs_for(CONFIG, ADDRESSES) if spec.name == "admin")


def warned(reporter):
    return [event.text for event in reporter.events if isinstance(event, Warned)]


def certificate(name, store, *, start):
    reporter = RecordingReporter()
    change = steps.certificate(SPECS[name], store=store, sources=sources(5, start), reporter=reporter)
    return change.action, warned(reporter)


def kubeconfig(files, store, *, start=START, spec=ADMIN):
    reporter = RecordingReporter()
    change = steps.kubeconfig(spec, files=files, certificates=store, sources=sources(5, start), reporter=reporter)
    return change.action, warned(reporter)


@pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if name != "sa"])
def test_nothing_is_said_about_certificates_that_are_valid(name):
    assert certificate(name, full_store(), start=START + DAY) == (Action.NONE, [])
    assert certificate("ca", MemoryStore(), start=START) == (Action.CREATE, [])


@pytest.mark.parametrize(
    ("name", "start", "problem"),
    [
        ("ca", START + 3653 * DAY, "ca.crt is not valid now (expired 3 d ago): certificates that it has signed are refused"),
        ("etcd-ca", START - DAY, "etcd/ca.crt is not valid now (not valid for another 23 h): certificates that it has signed are refused"),
        (
            "apiserver",
            START + 366 * DAY,
            "apiserver.crt is not valid now (expired 1 d ago): `kubewright certs renew apiserver` replaces it",
        ),
        (
            "etcd-peer",
            START - timedelta(hours=2),
            "etcd/peer.crt is not valid now (not valid for another 1 h): `kubewright certs renew etcd-peer` replaces it",
        ),
    ],
)
def test_a_kept_certificate_that_is_not_valid_now_gives_a_warning(name, start, problem):
    assert certificate(name, full_store(), start=start) == (Action.NONE, [problem])


def test_a_certificate_that_an_expired_ca_signs_gives_a_warning():
    store = full_store()
    for file in ("apiserver.crt", "apiserver.key"):
        store.remove(file)
    assert certificate("apiserver", store, start=START + 3651 * DAY) == (
        Action.CREATE,
        ["ca.crt is not valid now (expired 1 d ago): certificates that it has signed are refused"],
    )


def test_a_kept_kubeconfig_with_another_server_or_an_expired_certificate_gives_a_warning():
    files, store = MemoryStore(), full_store()
    again = "remove it to have it created again, or restore it from a copy"
    assert kubeconfig(files, store) == (Action.CREATE, [])
    assert kubeconfig(files, store) == (Action.NONE, [])
    assert kubeconfig(files, store, start=START + 366 * DAY) == (
        Action.NONE,
        [f"admin.conf: its client certificate is not valid now (expired 1 d ago): {again}"],
    )
    other = replace(ADMIN, server="https://other:6443")
    assert kubeconfig(files, store, spec=other) == (
        Action.NONE,
        [f"admin.conf: its server is {ADMIN.server} and would be https://other:6443: {again}"],
    )


@pytest.mark.parametrize(
    ("start", "problem"),
    [
        (START + DAY, []),
        (START + 3652 * DAY, ["ca.crt is not valid now (expired 2 d ago): certificates that it has signed are refused"]),
    ],
)
def test_kubeconfigs_of_an_expired_ca_give_a_warning(start, problem):
    reporter = RecordingReporter()
    steps.warn_of_signer(full_store(), now=start, reporter=reporter)
    steps.warn_of_signer(MemoryStore(), now=start, reporter=reporter)  # the kubeconfig cannot be created, which is an error
    assert warned(reporter) == problem
