"""`controllers run` in place of kube-controller-manager's five: real kubeadm joins, and real kubelets get and renew certificates."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from cluster_kit import KUBEADM, KUBEWRIGHT, at_once, content, run
from cryptography import x509
from machine_kit import (
    CONFIG,
    ENVIRONMENT,
    INIT,
    SHARED,
    administer,
    argv,
    eventually,
    gone,
    join_command,
    kubectl,
    kubewright,
    patiently,
    write,
)
from testbed.bed import Bed

from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts

NAME = "kubewright-controllers"
KUBECONFIG = f"/etc/kubernetes/{NAME}.conf"
LEFT_ALONE = "*,-csrapproving,-csrsigning,-csrcleaner,-bootstrapsigner,-tokencleaner"
SHORT = timedelta(seconds=200)
"""Lifetime of certificates. They start five minutes earlier, and a kubelet renews its own after 70 to 90 percent: after 50 to 150 seconds."""
SERVING, CLIENT = "kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"
CURRENT = "/var/lib/kubelet/pki/kubelet-{}-current.pem"


def _configuration(machine: Machine) -> str:
    text = INIT.format(address=machine.address)
    text = text.replace("networking:", f'controllerManager: {{extraArgs: [{{name: controllers, value: "{LEFT_ALONE}"}}]}}\nnetworking:')
    return text.replace("cgroupDriver:", "serverTLSBootstrap: true\ncgroupDriver:")


def _start_controllers(one: Machine) -> None:
    """Give the controllers their permissions and their kubeconfig as in the guide, and let systemd start them."""
    rights = kubewright(one, "controllers", "manifest", "rbac").out
    administer(one, "apply", "-f", "-", data=rights)
    write(one, KUBECONFIG, kubewright(one, "kubeconfig", "user", "--client-name", NAME, "--config", CONFIG).out)
    one.run("chmod", "600", KUBECONFIG)
    given = [f"--setenv={name}={value}" for name, value in ENVIRONMENT.items()]
    flags = {
        "kubeconfig": KUBECONFIG,
        "controllers": "*,bootstrapsigner,tokencleaner",
        "cluster-signing-cert-file": "/etc/kubernetes/pki/ca.crt",
        "cluster-signing-key-file": "/etc/kubernetes/pki/ca.key",
        "cluster-signing-duration": f"{SHORT.seconds}s",
        "secure-port": "10261",
        "bind-address": "127.0.0.1",
    }
    words = [*argv("controllers", "run"), *(f"--{name}={value}" for name, value in flags.items())]
    started = ("--property=Type=notify", "--property=NotifyAccess=all", "--property=TimeoutStartSec=600")
    one.run("systemd-run", f"--unit={NAME}", *started, *given, *words)


def _requests(one: Machine, *, signer: str, by: str) -> list[dict[str, Any]]:
    found = kubectl(one, "get", "csr", "--show-managed-fields").get("items", [])
    return [row for row in found if row["spec"]["signerName"] == signer and row["spec"]["username"] == by]


def _conditions(row: dict[str, Any]) -> list[str]:
    return [one["reason"] for one in row.get("status", {}).get("conditions", [])]


def _node_ready(one: Machine, name: str) -> bool:
    rows = kubectl(one, "get", "node", name).get("status", {}).get("conditions", [])
    return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)


def _signed_with(one: Machine) -> set[str]:
    """Return the IDs of the tokens with which cluster-info is signed."""
    data = kubectl(one, "-n", "kube-public", "get", "configmap", "cluster-info").get("data", {})
    return {name.removeprefix("jws-kubeconfig-") for name in data if name.startswith("jws-")}


def _link(machine: Machine, purpose: str) -> str:
    return machine.run("readlink", CURRENT.format(purpose), check=False).out.strip()


def _differs(machine: Machine, purpose: str, *, before: str) -> Callable[[], bool]:
    return lambda: _link(machine, purpose) not in {"", before}


def test_real_kubelets_join_with_either_tool_and_renew_their_certificates(parts: Parts) -> None:
    with Bed("one", "two", "three", bed="controllers", parts=parts, shared=SHARED) as bed:
        one, two, three = (bed[name] for name in ("one", "two", "three"))
        write(one, CONFIG, _configuration(one))
        kubewright(one, "init", "--config", CONFIG)
        _start_controllers(one)
        words = join_command(one)
        at_once(lambda: run(KUBEADM, two, *patiently(two, words)), lambda: run(KUBEWRIGHT, three, *patiently(three, words)))
        first = {machine: _link(machine, "client") for machine in (two, three)}
        eventually(lambda: all(_node_ready(one, name) for name in ("two", "three")), "both Nodes to be Ready")

        token = words[words.index("--token") + 1]
        made = _requests(one, signer=CLIENT, by=f"system:bootstrap:{token[:6]}")
        assert {tuple(_conditions(row)) for row in made} == {("AutoApproved",)}
        assert len(made) >= 2

        users = [f"system:node:{name}" for name in ("two", "three")]
        eventually(lambda: all(_requests(one, signer=SERVING, by=user) for user in users), "requests for serving certificates")
        serving = [row for user in users for row in _requests(one, signer=SERVING, by=user)]
        assert [_conditions(row) for row in serving] == [[]] * len(serving)
        administer(one, "certificate", "approve", *(row["metadata"]["name"] for row in serving))
        for machine in (two, three):
            eventually(_differs(machine, "server", before=""), "the kubelet's serving certificate")
            found = x509.load_pem_x509_certificate(content(machine, CURRENT.format("server")))
            assert found.not_valid_after_utc - found.not_valid_before_utc == SHORT + timedelta(minutes=5)

        for machine, before in first.items():
            eventually(_differs(machine, "client", before=before), "the kubelet to renew its certificate")
        for name in ("two", "three"):
            asked = _requests(one, signer=CLIENT, by=f"system:node:{name}")
            renewed = [row for row in asked if "certificate" in row["status"]]  # another one may be on its way
            assert renewed
            assert {tuple(_conditions(row)) for row in renewed} == {("AutoApproved",)}
            writers = {entry["manager"] for row in renewed for entry in row["metadata"]["managedFields"] if entry.get("subresource")}
            assert writers == {NAME}
            names = {
                x509.load_pem_x509_certificate(base64.b64decode(row["status"]["certificate"])).subject.rfc4514_string() for row in renewed
            }
            assert names == {f"CN=system:node:{name},O=system:nodes"}
        eventually(lambda: all(_node_ready(one, name) for name in ("two", "three")), "both Nodes to be Ready with their new certificates")

        short = kubewright(one, "token", "create", "--ttl", "3s").out.strip()
        eventually(lambda: gone(one, "-n", "kube-system", "secret", f"bootstrap-token-{short[:6]}"), "the token to go")
        eventually(lambda: token[:6] in (found := _signed_with(one)) and short[:6] not in found, "its signature to go, and no other one")
