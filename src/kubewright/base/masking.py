"""Mask secrets, including all that this process has read, in diffs, logs, plans and errors.

Code that reads a secret passes it to `remember`. Masking works on text, including lines of a unified diff.
"""

from __future__ import annotations

import base64
import functools
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kubewright.base.patterns import Pattern

SHORTEST: Final = 6
"""Minimum length of a remembered value: a shorter one would mask ordinary text."""
MOST: Final = 256
"""Maximum number of remembered values; a daemon with thousands of identities keeps the latest."""

_FIELDS: Final = frozenset(
    {
        *("token", "tlsBootstrapToken", "certificateKey", "password", "client-key-data", "bearerToken", "id-token", "refresh-token"),
        "token-secret",
    }
)
WORDS: Final = ("passw", "passphrase", "secret", "token", "credential", "_key", "apikey")
_ID_LENGTH, _SECRET_LENGTH = 6, 16
_lock: Final = threading.Lock()
_known: tuple[str, ...] = ()  # one set of secrets per process, like its log

MASK: Final = "<masked>"
_Replacement = str | Callable[[re.Match[str]], str]
# A value in JSON within JSON, in double quotes, in single quotes, or as one unquoted word.
_VALUE: Final = r"\\\"(?:[^\"\\]|\\\\(?:\\\"|\\\\|[^\"\\]))*\\\"|\\\"[^\"]*\\\"|\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'|(?!(?:null|true|false)\b)(?:[^\s,}\"'\\]|\\(?!\"))[^\s,}]*"
_CREDENTIAL_FIELDS: Final = (
    "client-key-data|token|token-secret|password|secret|certificateKey|certificate-key|id-token|refresh-token|bearerToken|tlsBootstrapToken"
)
# The text of a field error after a path such as `bootstrapTokens[0].token`: after the first words there is a value,
# after the others none.
_VALUED: Final = r"(?:(?:Invalid value|Unsupported value|Duplicate value|Wrong type):[ \t]*)?"
_VALUELESS: Final = r"(?!(?:Required value|Forbidden|Unknown field)(?::|$)|(?:Invalid value|Unsupported value|Duplicate value|Wrong type):)"
_FIELD_HINTS: Final = Pattern(rf"(?:{_CREDENTIAL_FIELDS})[\\\"'\s:]")
# Environment variables of static pods whose names suggest a secret; in a diff both values follow the name.
# Components' flags have hyphens in their names, so paths of key files stay readable.
_SECRET_WORDS: Final = Pattern("(?i)" + "|".join(WORDS))
_SECRET_NAME: Final = rf"(?i:[a-z0-9_.]*(?:{'|'.join(WORDS)})[a-z0-9_.]*)"
_BODY_LINE: Final = Pattern(r"(?m)^([-+ ]?[ \t]*)[A-Za-z0-9+/]{4,}={0,2}$")
_VARIABLE: Final = Pattern(r"(?m)^([-+ ]?[ \t]*(?:- +)?value:[ \t]+)\S.*(?:\n(?![-+ ]?[ \t]*(?:- +)?value:).*)*")
_BEARER: Final = Pattern(r"(?i)bearer|basic")
_HEX: Final = Pattern(r"[0-9a-fA-F]{8,}")
_SECRET_KIND: Final = Pattern(r"\bkind\"?:\s*\"?Secret\b|^(?:---|\+\+\+) secret\b", re.MULTILINE)
_DIFF: Final = Pattern(r"^@@ ", re.MULTILINE)
_SEPARATOR: Final = Pattern(r"^(---\n)", re.MULTILINE)
_DATA: Final = Pattern(r"(?:data|stringData):\s*")
_ENTRY: Final = Pattern(r"(\s*[^\s:][^:]*:)\s*\S.*")
_JSON_DATA: Final = Pattern(r"(\"(?:data|stringData)\"\s*:\s*\{)([^{}]*)(\})")
_JSON_ENTRY: Final = Pattern(r"(\"[^\"]*\"\s*:\s*)\"(?:[^\"\\]|\\.)*\"")


def remember(value: str) -> str:
    """Remember a secret that was read, from any thread, and return it unchanged."""
    global _known
    text = value.strip()
    if len(text) >= SHORTEST and text not in _known:
        with _lock:
            _known = (*_known, text)[-MOST:]
    return value


