"""Short ways to create keys, CAs and stores in tests. Keys are ECDSA unless a test is about RSA, because RSA keys take long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pki_cases import CASES, addresses_of

from kubewright.base.clock import FakeClock
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.pki import ensure, issuing, keys, specs
from kubewright.pki.ensure import IssuingSources
from kubewright.pki.keys import Algorithm
from kubewright.pki.names import Names
from kubewright.pki.specs import CertificateSpec
from kubewright.pki.store import MemoryStore, load_authority
from kubewright.pki.table import CLIENT

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DAY = timedelta(days=1)
CONFIG = CASES["ecdsa-p256"]
ADDRESSES = addresses_of(CONFIG)


def sources(seed=0, start=START):
    return IssuingSources(FakeClock(start), SeededRandom(seed))


def ensure_all(store, specs, made_with):
    return [ensure.ensure(store, spec, made_with) for spec in specs]


def specs_of(config=CONFIG, addresses=None):
    return {spec.name: spec for spec in specs.certificates_for(config, addresses or addresses_of(config))}


SPECS = specs_of()


def full_store(config=CONFIG):
    """Return a store with everything that `init` creates, and without a record of writing it."""
    store = MemoryStore()
    ensure_all(store, specs_of(config).values(), sources())
    return MemoryStore({name: store[name] for name in store})


def authority(name="ca", seed=0, **changes: object):
    """Create a CA, with its key, outside of any store."""
    spec = replace(SPECS[name], **changes)
    key = keys.generate(spec.algorithm)
    text = issuing.self_signed(spec, key, started=START, random=SeededRandom(seed))
    store = MemoryStore({f"{spec.base}.crt": text, f"{spec.base}.key": key.pem()})
    return load_authority(store, spec.base)


def client_spec(**changes: object):
    base = CertificateSpec(
        name="client",
        base="client",
        signer="ca",
        common_name="somebody",
        usages=CLIENT,
        names=Names(),
        lifetime=365 * DAY,
        algorithm=Algorithm.ECDSA_P256,
    )
    return replace(base, **changes)


def leaf(signer=None, key=None, **changes: object):
    """Issue a certificate and return its PEM and its key."""
    key = key or keys.generate("ECDSA-P256")
    text = issuing.signed(client_spec(**changes), key, signer or authority(), started=START, random=SeededRandom(1))
    return text, key
