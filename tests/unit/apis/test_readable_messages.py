"""No message contains text that only Python programmers understand: reprs, type names, None and True."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from apis_documents import MACHINE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kubewright
import parts
from kubewright.apis.kubeadm.explanations import ROOTS, every
from kubewright.apis.kubeadm.whole_files import load_whole
from kubewright.base.errors import KubewrightError, ValidationError
from kubewright.base.messages import quoted
from kubewright.base.yaml import Document, load_all

PYTHON = re.compile(
    r"\b(?:None|True|False|IPv[46]\w+|Decimal|dict|tuple|NoneType|frozenset)\b|\w\('|<class|object at 0x|\{'|\['|\('|\bb'|'\w*'"
)
SOURCE = Path(kubewright.__file__).parent
PATHS = [(kind, found.path) for kind in ROOTS for found in every(kind)]
VALUES = (
    None, True, False, 0, -1, 3, 70000, 2**40, 1.5, 1e300, "", "x", "X y", "a:b:c", "[::1", "https://[v6]:1", "http://h:port", "10.0.0.0/33",
    "10.0.0.0/8,10.0.0.0/9", "fd00::/129", "::1", "1.2.3.4", "tcp://h:1", "unix:relative", "-5m", "5x", "1h", "9999999999h", "v1.2", "v9.9.9",
    "%zz", "stable-1", "RSA-1", "Sometimes", [], ["x"], [[]], {}, {"x": 1}, {"x": True}, [{"name": ""}], [{"nam": "v"}], [None], ["http://[:1"],
)  # fmt: skip
COMPONENT_FIELDS = (
    "maxPods",
    "clusterDNS",
    "runOnce",
    "evictionHard",
    "logging",
    "mode",
    "bindAddress",
    "iptables",
    "nodePortAddresses",
    "tracing",
)


def _document(kind: str, api_version: str, fields: dict[str, object]) -> Document:
    value: dict[str, object] = {"apiVersion": api_version, "kind": kind}
    for path, content in fields.items():
        *parents, name = path.split(".")
        here = value
        for parent in parents:
            below = here.setdefault(parent, {})
            if not isinstance(below, dict):
                break
            here = below
        else:
            here[name] = content
    return Document(value=value, source="kubeadm.yaml")


def _said(documents: list[Document]) -> str:
    try:
        return "\n".join(load_whole(documents, detected=MACHINE, exists=lambda _: False).warnings)
    except ValidationError as error:
        return f"{error}\n{error.remedy}"


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_no_value_of_any_field_gives_a_message_in_python_syntax(value):
    for kind in ROOTS:
        leaves = {path: value for of, path in PATHS if of == kind and not any(other.startswith(f"{path}.") for _, other in PATHS)}
        branches = {path: value for of, path in PATHS if of == kind and "." not in path}
        assert len(leaves) > 5
        said = [_said([_document(kind, "kubeadm.k8s.io/v1beta4", fields)]) for fields in (leaves, branches)]
        assert [text for text in said if PYTHON.search(text)] == []


@settings(max_examples=parts.given(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    fields=st.dictionaries(st.sampled_from([path for _, path in PATHS]), st.sampled_from(VALUES), max_size=6),
    component=st.dictionaries(st.sampled_from(COMPONENT_FIELDS), st.sampled_from(VALUES), max_size=4),
    kind=st.sampled_from(sorted(ROOTS)),
    version=st.sampled_from(["v1beta4", "v1beta3", "v1beta2", "v1beta1"]),
)
def test_no_document_gives_a_message_in_python_syntax(fields, component, kind, version):
    if version != "v1beta4" and kind in {"ResetConfiguration", "UpgradeConfiguration"}:
        version = "v1beta4"
    documents = [
        _document(kind, f"kubeadm.k8s.io/{version}", fields),
        _document("KubeletConfiguration", "kubelet.config.k8s.io/v1beta1", component),
        _document("KubeProxyConfiguration", "kubeproxy.config.k8s.io/v1alpha1", component),
    ]
    assert PYTHON.search(_said(documents)) is None


@pytest.mark.parametrize(
    "text", ["a: [", "a: *b", "apiVersion: [1]\nkind: null", "apiVersion: v1\nkind: true", "- a", "kind: X\napiVersion: a/b/c"]
)
def test_invalid_documents_give_no_message_in_python_syntax(text):
    with pytest.raises(KubewrightError) as caught:
        load_whole(load_all(text, source="f.yaml"), detected=MACHINE)
    assert PYTHON.search(f"{caught.value} {caught.value.remedy}") is None


def test_messages_about_documents_quote_with_our_own_quotes():
    layers = ("apis", "base", "tokens", "pki")
    files = [path for layer in layers for path in (SOURCE / layer).rglob("*.py") if path.name != "records.py"]  # reprs are its task
    lines = [line for path in files for line in path.read_text().splitlines() if "!r}" in line or "map(repr" in line]
    assert len(files) > 60
    assert [line for line in lines if "AttributeError" not in line and 'return f"Duration(' not in line] == []


@pytest.mark.parametrize(
    ("text", "shown"), [("a", '"a"'), ('a"\\b', '"a\\"\\\\b"'), ("a\nb\tc", '"a\\nb\\tc"'), ("é\x00", '"é\\u0000"'), ("", '""'), (5, '"5"')]
)
def test_a_text_is_quoted_as_in_yaml(text, shown):
    assert quoted(text) == shown


@given(st.text(max_size=20))
def test_a_quoted_text_is_one_printable_line(text):
    assert quoted(text).isprintable()