def remember_token(text: str) -> str:
    """Remember a token that was read, and return it. The id of a bootstrap token is not secret: it names an object."""
    id_, dot, secret = text.strip().partition(".")
    if dot or len(id_) != _ID_LENGTH:
        remember(secret if (len(id_), len(secret)) == (_ID_LENGTH, _SECRET_LENGTH) else text)
    return text


def remember_within(document: object) -> None:
    """Remember the secret fields of a document, and environment variables whose names suggest secrets."""
    left, seen = [document], set[int]()
    while left:
        node = left.pop()
        if isinstance(node, Mapping) and id(node) not in seen:
            seen.add(id(node))
            _remember_fields(node)
            left += node.values()
        elif isinstance(node, list) and id(node) not in seen:
            seen.add(id(node))
            left += node


def _remember_fields(node: Mapping[object, object]) -> None:
    for name, value in node.items():
        if name in _FIELDS and isinstance(value, str):
            remember_token(value) if name == "token" else remember(value)
    name, value = node.get("name"), node.get("value")
    if isinstance(name, str) and isinstance(value, str) and tells_of_a_secret(name):
        remember(value)


def tells_of_a_secret(name: str) -> bool:
    """Whether the name of an environment variable suggests a secret.

    Flags of programs, which have hyphens, never do.
    """
    lowered = name.lower()
    return "-" not in lowered and any(word in lowered for word in WORDS)


def known() -> tuple[str, ...]:
    """Return the remembered values, the oldest first."""
    return _known


def forget() -> None:
    """Forget everything; for tests."""
    global _known
    with _lock:
        _known = ()


def _hide_value(found: re.Match[str]) -> str:
    """Keep the key, and the quotes of the value, so that JSON and YAML remain valid."""
    value = found["value"]
    quote = next((mark for mark in ('"', "'", '\\"') if value.startswith(mark)), "")
    hidden = value if value == quote * 2 else f"{quote}{MASK}{quote}"
    return found["key"] + hidden


def _hide_environment(found: re.Match[str]) -> str:
    """Keep the name of the variable, and the lines of a diff."""
    return found["name"] + _VARIABLE.sub(rf"\1{MASK}", found["values"])


def _hide_environment_before(found: re.Match[str]) -> str:
    return _VARIABLE.sub(rf"\1{MASK}", found["values"]) + found["name"]


def _hide_lines(found: re.Match[str]) -> str:
    """Keep the marks and the indentation of lines."""
    return _BODY_LINE.sub(rf"\1{MASK}", found[0])


