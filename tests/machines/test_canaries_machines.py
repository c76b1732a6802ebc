"""Secrets appear only where they belong: not in output, logs, the journal, arguments of processes, or files that others can read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from canary_kit import CERTIFICATE_KEY, GIVEN, PASSWORD, TOKEN, Arguments, Kept, files, journal, made, seen
from cluster_kit import at_once
from machine_kit import CONFIG, INIT, SHARED, kubewright, patiently, signed
from testbed.bed import Bed

from kubewright.machines.machine import Ended, Machine
from kubewright.machines.parts import Parts

QUIET = ("--skip-token-print", "--skip-certificate-key-print")
JOIN = (
    *("join", "cluster.test:6443", "--token", "/root/token", "--discovery-token-unsafe-skip-ca-verification"),
    *("--ignore-preflight-errors", "SystemVerification"),
)
FURTHER = (*JOIN, "--control-plane", "--certificate-key", "/root/key")
INITIALIZE = ("init", "--config", CONFIG, "--upload-certs")
OTHER, WRONG = "/root/other.yaml", "/root/wrong.yaml"


@dataclass
class Scene:
    """Three machines, the kubewright commands that were run on them, and their output."""

    bed: Bed
    watched: list[Arguments]
    said: list[tuple[str, Ended]] = field(default_factory=list)
    canaries: dict[str, Sequence[str]] = field(default_factory=lambda: dict(GIVEN))

    def call(self, name: str, *words: str, code: int = 0) -> None:
        ended = kubewright(self.bed[name], *words, check=False)
        self.said.append((f"{name}: {' '.join(words)}", ended))
        assert ended.code == code, ended.err

    def shown(self) -> dict[str, tuple[set[str], set[str]]]:
        """Return the calls since the last request, with the canaries on stdout and on stderr."""
        said, self.said = self.said, []
        return {words: (seen(ended.out, self.canaries), seen(ended.err, self.canaries)) for words, ended in said}

    def logged(self, *needles: str) -> dict[str, dict[str, bool]]:
        """Return which of the texts the logs of the calls with `-v 10` contain, because an empty log would contain no secret either."""
        return {words: {needle: needle in ended.err for needle in needles} for words, ended in self.said if words.endswith("-v 10")}

    def kept(self) -> list[Kept]:
        """Return the canaries in files of all machines."""
        return [one for machine in self.bed.machines.values() for one in files(machine, self.canaries)]


def secret(machine: Machine, path: str, text: str) -> None:
    machine.run("sh", "-c", f"umask 077; cat > {path}", data=text)


def configuration(machine: Machine) -> str:
    """Return the configuration of a control plane with all canaries."""
    known = f"kind: InitConfiguration\ncertificateKey: {CERTIFICATE_KEY}\nbootstrapTokens: [{{token: {TOKEN}}}]\n"
    password = f"apiServer: {{extraEnvs: [{{name: SOME_PASSWORD, value: {PASSWORD}}}]}}\nnetworking:"
    return INIT.format(address=machine.address).replace("kind: InitConfiguration\n", known).replace("networking:", password)


@pytest.fixture(scope="module")
def scene(parts: Parts) -> Iterator[Scene]:
    with Bed("first", "second", "worker", bed="canaries", parts=parts, shared=SHARED) as bed, ExitStack() as watching:
        watched = [Arguments(machine) for machine in bed.machines.values()]
        for one in watched:
            watching.enter_context(one.watched())
        yield Scene(bed, watched)


@pytest.fixture(scope="module")
def initialized(scene: Scene) -> Scene:
    """With a first control plane: a wrong configuration, plans, a dry run, the run itself, a second run, and another configuration."""
    text = configuration(scene.bed["first"])
    secret(scene.bed["first"], CONFIG, text)
    secret(scene.bed["first"], OTHER, text.replace("10.244.0.0", "10.245.0.0").replace(PASSWORD, PASSWORD[:-1]))
    secret(scene.bed["first"], WRONG, text.replace(TOKEN, f"{TOKEN}x").replace(CERTIFICATE_KEY, f"{CERTIFICATE_KEY}x"))
    scene.call("first", "init", "--config", WRONG, "-v", "5", code=1)
    scene.call("first", "preflight", "init", "--config", CONFIG, "-v", "10")
    scene.call("first", *INITIALIZE, "--plan")
    scene.call("first", *INITIALIZE, "--plan", "-o", "json")
    scene.call("first", *INITIALIZE, "--dry-run", *QUIET)
    scene.call("first", *INITIALIZE, "-v", "10")
    scene.call("first", *INITIALIZE, *QUIET, "-v", "5", "-o", "json")
    scene.call("first", "init", "--config", OTHER, "-v", "5", code=1)
    scene.canaries |= made(scene.bed["first"])
    return scene


def test_init_prints_the_token_and_the_key_once_and_no_other_secret(initialized: Scene) -> None:
    logs = initialized.logged("] kubewright ", "phase preflight begins", '] "Response" verb="POST"', "difference of ")
    assert list(logs.pop(" ".join(("first:", *INITIALIZE, "-v", "10"))).values()) == [True] * 4
    assert [next(iter(found.values())) for found in logs.values()] == [True]
    shown = initialized.shown()
    assert len(shown) == 8
    assert shown.pop(" ".join(("first:", *INITIALIZE, "-v", "10"))) == ({"token", "certificate key"}, set())
    assert {words: found for words, found in shown.items() if found != (set(), set())} == {}


@pytest.fixture(scope="module")
def joined(initialized: Scene) -> Scene:
    """With a second control plane and a worker."""
    scene = initialized
    signed(scene.bed["first"], TOKEN)
    for name in ("second", "worker"):
        secret(scene.bed[name], "/root/token", f"{TOKEN}\n")
        secret(scene.bed[name], "/root/key", f"{CERTIFICATE_KEY}\n")
    scene.call("worker", *JOIN, "--plan")
    scene.call("second", *FURTHER, "--plan", "-o", "json")
    told = ("--token", TOKEN, "--discovery-token-unsafe-skip-ca-verification", "--control-plane", "--certificate-key", CERTIFICATE_KEY)
    # in a file, because flags cannot set timeouts, and etcd of a busy machine exceeds the default
    patient = patiently(scene.bed["second"], ["cluster.test:6443", *told])
    scene.bed["second"].run("chmod", "600", CONFIG)
    at_once(lambda: scene.call("worker", *JOIN, "-v", "10"), lambda: scene.call("second", *patient, "-v", "10"))
    return scene


def test_join_shows_no_secret(joined: Scene) -> None:
    logs = joined.logged("] kubewright ", "phase preflight begins", '] "Response" verb="GET"', "difference of ")
    assert [list(found.values()) for found in logs.values()] == [[True] * 4] * 2
    shown = joined.shown()
    assert len(shown) == 4
    assert {words: found for words, found in shown.items() if found != (set(), set())} == {}


OURS = r"/root/(kubeadm|other|wrong)\.yaml|/root/(token|key)"
PLACES = {
    "token": rf"{OURS}|/var/lib/etcd/member/.*",
    "certificate key": OURS,
    # the container runtime stores the environment of containers
    "password": rf"{OURS}|/var/lib/etcd/member/.*|/etc/kubernetes/manifests/kube-apiserver.yaml|/var/lib/kubewright/.*|/run/containerd/.*",
}
"""Where canaries of the configuration may be; a private key only in its own file, or in its own kubeconfig."""


def test_only_expected_files_contain_secrets_and_only_root_can_read_them(joined: Scene) -> None:
    kept = joined.kept()
    assert {one.canary for one in kept} == joined.canaries.keys()
    places = {name: PLACES.get(name) or rf"/etc/kubernetes/(pki/)?{re.escape(name)}" for name in joined.canaries}
    assert [one for one in kept if not re.fullmatch(places[one.canary], one.path)] == []
    assert [one.path for one in kept if not one.private] == []


@pytest.fixture(scope="module")
def undone(joined: Scene) -> Scene:
    """With renewed certificates, and then after a reset."""
    joined.call("first", "certs", "renew", "all", "-v", "10")
    for name in ("worker", "second", "first"):
        joined.call(name, "reset", "--force", "-v", "10")
    return joined


def test_reset_leaves_and_prints_no_secret(undone: Scene) -> None:
    assert [list(found.values()) for found in undone.logged("] kubewright ").values()] == [[True]] * 4
    shown = undone.shown()
    assert len(shown) == 4
    assert {words: found for words, found in shown.items() if found != (set(), set())} == {}
    assert [one for one in undone.kept() if not re.fullmatch(OURS, one.path)] == []


def test_the_journal_has_no_secret(undone: Scene) -> None:
    journals = {name: journal(machine) for name, machine in undone.bed.machines.items()}
    assert all("kubelet" in text for text in journals.values())
    assert {name: seen(text, undone.canaries) for name, text in journals.items()} == {name: set() for name in journals}


def test_no_process_had_a_secret_among_its_arguments(undone: Scene) -> None:
    found = {text for one in undone.watched for text in one.found}
    assert any("kubewright join" in text for text in found)
    assert [text for text in found if seen(text, undone.canaries)] == []
