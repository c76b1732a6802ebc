"""Masking: no planted secret gets through, and everything else stays readable."""

from __future__ import annotations

import base64
import json
import string
from urllib.parse import quote

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
        ("https://127.0.0.1:2379,https://a@b", f"https://127.0.0.1:2379,https://{MASK}@b"),
        ("http://me:p@ss:w@rd@proxy:3128/x@y", f"http://me:{MASK}@proxy:3128/x@y"),
        ("http://me:it's@proxy 'a@b'", f"http://me:{MASK}@proxy 'a@b'"),
        ('{"a":"http://h:3128","b":"x@y"}', '{"a":"http://h:3128","b":"x@y"}'),
        ("see http://t0ken@proxy:3128.", f"see http://{MASK}@proxy:3128."),
        (f"docker-pullable://etcd@sha256:{HEX}", f"docker-pullable://etcd@sha256:{HEX}"),
        ("- name: db_password\n  value: correct\n", f"- name: db_password\n  value: {MASK}\n"),
        ("- value: correct\n  name: A_TOKEN\n- name: B\n  value: x\n", f"- value: {MASK}\n  name: A_TOKEN\n- name: B\n  value: x\n"),
        ("- value: x\n  name: B\n- value: y\n  name: a_secret\n", f"- value: x\n  name: B\n- value: {MASK}\n  name: a_secret\n"),
        ("- value: |\n    a\n    - b\n  name: A_KEY_1\n", f"- value: {MASK}\n  name: A_KEY_1\n"),
        ("-  - value: old\n+  - value: new\n     name: API_KEY\n", f"-  - value: {MASK}\n+  - value: {MASK}\n     name: API_KEY\n"),
        ('{"value": "x y", "name": "A_TOKEN"}', f'{{"value": "{MASK}", "name": "A_TOKEN"}}'),
        ('"{\\"value\\":\\"x\\",\\"name\\":\\"a_token\\"}"', f'"{{\\"value\\":\\"{MASK}\\",\\"name\\":\\"a_token\\"}}"'),
        ("- name: service-account-key-file\n  value: /a/sa.pub\n", "- name: service-account-key-file\n  value: /a/sa.pub\n"),
        (f"key {HEX.upper()}", f"key {MASK}"),
        (f"\\n{HEX} \\b{HEX}", f"\\n{MASK} \\b{MASK}"),
        (f"SHA256:{HEX.upper()}", f"SHA256:{HEX.upper()}"),
        (f'"first\\n{TOKEN}\\n"', f'"first\\nabcdef.{MASK}\\n"'),
        (TOKEN.upper(), f"ABCDEF.{MASK}"),
        ('{"Authorization": ["Bearer horse"]}', f'{{"Authorization": ["Bearer {MASK}"]}}'),
        ("'authorization': 'Basic aG9yc2U='", f"'authorization': 'Basic {MASK}'"),
        ("used bearer horse-battery-1234 and failed", f"used bearer {MASK} and failed"),
        ("a bearer token is needed", "a bearer token is needed"),
        (
            f"@@ -3 +3 @@\n {BODY}\n-{BODY[:20]}=\n+{BODY[:24]}\n -----END EC PRIVATE KEY-----\n",
            f"@@ -3 +3 @@\n {MASK}\n-{MASK}\n+{MASK}\n -----END EC PRIVATE KEY-----\n",
        ),
        (f"@@ -3 +3 @@\n   {BODY}\n+  {BODY}\n x: y\n", f"@@ -3 +3 @@\n   {MASK}\n+  {MASK}\n x: y\n"),
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


def test_other_documents_next_to_a_secret_stay_readable():
    text = mask(dump(SECRET) + "---\nkind: ConfigMap\ndata:\n  a: public\n")
    assert hidden(text)
    assert "a: public" in text


def test_registered_values_are_masked_everywhere_and_in_base64():
    masker = Masker(["correct horse", b"\x00\x01\x02\x03\x04\x05\xff"])
    masker.register("battery staple")
    masker.register("short")
    text = f"correct horse, {encoded('correct horse')}; battery staple; short; {base64.b64encode(bytes([0, 1, 2, 3, 4, 5, 255])).decode()}"
    assert masker(text) == f"{MASK}, {MASK}; {MASK}; short; {MASK}"