# In order. Each rule keeps the name of the secret and drops its value. The first element is a list of texts, one of
# which must be present for the pattern to match, or a cheaper pattern that must match: a pattern that cannot match is
# not even compiled.
_RULES: Final[tuple[tuple[tuple[str, ...] | Pattern, Pattern, _Replacement], ...]] = (
    # A private key in PEM, even if it is cut off, or written on one line with \n.
    (("PRIVATE KEY",), Pattern(r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----)[\s\S]*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)"), rf"\1{MASK}\2"),
    # The end of one, in a hunk of a diff that does not show its beginning; a key may also be at the beginning of a
    # hunk.
    (
        ("PRIVATE KEY",),
        Pattern(r"(?m)(?:\A|(?<=@@\n))(?:[-+ ]?[ \t]*[A-Za-z0-9+/]{4,}={0,2}\n){1,200}(?=[-+ ]?[ \t]*-----END [A-Z0-9 ]*PRIVATE KEY)"),
        _hide_lines,
    ),
    (("@@ ",), Pattern(r"(?m)(?<=@@\n)(?:^[-+ ][ \t]*[A-Za-z0-9+/]{64}$\n?)+(?:^[-+ ][ \t]*[A-Za-z0-9+/]{4,64}={0,2}$)?"), _hide_lines),
    # The same in base64, as in kubeconfigs: "-----BEGIN " followed by PRIVATE, EC PRIVATE, RSA PRIVATE, OPENSSH
    # PRIVATE, ENCRYPTED PRIVATE.
    (
        ("LS0tLS1CRUdJTi",),
        Pattern(
            r"LS0tLS1CRUdJTi(?:BQUklWQVRF|BFQyBQUklWQVRF|BSU0EgUFJJVkFURS|BPUEVOU1NIIFBSSVZBVEUg|BFTkNSWVBURUQgUFJJVkFURS)[A-Za-z0-9+/=\\n]*"
        ),
        MASK,
    ),
    # kubeconfigs and configurations: a YAML field on separate lines, perhaps folded or as a block; then one anywhere,
    # in YAML or JSON.
    (
        _FIELD_HINTS,
        Pattern(
            rf"(?m)^(?P<key>(?P<lead>[-+ ])?(?P<indent> *)(?:- )*(?:{_CREDENTIAL_FIELDS}):[ \t]+){_VALUELESS}(?P<value>\S.*(?:\n(?(lead)[-+ ])(?P=indent) +\S.*)*)"
        ),
        _hide_value,
    ),
    (
        _FIELD_HINTS,
        Pattern(rf"(?sm)(?P<key>(?<![\w-])(?:{_CREDENTIAL_FIELDS})(?:\\?[\"'])?\s*:[ \t]*{_VALUED}){_VALUELESS}(?P<value>{_VALUE})"),
        _hide_value,
    ),
    (
        _SECRET_WORDS,
        Pattern(
            rf"(?m)(?P<name>\bname:[ \t]+[\"']?{_SECRET_NAME}[\"']?[ \t]*\n)"
            r"(?P<values>[-+ ]?(?P<indent>[ \t]*)value:[ \t].*(?:\n[-+ ]?(?P=indent)(?:value:[ \t].*|[ \t]+\S.*))*)"
        ),
        _hide_environment,
    ),
    (
        _SECRET_WORDS,  # the other order; the mark of a diff comes before two spaces or a list's hyphen, and must not be taken for that hyphen
        Pattern(
            r"(?m)^(?P<values>(?P<mark>[-+ ](?=  |- ))?(?P<lead>[ \t]*)(?:- +)?value:[ \t].*"
            r"(?:\n(?(mark)[-+ ])(?P=lead)(?:(?:- +)?value:[ \t].*|[ \t]+(?!name:)\S.*)|\n(?(mark)[-+ ])[ \t]*$){0,200}?)"
            rf"(?P<name>\n(?(mark)[-+ ])(?P=lead)[ \t]*name:[ \t]+[\"']?{_SECRET_NAME}[\"']?[ \t]*$)"
        ),
        _hide_environment_before,
    ),
    (
        _SECRET_WORDS,
        Pattern(rf"(?P<key>\bname\\?\":\s*\\?\"{_SECRET_NAME}\\?\",\s*\\?\"value\\?\":\s*)(?P<value>{_VALUE})"),
        _hide_value,
    ),
    (
        _SECRET_WORDS,
        Pattern(rf"(?P<key>\bvalue\\?\":\s*)(?P<value>{_VALUE})(?P<rest>,\s*\\?\"name\\?\":\s*\\?\"{_SECRET_NAME}\\?\")"),
        lambda found: _hide_value(found) + found["rest"],
    ),
    # User information in URLs, such as those of proxies: a user without a password is a token. Everything before the
    # last `@` of the authority belongs to it. Go's net/url allows single quotes there (validUserinfo); digests of
    # images have none.
    (("@",), Pattern(r"(://(?:[^\s/:@\"]*:)?)(?:[^\s/\"']|'(?!\s|$))+@(?!sha256:)"), rf"\1{MASK}@"),
    # Flags.
    (("--",), Pattern(r"(--(?:token|certificate-key|tls-bootstrap-token|discovery-token)[= ])\S+"), rf"\1{MASK}"),
    (_BEARER, Pattern(r"(?i)(authorization\\?[\"']?\s*[:=]\s*\[?\\?[\"']?(?:bearer|basic)\s+)[^\s\"',\\\]]+"), rf"\1{MASK}"),
    (_BEARER, Pattern(r"(?i)(\bbearer\s+)(?=[^\s\"',\\]*[0-9])[^\s\"',\\]{12,}"), rf"\1{MASK}"),
    # Bootstrap tokens: the id is public, because it is in the name of a Secret.
    ((".",), Pattern(r"(?i)(?:(?<![a-z0-9.-])|(?<=\\[nrt]))([a-z0-9]{6})\.[a-z0-9]{16}(?![a-z0-9-])"), rf"\1.{MASK}"),
    # Service account tokens and other JWTs: header and claims are not secret, the signature is.
    # Whether a word begins one is seen once, at its beginning: it may consist of nothing but beginnings.
    (
        ("eyJ",),
        Pattern(
            r"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]++\.eyJ[A-Za-z0-9_-]++\.[A-Za-z0-9_-])"
            r"([A-Za-z0-9_-]*?\beyJ[A-Za-z0-9_-]++\.eyJ[A-Za-z0-9_-]++)\.[A-Za-z0-9_-]++"
        ),
        rf"\1.{MASK}",
    ),
    # Certificate keys: 32 bytes in hex. Digests and pins look the same, but have a prefix.
    (("",), Pattern(r"(?i)(?:(?<![0-9a-f])|(?<=\\[bf]))(?<!sha256[:\- =])[0-9a-f]{64}(?![0-9a-f])"), MASK),
)


