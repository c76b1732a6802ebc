"""The normalised state of a machine and its cluster, for comparing two of them: files, objects, members of etcd.

What differs between runs by nature is removed (keys, serial numbers, times, uids, token values). What must not differ
stays: modes, owners, manifests byte for byte, purposes and signers of certificates, labels, taints, rules, specs, and
leftover files.
"""

from __future__ import annotations

import base64
import difflib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from machine_kit import eventually, kubectl

from kubewright.machines.machine import Machine
from kubewright.manifests import rbac

State = dict[str, Any]

_TREES: Final = ("etc", "root", "tmp", "var/tmp", "var/lib/kubewright", "var/lib/etcd", "run/kubewright")
"""Directories in which everything counts, by name, mode and content: leftovers of a killed run would be here."""
_KUBELET: Final = ("config.yaml", "kubeadm-flags.env", "instance-config.yaml")
"""Of /var/lib/kubelet only these: the kubelet creates the others, some of them later."""
_SKIPPED: Final = re.compile(
    r"etc/(cni|hostname|hosts|machine-id|resolv.conf|\.pwd\.lock)|root/(\.kube|\.cache|kubeadm.yaml)|var/lib/etcd/|(var/)?tmp/systemd-private"
)


def require_same(expected: State, found: State) -> None:
    """Fail with the lines in which two states differ."""
    texts = [json.dumps(state, indent=1, sort_keys=True).splitlines() for state in (expected, found)]
    lines = list(difflib.unified_diff(*texts, "undisturbed", "found", lineterm="", n=4))
    if lines:
        raise AssertionError("the state is another one:\n" + "\n".join(lines))


# --- files ----------------------------------------------------------------------------------------------------------------------------------


def files(machine: Machine, *, besides: tuple[str, ...] = ()) -> State:
    """Return the files that were written to the machine's disk, by path; but for those whose paths begin with one of `besides`."""
    authorities = {path: path.read_bytes() for path in (machine.root / "etc/kubernetes/pki").glob("**/*ca.crt")}
    found: State = {}
    for path in _walk(machine):
        name = str(path.relative_to(machine.root))
        if not _SKIPPED.match(name) and not f"/{name}".startswith(besides):
            with suppress(FileNotFoundError):  # files of the trees below that were deleted are on the disk as well
                found[f"/{name}"] = _file(path, name, machine, authorities)
    return found


def _walk(machine: Machine) -> Iterator[Path]:
    """Yield what the machine has in addition to the trees below: its disk, and /run/kubewright, which is not on it."""
    for tree in _TREES:
        top = machine.root if tree.startswith("run/") else machine.places.upper
        for directory, _, names in os.walk(top / tree):
            places = [Path(directory), *(Path(directory, name) for name in names)]
            yield from (machine.root / place.relative_to(top) for place in places)
    kubelet = machine.root / "var/lib/kubelet"
    names = {path.name for path in kubelet.glob("*") if path.is_file()} if kubelet.is_dir() else set()
    yield from (kubelet / name for name in sorted(names) if name in _KUBELET or _temporary(name))


def _temporary(name: str) -> bool:
    """Whether it is one of our leftover files; the kubelet's own, which exist for milliseconds, have names of a dot and a number."""
    return (name.startswith(".") and not name[1:].isdigit()) or name.endswith((".new", ".tmp"))


def _file(path: Path, name: str, machine: Machine, authorities: Mapping[Path, bytes]) -> State:
    found = path.lstat()
    told: State = {"mode": stat.filemode(found.st_mode), "owner": f"{found.st_uid}:{found.st_gid}"}
    if stat.S_ISREG(found.st_mode):
        told["content"] = _content(path, machine, authorities)
    return told


def _content(path: Path, machine: Machine, authorities: Mapping[Path, bytes]) -> object:
    content = path.read_bytes()
    text = content.decode(errors="replace").replace(machine.address, "ADDRESS")
    match path.suffix:
        case ".crt":
            return _certificate(content, machine, list(authorities.values()))
        case ".key":
            # checking the key takes 40 ms
            key = load_pem_private_key(content, None, unsafe_skip_rsa_key_validation=True)
            return f"private key of {key.key_size} bits"  # type: ignore[union-attr]
        case ".pub":
            return "public key"
        case ".conf" if "certificate-authority-data" in text:
            return _kubeconfig(text, machine, list(authorities.values())).splitlines()
    return [_sorted_members(line) for line in text.splitlines()]


