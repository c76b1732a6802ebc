"""Masking: no planted secret comes through, and what is not secret stays readable."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base import masking
from kubewright.base.change import unified_diff
from kubewright.base.masking import MASK, Masker, mask
from kubewright.base.yaml import dump

BODY = "MHcCAQEEIIrYSSNQFaA2Hwf1duRSxKtLYX5CB04fSeQ6tF1aY/PuoAoGCCqGSM49"
PEM = f"-----BEGIN EC PRIVATE KEY-----\n{BODY}\n-----END EC PRIVATE KEY-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUQd\n-----END CERTIFICATE-----\n"
TOKEN = "abcdef.0123456789abcdef"
HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (PEM, f"-----BEGIN EC PRIVATE KEY-----{MASK}-----END EC PRIVATE KEY-----\n"),
        (PEM[:60], f"-----BEGIN EC PRIVATE KEY-----{MASK}"),
        (PEM.replace("EC ", ""), f"-----BEGIN PRIVATE KEY-----{MASK}-----END PRIVATE KEY-----\n"),
        (CERTIFICATE, CERTIFICATE),
        (f"x {encoded(PEM)} y", f"x {MASK} y"),
        (f"x {encoded(PEM.replace('EC ', 'RSA '))} y", f"x {MASK} y"),
        (f"x {encoded(PEM.replace('EC ', ''))} y", f"x {MASK} y"),
        (encoded(CERTIFICATE), encoded(CERTIFICATE)),
        (f"join --token {TOKEN} h:6443", f"join --token {MASK} h:6443"),
        (f"the token {TOKEN}.", f"the token abcdef.{MASK}."),
        (f'{{"token": "{TOKEN}"}}', f'{{"token": "{MASK}"}}'),
        ('{"a": "{\\"password\\":\\"open\\"}"}', f'{{"a": "{{\\"password\\":\\"{MASK}\\"}}"}}'),
        ("password: 'it is'", f"password: '{MASK}'"),
        ('token: ""', 'token: ""'),
        ('{"token":null,"x":1}', '{"token":null,"x":1}'),
        ("password: correct horse\nx: y", f"password: {MASK}\nx: y"),
        ("  password: correct\n    horse\n  x: y", f"  password: {MASK}\n  x: y"),
        ("- password: |\n    correct\n    horse\n- x: y", f"- password: {MASK}\n- x: y"),
        ('password: "correct\n  horse"\nx: "y"', f'password: "{MASK}"\nx: "y"'),
        ("password: 'it''s'\nx: y", f"password: '{MASK}'\nx: y"),
        ("-password: old horse\n+password: new horse\n x: y", f"-password: {MASK}\n+password: {MASK}\n x: y"),
        ("password: \\horse", f"password: {MASK}"),
        ("sent token: horse, retrying", f"sent token: {MASK}, retrying"),
        ("client-key-data: TGl0", f"client-key-data: {MASK}"),
        ("    client-key-data: TGl0\n    x: y", f"    client-key-data: {MASK}\n    x: y"),
        ('"client-key-data":"TGl0","x":1', f'"client-key-data":"{MASK}","x":1'),
        ("certificateKey: abc", f"certificateKey: {MASK}"),
        (f"--certificate-key {HEX}", f"--certificate-key {MASK}"),
        (f"key {HEX}", f"key {MASK}"),
        (f"sha256:{HEX}", f"sha256:{HEX}"),
        ("Authorization: Bearer xyz", f"Authorization: Bearer {MASK}"),
        ("eyJhbGciOi.eyJpc3MiOi.c2lnbmF0dXJl", f"eyJhbGciOi.eyJpc3MiOi.{MASK}"),
        ("tokenFile: /a/b\nsecretName: x\nsecret:\n  name: y", "tokenFile: /a/b\nsecretName: x\nsecret:\n  name: y"),
        ("kube-apiserver.kube-system.svc", "kube-apiserver.kube-system.svc"),
        ("- name: A_PASSWORD\n  value: correct\n- name: B\n  value: x", f"- name: A_PASSWORD\n  value: {MASK}\n- name: B\n  value: x"),
        (
            '   - name: "API_KEY"\n-    value: old\n-      horse\n+    value: new\n   - name: B\n',
            f'   - name: "API_KEY"\n-    value: {MASK}\n+    value: {MASK}\n   - name: B\n',
        ),
        ('{"name": "A_TOKEN", "value": "x y"}', f'{{"name": "A_TOKEN", "value": "{MASK}"}}'),
        ("value: http://me:horse@proxy:3128/ x@y", f"value: http://me:{MASK}@proxy:3128/ x@y"),
        ("https://127.0.0.1:2379,https://a@b", "https://127.0.0.1:2379,https://a@b"),
        ("kind: ConfigMap\ndata:\n  a: b\n", "kind: ConfigMap\ndata:\n  a: b\n"),
    ],
)
def test_secrets_are_masked_and_the_rest_stays(text, masked):
    assert mask(text) == masked


@pytest.mark.parametrize(
    "path", ["token", "a.yaml:3:1: bootstrapTokens[0].token", "discovery.tlsBootstrapToken", "  certificateKey", "x.secret"]
)
@pytest.mark.parametrize("value", [TOKEN, "no token", "horse", "(hidden)"])
def test_a_field_error_about_a_secret_stays_readable_without_its_value(path, value):
    said = [f'{path}: {kind}: "{value}": why: not' for kind in ("Invalid value", "Wrong type", "Unsupported value", "Duplicate value")]
    assert [mask(text) for text in said] == [text.replace(value, MASK) for text in said]
    for text in (f"{path}: Required value", f"{path}: Required value: give one", f"{path}: Unknown field", f"{path}: Forbidden: not here"):
        assert mask(f"x\n{text}\ny") == f"x\n{text}\ny"


SECRET = {
    "apiVersion": "v1",
    "data": {"one": "c2VjcmV0LW9uZQ==", "two": "line c2VjcmV0\nline LXR3bw=="},
    "kind": "Secret",
    "metadata": {"labels": {"app": "public"}, "name": "s"},
    "stringData": {"three": "secret-three"},
    "type": "Opaque",
}
VALUES = ("c2VjcmV0LW9uZQ==", "c2VjcmV0\n", "LXR3bw==", "secret-three")


def hidden(text: str) -> bool:
    return not any(value.strip() in text for value in VALUES)


def test_data_of_secrets_is_masked_in_yaml_json_and_diffs():
    changed = {**SECRET, "data": {"one": "bm93LW90aGVy", "two": SECRET["data"]["two"]}, "type": "other"}
    forms = [
        dump(SECRET),
        json.dumps(SECRET),
        json.dumps(SECRET, indent=2),
        unified_diff("", dump(SECRET), name="secret kube-system/s"),
        unified_diff(dump(SECRET), dump(changed), name="secret kube-system/s"),
    ]
    masked = [mask(form) for form in forms]
    assert [hidden(text) for text in masked] == [True] * 5
    assert "bm93LW90aGVy" not in masked[4]
    assert all("Opaque" in text for text in masked)
    assert masked[0].count(MASK) == 3


def test_a_hunk_that_begins_inside_the_data_is_masked_too():
    before = {"kind": "Secret", "data": {f"k{index}": "AAAAAAAA" for index in range(20)}}
    after = {"kind": "Secret", "data": {**before["data"], "k10": "BBBBBBBB"}}
    text = mask(unified_diff(dump(before), dump(after), name="secret ns/name"))
    assert "AAAAAAAA" not in text
    assert "BBBBBBBB" not in text
    assert "+  k10: " + MASK in text


def test_other_documents_beside_a_secret_stay_readable():
    text = mask(dump(SECRET) + "---\nkind: ConfigMap\ndata:\n  a: public\n")
    assert hidden(text)
    assert "a: public" in text


def test_registered_values_are_masked_everywhere_also_in_base64():
    masker = Masker(["correct horse", b"\x00\x01\x02\x03\x04\x05\xff"])
    masker.register("battery staple")
    masker.register("short")
    text = f"correct horse, {encoded('correct horse')}; battery staple; short; {base64.b64encode(bytes([0, 1, 2, 3, 4, 5, 255])).decode()}"
    assert masker(text) == f"{MASK}, {MASK}; {MASK}; short; {MASK}"


surroundings = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40).filter(lambda text: "-----" not in text)


@given(surroundings, surroundings, st.sampled_from([PEM, encoded(PEM), f"\ntoken: {TOKEN}", f"\nclient-key-data: {BODY}\n", f" {TOKEN} "]))
def test_a_planted_secret_never_comes_through(before, after, secret):
    masked = mask(before + secret + after)
    assert BODY not in masked
    assert encoded(PEM)[40:] not in masked
    assert "0123456789abcdef" not in masked


@given(surroundings, st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=6).filter(lambda text: len(text.strip()) >= 6))
def test_a_registered_value_never_comes_through(around, secret):
    if secret.strip() in MASK:
        return
    assert secret.strip() not in Masker([secret])(around + secret + around).replace(MASK, "")


_PIECES = [
    *(
        PEM,
        encoded(PEM),
        TOKEN,
        HEX,
        "eyJa.eyJb.c",
        "aUTHORIZATION: Bearer ",
        "--token ",
        "--discovery-token=",
        "kind: Secret\n",
        "data:\n",
    ),
    *(
        "  client-key-data: ",
        '"certificateKey": ',
        "password: ",
        "tlsBootstrapToken: '",
        "secret: ",
        "- name: A_PASSWORD\n",
        "  value: horse\n",
        '"name": "A_TOKEN", "value": ',
        "http://me:horse@",
        "id-token: ",
        "x",
        " ",
        "\n",
        ".",
        ":",
    ),
]


@given(st.lists(st.sampled_from(_PIECES), max_size=8).map("".join))
def test_hints_leave_out_no_pattern_that_would_match(text):
    everywhere = tuple((("",), pattern, replacement) for _, pattern, replacement in masking._RULES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masking, "_RULES", everywhere)
        thorough = mask(text)
    assert mask(text) == thorough
