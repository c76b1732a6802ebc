"""Certificates and kubeconfigs of the seven reference cases, field for field (kubeadm v1.36.2)."""

from __future__ import annotations

import base64
from functools import cache

import pytest
from pki_cases import CASES, addresses_of, reference
from pki_kit import ensure_all

import certificate_summaries as summaries
from kubewright.base import yaml
from kubewright.base.clock import FakeClock
from kubewright.base.randomness import SeededRandom
from kubewright.pki import certificates, keys, kubeconfigs, specs
from kubewright.pki.encoding import pem
from kubewright.pki.ensure import IssuingSources
from kubewright.pki.store import MemoryStore


class _Keys:
    """Makes few RSA keys and reuses them: making one takes up to half a second, and these tests compare formats."""

    def __init__(self) -> None:
        self._made = {}

    def take(self, algorithm):
        made = self._made.setdefault(algorithm, [])
        if not algorithm.slow:
            return keys.generate(algorithm)
        if len(made) < 3:
            made.append(keys.generate(algorithm))
            return made[-1]
        made.append(made.pop(0))
        return made[-1]


KEYS = _Keys()


@cache
def made(case):
    config = CASES[case]
    where = addresses_of(config)
    store, files = MemoryStore(), MemoryStore()
    means = IssuingSources(FakeClock(), SeededRandom(7), KEYS)
    ensure_all(store, specs.certificates_for(config, where), means)
    for spec in specs.kubeconfigs_for(config, where):
        kubeconfigs.ensure_kubeconfig(files, store, spec, means)
    return store, files


def authorities(store):
    return {name: certificates.first(store[name], source=name) for name in store if name.endswith("ca.crt")}


def summary_of_certificate(text, store):
    found = certificates.parse(text)[0]
    begin = certificates.first(store["ca.crt"], source="ca.crt").not_before
    return {
        "pem_blocks": [block.label for block in pem.blocks(text, source="text")],
        **summaries.of_certificate(found, authorities=authorities(store)),
        "not_before_minus_ca_crt_not_before_seconds": int((found.not_before - begin).total_seconds()),
    }


def summary_of_file(name, store):
    mode = f"{store.modes[name]:04o}"
    if name.endswith(".crt"):
        key = keys.load(store[name.replace(".crt", ".key")], source=name)
        fits = certificates.fits(certificates.first(store[name], source=name), key)
        return {"mode": mode, **summary_of_certificate(store[name], store), "matching_key_file": fits}
    if name.endswith(".key"):
        return {"mode": mode, **summaries.of_key(store[name], source=name)}
    private = keys.load(store["sa.key"], source="sa.key")
    return {
        "mode": mode,
        "pem_type": pem.blocks(store[name], source=name)[0].label,
        "key": summaries.of_private_key(private),
        "matches_sa.key": keys.load_public(store[name], source=name) == [private.public_der()],
    }


@pytest.mark.parametrize("case", CASES)
def test_certificates_equal_those_of_kubeadm_field_by_field(case):
    store, _ = made(case)

    assert {name: summary_of_file(name, store) for name in store} == reference(f"cases/{case}/certificates.json")


def summary_of_kubeconfig(text, mode, store):
    document = yaml.load(text)
    cluster = document["clusters"][0]["cluster"]
    same = base64.b64decode(cluster["certificate-authority-data"]) == store["ca.crt"]
    cluster["certificate-authority-data"] = {"same_bytes_as": ["ca.crt"] if same else []}
    user = document["users"][0]["user"]
    certificate, key = (base64.b64decode(user[name]) for name in ("client-certificate-data", "client-key-data"))
    pair = certificates.pair_of(certificate, key, source="text")
    end = certificates.first(store["apiserver.crt"], source="apiserver.crt").not_after
    user["client-certificate-data"] = {
        **summary_of_certificate(certificate, store),
        "not_after_minus_apiserver_crt_not_after_seconds": int((pair.leaf.not_after - end).total_seconds()),
    }
    user["client-key-data"] = {**summaries.of_key(key, source="text"), "matches_certificate": True}
    return {"mode": f"{mode:04o}", "top_level_key_order": list(document), "content": document}


@pytest.mark.parametrize("case", CASES)
def test_kubeconfigs_equal_those_of_kubeadm_field_by_field(case):
    store, files = made(case)
    wanted = reference(f"cases/{case}/kubeconfigs.json")
    for content in wanted.values():  # the time between the two recorded commands is no property of the files
        certificate = content["content"]["users"][0]["user"]["client-certificate-data"]
        certificate["validity_seconds"] -= certificate["not_after_minus_apiserver_crt_not_after_seconds"]
        certificate["not_after_minus_apiserver_crt_not_after_seconds"] = 0

    assert {name: summary_of_kubeconfig(files[name], files.modes[name], store) for name in files} == wanted


@pytest.mark.parametrize("case", CASES)
def test_extensions_are_in_the_order_of_kubeadm(case):
    store, _ = made(case)
    wanted = {name: entry for name, entry in reference(f"cases/{case}/certificates.json").items() if name.endswith(".crt")}

    found = {name: list(certificates.first(store[name], source=name).extensions) for name in wanted}

    assert found == {name: [extension["name"] for extension in entry["extensions"]] for name, entry in wanted.items()}
    assert len(found) == (5 if case == "external-etcd" else 10)


@pytest.mark.parametrize("case", CASES)
def test_a_second_run_writes_nothing(case):
    store, files = made(case)
    before = len(store.written), len(files.written)
    config = CASES[case]
    means = IssuingSources(FakeClock(), SeededRandom(8), KEYS)

    changes = ensure_all(store, specs.certificates_for(config, addresses_of(config)), means)
    changes += [kubeconfigs.ensure_kubeconfig(files, store, spec, means) for spec in specs.kubeconfigs_for(config, addresses_of(config))]

    assert [change for change in changes if change] == []
    assert len(changes) == (11 if case == "external-etcd" else 16)
    assert (len(store.written), len(files.written)) == before