def _sorted_members(line: str) -> str:
    """Sort the members in an etcd manifest: etcd lists them by their random IDs."""
    before, flag, members = line.partition("--initial-cluster=")
    return before + flag + ",".join(sorted(members.split(","))) if flag else line


def _kubeconfig(text: str, machine: Machine, authorities: list[bytes]) -> str:
    """Replace embedded certificates by their meaning."""

    def told(found: re.Match[str]) -> str:
        content = base64.b64decode(found[2])
        return f"{found[1]}: {_certificate(content, machine, authorities) if b'CERTIFICATE' in content else 'private key'}"

    return re.sub(r"([a-z-]+-data): (\S+)", told, text)


def _certificate(content: bytes, machine: Machine, authorities: list[bytes]) -> State:
    """Describe the purpose of a certificate, and whether the CA of the machine with its issuer's name has signed it."""
    found = x509.load_pem_x509_certificate(content)
    extensions = {extension.oid._name: str(extension.value).replace(machine.address, "ADDRESS") for extension in found.extensions}
    for name in ("subjectKeyIdentifier", "authorityKeyIdentifier"):
        extensions.pop(name, None)
    issuers = [x509.load_pem_x509_certificate(authority) for authority in authorities]
    return {
        "subject": found.subject.rfc4514_string(),
        "issuer": found.issuer.rfc4514_string(),
        "days": (found.not_valid_after_utc - found.not_valid_before_utc).days,
        "extensions": extensions,
        "signed": any(_signed(found, issuer) for issuer in issuers),
    }


def _signed(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, InvalidSignature):
        return False
    return True


# --- objects --------------------------------------------------------------------------------------------------------------------------------

_KINDS: Final = (
    *("nodes", "configmaps", "secrets", "serviceaccounts", "roles", "rolebindings", "clusterroles", "clusterrolebindings"),
    *("daemonsets", "deployments", "services"),
)
_OURS: Final = {"coredns", "kube-proxy"}
_RACED: Final = {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in rbac.bootstrap_policy()}
"""Created by init if it is faster than the API server, which creates the same a second after its start."""
_LATER: Final = (
    "deployment.kubernetes.io/",
    "deprecated.daemonset.template.generation",
    "node.alpha.kubernetes.io/",
    "volumes.kubernetes.io/",
)
"""Annotations that controllers and the kubelet add at some later time."""


def objects(machine: Machine) -> State:
    """Return the objects that init and join create, by kind and name; tokens as a list. The machine is a control plane."""
    items: list[State] = []

    def listed() -> bool:
        items[:] = kubectl(machine, "get", "-A", "--show-managed-fields", ",".join(_KINDS)).get("items", [])
        return bool(items)

    eventually(listed, "the API server to list its objects")
    found: State = {"bootstrap tokens": []}
    for item in filter(_made_by_us, items):
        metadata, kind = item["metadata"], item["kind"]
        if metadata["name"].startswith("bootstrap-token-"):
            found["bootstrap tokens"].append(_token(item))
        else:
            found[f"{kind} {metadata.get('namespace', '')}/{metadata['name']}"] = json.loads(_text(_object(item), machine))
    found["bootstrap tokens"].sort(key=str)
    return found


def _made_by_us(item: Mapping[str, Any]) -> bool:
    metadata = item["metadata"]
    if item["kind"] == "Node":  # created by the kubelet
        return True
    if item["kind"] == "ServiceAccount":  # without managed fields
        return metadata["name"] in _OURS and metadata["namespace"] == "kube-system"
    if (item["kind"], metadata.get("namespace", ""), metadata["name"]) in _RACED or metadata["name"] == "kube-root-ca.crt":
        return True
    return any(row["manager"] == "kubeadm" for row in metadata.get("managedFields", ()))


