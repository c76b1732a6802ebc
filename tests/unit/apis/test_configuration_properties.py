"""Properties of the loader: bad documents raise errors of our tree, and what it writes it reads back as the same configuration."""

from __future__ import annotations

import copy

from apis_documents import CASES, KUBE_PROXY, KUBELET, MACHINE, REFERENCE, cluster, documents, init, load
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import parts
from kubewright.apis.findings import Findings
from kubewright.apis.kubeadm.codec import cluster_document, init_document
from kubewright.apis.kubeadm.defaults import random_token
from kubewright.apis.kubeadm.loading import load_init
from kubewright.apis.kubeadm.types import CLUSTER, INIT
from kubewright.apis.scalars import is_token
from kubewright.base.errors import DocumentError, ValidationError
from kubewright.base.randomness import SeededRandom
from kubewright.base.yaml import dump_all, load_all

_FAST = settings(max_examples=parts.given(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])

_SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(["", "1h", "10.0.0.0/8", "a.b:1"])
)
_JSON = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3), max_leaves=8
)


def _paths(value, path=()):
    """List every place of a document."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, inner in entries for found in _paths(inner, (*path, key)))]


def _replaced(value, path, new):
    if not path:
        return new
    changed = copy.copy(value)
    changed[path[0]] = _replaced(value[path[0]], path[1:], new)
    return changed


_FULL = [
    *(document.value for document in load_all((REFERENCE / "cases" / "extra-everything" / "kubeadm.yaml").read_text())),
    *(document.value for document in load_all((REFERENCE / "config-print" / "init-defaults.component-configs.yaml").read_text())[2:]),
]
_FULL = list({document["kind"]: document for document in _FULL}.values())
_PLACES = [(index, path) for index, document in enumerate(_FULL) for path in _paths(document)]


def _ends_well(values, *, strict=True):
    """Load documents and require success or an error of our tree with a message."""
    try:
        load_init(documents(*values), detected=MACHINE, random=SeededRandom(), strict=strict)
    except DocumentError as error:
        told = (error.what, error.remedy)
    except ValidationError as error:
        told = (error.what, error.detail, *(str(found) for found in error.errors))
    else:
        told = ("valid",)
    assert all(told)


@_FAST
@given(st.lists(_JSON, max_size=3), st.booleans())
def test_arbitrary_documents_end_in_the_error_tree(values, strict):
    _ends_well(values, strict=strict)


@_FAST
@given(st.sampled_from([init(), cluster(), KUBELET, KUBE_PROXY]), st.data())
def test_arbitrary_values_of_real_fields_end_in_the_error_tree(head, data):
    known = [field.name for table in (INIT, CLUSTER) for field in table.fields]
    extra = data.draw(st.dictionaries(st.sampled_from(known) | st.text(max_size=8), _JSON, max_size=4))
    _ends_well([cluster(), {**extra, **head}] if head["kind"] != "ClusterConfiguration" else [{**extra, **head}])


@settings(max_examples=parts.given(200), deadline=None)
@given(st.sampled_from(_PLACES), _JSON)
def test_one_wrong_value_in_a_valid_file_ends_in_the_error_tree(place, new):
    index, path = place
    _ends_well([_replaced(document, path, new) if number == index else document for number, document in enumerate(_FULL)])


@_FAST
@given(st.sampled_from(_PLACES), st.sampled_from([None, "", 0, [], {}, "x", -1, True]))
def test_emptied_values_of_a_valid_file_end_in_the_error_tree(place, new):
    index, path = place
    _ends_well([_replaced(document, path, new) if number == index else document for number, document in enumerate(_FULL)])


_NAME = st.from_regex(r"[a-z][a-z0-9]{0,8}(\.[a-z][a-z0-9]{0,8}){0,2}", fullmatch=True)
_VALUE = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=10)
_PATH = st.from_regex(r"(/[a-z0-9._-]{1,8}){1,3}", fullmatch=True)
_PERIOD = st.integers(0, 10**15).map(lambda number: f"{number}ns")
_ARGS = st.lists(st.fixed_dictionaries({"name": _NAME, "value": _VALUE}), max_size=3)
_ENVS = st.lists(
    st.fixed_dictionaries(
        {"name": _NAME},
        optional={
            "value": _VALUE,
            "valueFrom": st.sampled_from(
                [
                    None,
                    {},
                    {"fieldRef": {"fieldPath": "x"}},
                    {"resourceFieldRef": {"resource": "a", "divisor": "1000m"}},
                    {"secretKeyRef": {"key": "k"}},
                ]
            ),
        },
    ),
    max_size=2,
)
_VOLUMES = st.lists(
    st.fixed_dictionaries({"name": _NAME, "hostPath": _PATH, "mountPath": _PATH}, optional={"readOnly": st.booleans()}), max_size=2
)
_SANS = st.lists(_NAME | st.ip_addresses().map(str) | _NAME.map("*.{}".format), max_size=3)
_COMPONENT = st.fixed_dictionaries({}, optional={"extraArgs": _ARGS, "extraEnvs": _ENVS, "extraVolumes": _VOLUMES})
_ETCD = st.fixed_dictionaries(
    {
        "local": st.fixed_dictionaries(
            {}, optional={"dataDir": _PATH, "extraArgs": _ARGS, "extraEnvs": _ENVS, "serverCertSANs": _SANS, "imageTag": _NAME}
        )
    }
) | st.fixed_dictionaries(
    {
        "external": st.fixed_dictionaries(
            {"endpoints": st.lists(_NAME.map("https://{}:2379".format), min_size=1, max_size=2)},
            optional={"httpEndpoints": st.lists(_NAME.map("http://{}".format), max_size=2), "caFile": _PATH},
        )
    }
)
_CLUSTERS = st.fixed_dictionaries(
    {"kubernetesVersion": st.sampled_from(["v1.36.2", "1.35.0", "ci/v1.37.0-alpha.1.5+abc", "v1.36.3-rc.1"])},
    optional={
        "apiServer": st.fixed_dictionaries({}, optional={"certSANs": _SANS, "extraArgs": _ARGS, "extraEnvs": _ENVS}),
        "controllerManager": _COMPONENT,
        "scheduler": _COMPONENT,
        "etcd": _ETCD,
        "clusterName": _VALUE,
        "controlPlaneEndpoint": _NAME | st.ip_addresses().map(str),
        "certificatesDir": _PATH,
        "imageRepository": _NAME,
        "encryptionAlgorithm": st.sampled_from(["ECDSA-P256", "RSA-4096"]),
        "certificateValidityPeriod": _PERIOD,
        "caCertificateValidityPeriod": _PERIOD,
        "featureGates": st.dictionaries(st.sampled_from(["RootlessControlPlane", "PublicKeysECDSA"]), st.booleans()),
        "dns": st.fixed_dictionaries({}, optional={"disabled": st.booleans(), "imageTag": _NAME}),
        "proxy": st.fixed_dictionaries({}, optional={"disabled": st.booleans()}),
        "networking": st.fixed_dictionaries(
            {}, optional={"podSubnet": st.sampled_from(["10.0.0.0/8", "fd00::/56,10.1.0.0/16"]), "dnsDomain": _NAME}
        ),
    },
)
_TOKENS = st.fixed_dictionaries(
    {"token": st.from_regex(r"[a-z0-9]{6}\.[a-z0-9]{16}", fullmatch=True)},
    optional={"ttl": _PERIOD, "description": _VALUE, "usages": st.sampled_from([[], ["signing", "authentication"], ["authentication"]])},
)
_TAINTS = st.lists(st.fixed_dictionaries({"key": _NAME, "effect": st.just("NoSchedule")}, optional={"value": _VALUE}), max_size=2)
_INITS = st.fixed_dictionaries(
    {},
    optional={
        "bootstrapTokens": st.lists(_TOKENS, max_size=2),
        "dryRun": st.booleans(),
        "certificateKey": st.binary(min_size=32, max_size=32).map(bytes.hex),
        "skipPhases": st.lists(_NAME, max_size=2),
        "patches": st.fixed_dictionaries({"directory": _PATH}),
        "localAPIEndpoint": st.fixed_dictionaries(
            {}, optional={"advertiseAddress": st.just("192.0.2.1"), "bindPort": st.integers(0, 65535)}
        ),
        "timeouts": st.dictionaries(st.sampled_from(["discovery", "etcdAPICall", "tlsBootstrap", "kubernetesAPICall"]), _PERIOD),
        "nodeRegistration": st.fixed_dictionaries(
            {},
            optional={
                "name": _NAME,
                "taints": st.none() | _TAINTS,
                "kubeletExtraArgs": _ARGS,
                "imagePullSerial": st.none() | st.booleans(),
            },
        ),
    },
)


@settings(max_examples=parts.given(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_INITS, _CLUSTERS)
def test_a_written_configuration_is_read_back_unchanged(machine, shared):
    first = load(init(**machine), cluster(**shared)).configuration
    written = [init_document(first.init), cluster_document(first.cluster), first.kubelet.document, first.kube_proxy.document]
    second = load(*written).configuration
    assert (second.init, second.cluster) == (first.init, first.cluster)
    assert (second.kubelet.document, second.kube_proxy.document) == (first.kubelet.document, first.kube_proxy.document)
    again = load_init(load_all(dump_all(written)), detected=MACHINE).configuration
    assert (again.init, again.cluster) == (first.init, first.cluster)
    assert [init_document(again.init), cluster_document(again.cluster)] == written[:2]


def test_reference_configurations_are_read_back_unchanged():
    for case in CASES:
        values = [document.value for document in load_all((REFERENCE / "cases" / case / "kubeadm.yaml").read_text())]
        first = load(*values).configuration
        second = load(init_document(first.init), cluster_document(first.cluster)).configuration
        assert (second.init, second.cluster) == (first.init, first.cluster)


@given(st.integers())
def test_random_tokens_have_the_format_of_tokens(seed):
    assert is_token(random_token(SeededRandom(seed)))


@_FAST
@given(_JSON)
def test_the_walker_returns_a_struct_for_any_value(value):
    findings = Findings()
    assert INIT.decode(value, findings.root) is not None
    if isinstance(value, dict) or value is None:
        assert all(error.path.text for error in findings.errors)
    else:
        assert [error.type.value for error in findings.errors] == ["Wrong type"]