def mask(text: str) -> str:
    """Replace known secrets of this process, and texts that look like secrets.

    These are private keys, tokens (the id stays), kubeconfig credentials, data of Secrets, certificate keys, user
    information in URLs, and environment variables whose names suggest secrets.
    """
    text = _without(text, known())
    if "ecret" in text and _SECRET_KIND.search(text):
        text = "".join(_mask_secret_data(part) if _SECRET_KIND.search(part) else part for part in _SEPARATOR.split(text))
    for hints, pattern, replacement in _RULES:
        if hints.search(text) if isinstance(hints, Pattern) else any(hint in text for hint in hints):
            text = pattern.sub(replacement, text)
    return text


class Masker:
    """Masks like `mask`, plus registered values in every form. Values may be registered from any thread."""

    def __init__(self, values: Iterable[str | bytes] = ()) -> None:
        self._values: tuple[str | bytes, ...] = ()
        for value in values:
            self.register(value)

    def register(self, value: str | bytes) -> None:
        """Mask a value from now on. Values of fewer than six characters are not registered: they would mask ordinary text."""
        if len(value.strip()) >= SHORTEST:
            self._values = (*self._values, value)

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        return mask(_without(text, self._values))


def _without(text: str, values: Iterable[str | bytes]) -> str:
    """Replace values in every form, the longest first, so that no part of a value remains that begins with another one."""
    found = {form for value in values for form in _forms(value) if form in text}
    for form in sorted(found, key=len, reverse=True):
        text = text.replace(form, MASK)
    return text


@functools.lru_cache(maxsize=2 * MOST)
def _forms(value: str | bytes) -> tuple[str, ...]:
    """Return the forms that a value may have in a text: itself, its lines, JSON (twice, and as Go writes it), URL, hex, base64.

    For base64 this includes the value as part of something longer: the digits that do not depend on its neighbours,
    for each of the three offsets at which it may begin.
    """
    from urllib.parse import quote

    raw = value if isinstance(value, bytes) else value.encode("utf-8", errors="surrogatepass")
    text = raw.decode(errors="replace").strip()
    import json  # the control socket's small client avoids this import, and masks nothing unless something is logged

    once = json.dumps(text, ensure_ascii=False)[1:-1]
    plain = {text, once, json.dumps(once, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1], quote(text, safe="", errors="replace")}
    plain |= {once.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e"), text.replace("'", "''")}
    plain |= {line.strip() for line in text.splitlines()}
    if _HEX.fullmatch(text):
        plain |= {text.lower(), text.upper()}
    for one in {raw, raw.strip()}:
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            whole = encode(one).decode()
            plain |= {whole, whole.rstrip("="), *(_inner(encode, one, before) for before in range(3))}
    return tuple(form for form in plain if len(form) >= SHORTEST and form not in MASK)


def _inner(encode: Callable[[bytes], bytes], raw: bytes, before: int) -> str:
    """Return the digits that represent whole groups of a value after `before` bytes."""
    padded = b"\0" * before + raw
    return encode(padded).decode()[(before + 2) // 3 * 4 : len(padded) // 3 * 4]


def _mask_secret_data(text: str) -> str:
    """Mask all values below `data` and `stringData` of a Secret that is written as YAML, as JSON, or as a unified diff of its YAML."""
    text = _JSON_DATA.sub(lambda found: found[1] + _JSON_ENTRY.sub(rf'\1"{MASK}"', found[2]) + found[3], text)
    marked = 1 if _DIFF.search(text) else 0
    below_data = False
    entry: int | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        mark, body = line[:marked], line[marked:]
        depth = len(body) - len(body.lstrip(" "))
        if line.startswith("@@"):
            below_data, entry = True, None  # it is unknown what the hunk begins with
        elif depth == 0 and body:
            below_data, entry = _DATA.fullmatch(body) is not None, None
        elif below_data and body.strip():
            entry = depth if entry is None else entry
            if depth > entry:
                continue  # a continuation line of a value
            body = _ENTRY.sub(rf"\1 {MASK}", body)
        lines.append(mark + body)
    return "\n".join(lines)