def _forms_of(secret: str) -> list[str]:
    """How a program may write a text into another one."""
    return [
        secret,
        json.dumps(secret),
        json.dumps(json.dumps({"a": secret})),
        json.dumps({"a": secret}, ensure_ascii=False).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"),
        quote(secret, safe=""),
        encoded(secret),
        base64.urlsafe_b64encode(secret.encode()).decode(),
        *(encoded("x" * before + secret + "y" * 7) for before in range(4)),
        dump({"a": {"b": secret}}),
        unified_diff("", dump({"a": [secret]}), name="x"),
        unified_diff(f"a\n{secret}\nb\n", "a\nb\n", name="x"),
    ]


@given(secret=st.text(alphabet=string.ascii_letters + string.digits + "!%&<>@#+=~$^*()_-./", min_size=10, max_size=60))
def test_a_secret_that_was_read_never_appears_in_any_form(secret):
    if secret in MASK:
        return
    masking.forget()
    masking.remember(secret)
    shown = [mask(form).replace(MASK, "") for form in _forms_of(secret)]
    piece = encoded(secret)[4:12]
    assert [text for text in shown if secret in text or piece in text] == []


@given(
    password=st.text(alphabet=string.ascii_letters + string.digits + "!%&@+=~$^*()_-.:'", min_size=1, max_size=20),
    user=st.sampled_from(["", "me:"]),
)
def test_no_user_information_of_a_url_appears(password, user):
    planted = f"x{password}x@canary"
    shown = mask(f"value: http://{user}{planted}@proxy.example:3128/a?b=c\nnext: line")
    assert "canary" not in shown
    assert "proxy.example:3128/a?b=c\nnext: line" in shown


NAMES = st.sampled_from(["A_PASSWORD", "db_password", "apiKey", "ApiToken", "API_TOKEN_2", "client_secret", "x_credentials", "my_key"])


@given(
    name=NAMES,
    value=st.text(
        alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"], exclude_characters="\ufffe\uffff"),
        min_size=1,
        max_size=30,
    ),
    first=st.booleans(),
    more=st.sampled_from(["", "\nsecond canary", "\n- canary", "\nname: canary", ": canary", "\n\ncanary"]),
)
def test_values_of_variables_with_secret_names_never_appear(name, value, first, more):
    entry = {"value": f"canary {value}{more}", "name": name} if first else {"name": name, "value": f"canary {value}{more}"}
    other = {"name": "OTHER", "value": "public"}
    masking.forget()
    body = {"env": [other, entry, other]}
    for text in (dump(body), json.dumps(body), json.dumps(json.dumps(body)), unified_diff("", dump(body), name="x")):
        masking.remember_within(body)
        shown = mask(text)
        assert "canary" not in shown
        assert shown.count("public") == 2


def test_remembered_secrets_are_limited_and_specific():
    for number in range(2 * masking.MOST):
        masking.remember(f"secret number {number}")
    assert len(masking.known()) == masking.MOST
    assert masking.known()[-1] == f"secret number {2 * masking.MOST - 1}"
    masking.forget()
    assert [masking.remember_token(text) for text in ("abcdef", TOKEN, "opaque.token")] == ["abcdef", TOKEN, "opaque.token"]
    assert masking.known() == ("0123456789abcdef", "opaque.token")


def test_a_document_that_contains_itself_a_million_times_is_read_once():
    node: list[object] = [{"token": "correct horse"}]
    for _ in range(60):
        node = [node, node]
    masking.remember_within(node)
    assert masking.known() == ("correct horse",)


surroundings = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40).filter(lambda text: "-----" not in text)


@given(surroundings, surroundings, st.sampled_from([PEM, encoded(PEM), f"\ntoken: {TOKEN}", f"\nclient-key-data: {BODY}\n", f" {TOKEN} "]))
def test_a_planted_secret_never_appears(before, after, secret):
    masked = mask(before + secret + after)
    assert BODY not in masked
    assert encoded(PEM)[40:] not in masked
    assert "0123456789abcdef" not in masked


@given(surroundings, st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=6).filter(lambda text: len(text.strip()) >= 6))
def test_a_registered_value_never_appears(around, secret):
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
def test_prefilters_skip_no_pattern_that_would_match(text):
    everywhere = tuple((("",), pattern, replacement) for _, pattern, replacement in masking._RULES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masking, "_RULES", everywhere)
        thorough = mask(text)
    assert mask(text) == thorough


def test_a_long_text_that_seems_to_begin_tokens_everywhere_is_masked_in_one_pass():
    text = "eyJ-" * 250_000  # each beginning was followed to the end of the text
    assert mask(text) == text
    assert mask(f"{text}.eyJb.c2ln") == f"{text}.eyJb.{MASK}"