def _object(item: Mapping[str, Any]) -> State:
    metadata = item["metadata"]
    annotations = {key: value for key, value in metadata.get("annotations", {}).items() if not key.startswith(_LATER)}
    told: State = {"labels": metadata.get("labels", {}), "annotations": annotations}
    if item["kind"] == "Node":
        taints = [taint for taint in item["spec"].get("taints", ()) if not taint["key"].startswith("node.kubernetes.io/")]
        return told | {"taints": taints}
    if item["kind"] == "Secret":
        return told | {"data": sorted(item.get("data", {})), "owners": [owner["kind"] for owner in metadata.get("ownerReferences", ())]}
    return told | {key: value for key, value in item.items() if key not in {"metadata", "status", "apiVersion", "kind"}}


def _token(item: Mapping[str, Any]) -> State:
    data = {key: base64.b64decode(value).decode() for key, value in item["data"].items()}
    for name in ("token-id", "token-secret", "expiration"):
        if name in data:
            data[name] = "…"
    return data


def _text(value: object, machine: Machine) -> str:
    """Render a value without parts that are secret or new in every run."""
    text = json.dumps(value).replace(machine.address, "ADDRESS")
    text = re.sub(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", "a certificate", text)
    text = re.sub(r"certificate-authority-data: [A-Za-z0-9+/=]+", "certificate-authority-data: a certificate", text)
    return re.sub(r'"jws-kubeconfig-[a-z0-9]{6}": "[^"]*"', '"jws-kubeconfig": "…"', text)


# --- members --------------------------------------------------------------------------------------------------------------------------------


def members(machine: Machine, *, others: Mapping[str, str] = MappingProxyType({})) -> list[State]:
    """Return the members of etcd as this machine's member reports them. `others` maps further addresses to names."""
    rows = [{key: value for key, value in row.items() if key != "ID"} for row in asked_of_etcd(machine, "member/list", {})["members"]]
    text = json.dumps(sorted(rows, key=lambda row: str(row.get("name"))))
    for address, name in {machine.address: "ADDRESS", **others}.items():
        text = text.replace(f"{address}:", f"{name}:")
    return list(json.loads(text))


def votes(machine: Machine) -> dict[str, bool]:
    """Return whether each member of etcd votes, by name, or by peer address if it has not started.

    Not through the pod of etcd: the kubelet may create the mirror pod ten seconds after the API server has started.
    """
    rows = asked_of_etcd(machine, "member/list", {})["members"]
    return {row.get("name") or row["peerURLs"][0]: not row.get("isLearner", False) for row in rows}


def data_of(machine: Machine) -> State:
    """Return the hash of the data of a machine's member of etcd, with its revision."""
    return asked_of_etcd(machine, "hashkv", {}, service="maintenance")


def has_data(machine: Machine, earlier: State) -> bool:
    """Whether the data that a member had earlier, as told by `data_of`, is unchanged.

    Also true if the API server has had it compacted since, as it does every five minutes: then it cannot be compared.
    """

    def is_kept(now: State) -> bool:
        return bool(now["compact_revision"] == earlier["compact_revision"])

    if not is_kept(data_of(machine)):
        return True
    found = asked_of_etcd(machine, "hashkv", {"revision": earlier["header"]["revision"]}, service="maintenance")
    return bool(found["hash"] == earlier["hash"]) or not is_kept(found)


def asked_of_etcd(machine: Machine, path: str, body: Mapping[str, Any], *, service: str = "cluster") -> dict[str, Any]:
    """Query the etcd of a machine through its JSON gateway. It removes no member within five seconds of another one being added (503)."""
    pki = "/etc/kubernetes/pki/etcd"
    argv = (
        "curl",
        "-sS",
        "--fail",
        "--retry",
        "600",
        "--retry-all-errors",  # even if the kubelet is just restarting it
        "--retry-delay",
        "1",
        "--cacert",
        f"{pki}/ca.crt",
        "--cert",
        f"{pki}/healthcheck-client.crt",
    )
    url = f"https://127.0.0.1:2379/v3/{service}/{path}"
    said = machine.run(*argv, "--key", f"{pki}/healthcheck-client.key", "-X", "POST", "-d", json.dumps(body), url).out
    return dict(json.loads(said))
