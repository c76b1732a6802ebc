"""Objects of the reference cases: what `init --dry-run` of kubeadm v1.36.2 sends, in order; and what a cluster contains afterwards."""

from __future__ import annotations

import base64

import pytest
from manifest_cases import CASES, HOST, REFERENCE, configuration_of, load_file, places, reference_json

from kubewright.base.clock import FakeClock
from kubewright.manifests import coredns, kube_proxy, objects, rbac
from kubewright.pki import specs, table
from kubewright.tokens import cluster_info
from kubewright.tokens.secrets import secret_object

CA = b"-----BEGIN CERTIFICATE-----\nMAo=\n-----END CERTIFICATE-----\n"
NAMES = ("ca.crt", "ca.key", "etcd-ca.crt", "etcd-ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub")


def sent(case: str) -> list[dict]:
    """The objects that kubeadm creates, without the Secrets of tokens, which tests of `tokens` compare."""
    requests = reference_json(f"cases/{case}/init-dry-run-objects.json")
    created = [request["object"] for request in requests if request["verb"] == "CREATE"]
    return [body for body in created if body.get("type") != "bootstrap.kubernetes.io/token"]


def published(configuration, addresses) -> list[dict]:
    """cluster-info, and the permission for everybody to read it."""
    server = specs.server(table.Endpoint.CONTROL_PLANE, configuration, addresses)
    return [cluster_info.config_map(server=server, ca_pem=CA), *rbac.grants(rbac.Purpose.CLUSTER_INFO)]


def ours(case: str) -> list[dict]:
    configuration = configuration_of(case)
    _, addresses = places(configuration)
    certificates = objects.kubeadm_certs(dict.fromkeys(NAMES, b""), owner="bootstrap-token-<ID>", owner_uid="")
    return [
        *objects.kubeadm_config(configuration),
        *objects.kubelet_config(configuration),
        *(certificates if case != "external-etcd" else ()),  # that case was recorded without --upload-certs
        *objects.joining(),
        *published(configuration, addresses),
        *objects.dns(configuration),
        *objects.proxy(configuration, addresses, HOST),
    ]


def comparable(body: dict) -> dict:
    """Convert ours to the form of the reference: decoded Secrets, a placeholder for the CA."""
    if body["kind"] == "Secret":
        data = {key: base64.b64decode(value).decode() for key, value in body["data"].items()}
        return {**{key: value for key, value in body.items() if key != "data"}, "data_decoded": data}
    if body["metadata"]["name"] == "cluster-info":
        text = body["data"]["kubeconfig"].replace(base64.b64encode(CA).decode(), "<base64 CA>")
        return {**body, "data": {"kubeconfig": text}}
    return body


@pytest.mark.parametrize("case", CASES)
def test_init_sends_the_objects_of_kubeadm_in_its_order(case):
    expected, found = sent(case), [comparable(body) for body in ours(case)]
    assert [(body["kind"], body["metadata"]["name"]) for body in found] == [(body["kind"], body["metadata"]["name"]) for body in expected]
    assert found == expected


@pytest.mark.parametrize("case", CASES)
def test_printed_add_ons_contain_the_same_objects(case):
    configuration = configuration_of(case)
    _, addresses = places(configuration)
    found = {"coredns": coredns.objects(configuration.cluster), "kube-proxy": kube_proxy.objects(configuration, addresses, HOST)}
    printed = reference_json(f"cases/{case}/addons-print-manifest.json")
    assert {addon: len(bodies) for addon, bodies in printed.items()} == {"coredns": 6, "kube-proxy": 6}
    for addon, bodies in printed.items():
        ours_by_name = {file_name(body): body for body in found[addon]}
        assert [problem for body in bodies for problem in contained(body, ours_by_name[file_name(body)])] == []


STORED = sorted(
    path.name for path in (REFERENCE / "cluster-objects").glob("*.json") if not path.name.startswith(("index", "Secret", "Node"))
)


def test_a_full_init_creates_every_object_of_the_cluster():
    made = full_init()
    assert len(STORED) == 30
    assert sorted(made) == STORED


def full_init() -> dict[str, dict]:
    configuration = load_file("cluster-objects/kubeadm.yaml")
    _, addresses = places(configuration)
    bodies = [
        *objects.cluster_admins(),
        *objects.kubeadm_config(configuration),
        *objects.kubelet_config(configuration),
        *objects.joining(),
        *published(configuration, addresses),
        *objects.dns(configuration),
        *objects.proxy(configuration, addresses, HOST),
        *objects.kubeadm_certs({}, owner="x", owner_uid="y")[1:],
    ]
    return {file_name(body): body for body in bodies}


def file_name(body: dict) -> str:
    metadata = body["metadata"]
    return f"{body['kind']}_{metadata.get('namespace', '-')}_{metadata['name'].replace(':', '.')}.json"


@pytest.mark.parametrize("name", STORED)
def test_stored_objects_are_what_we_send_plus_defaults_of_the_api_server(name):
    stored = reference_json(f"cluster-objects/{name}")
    body = full_init()[name]
    body["metadata"].pop("resourceVersion", None)
    body.pop("status", None)
    if name == "ConfigMap_kube-public_cluster-info.json":
        body["data"] = {}
    assert contained(body, stored) == []


def contained(part: object, whole: object, path: str = "") -> list[str]:
    """Return the paths at which a part is missing in the whole, or differs from it."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return [problem for key, value in part.items() for problem in contained(value, whole.get(key), f"{path}.{key}")]
    if isinstance(part, list) and isinstance(whole, list) and len(part) == len(whole):
        pairs = enumerate(zip(part, whole, strict=True))
        return [problem for index, (ours, theirs) in pairs for problem in contained(ours, theirs, f"{path}[{index}]")]
    empty = part in ("", {}, [], False) and whole is None
    return [] if part == whole or empty else [f"{path}: {part!r} is not {whole!r}"]


def test_the_token_of_a_file_is_written_as_by_kubeadm():
    (token,) = configuration_of("custom-paths-sans").init.bootstrap_tokens
    expected = next(
        request["object"]
        for request in reference_json("cases/custom-paths-sans/init-dry-run-objects.json")
        if request["verb"] == "CREATE" and request["object"]["metadata"]["name"] == "bootstrap-token-abcdef"
    )
    found = comparable(secret_object(token, clock=FakeClock()))
    found["data_decoded"]["expiration"] = "<creation + ttl>"
    assert found == expected
