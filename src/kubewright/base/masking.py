"""Keeping secrets out of whatever people see: diffs, logs, plans, errors. Works on text, also on lines of a unified diff."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable
from typing import Final

from kubewright.base.patterns import Pattern

MASK: Final = "<masked>"
_SHORTEST: Final = 6

_Replacement = str | Callable[[re.Match[str]], str]

# A value in JSON within JSON, in double quotes, in single quotes, or one bare word.
_VALUE: Final = r"\\\"[^\"]*\\\"|\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'|(?!(?:null|true|false)\b)(?:[^\s,}\"'\\]|\\(?!\"))[^\s,}]*"
_CREDENTIAL_FIELDS: Final = (
    "client-key-data|token|token-secret|password|secret|certificateKey|certificate-key|id-token|refresh-token|bearerToken|tlsBootstrapToken"
)
# What a field error says behind a path such as `bootstrapTokens[0].token`: with these words the value follows, with those there is none.
_VALUED: Final = r"(?:(?:Invalid value|Unsupported value|Duplicate value|Wrong type):[ \t]*)?"
_VALUELESS: Final = r"(?!(?:Required value|Forbidden|Unknown field)(?::|$)|(?:Invalid value|Unsupported value|Duplicate value|Wrong type):)"


def _hide_value(found: re.Match[str]) -> str:
    """Keep the key, and the quotes of the value: what was JSON or YAML stays so."""
    value = found["value"]
    quote = value[0] if value[0] in "\"'" else value[:2] if value.startswith('\\"') else ""
    hidden = value if value == quote * 2 else f"{quote}{MASK}{quote}"
    return found["key"] + hidden


def _hide_environment(found: re.Match[str]) -> str:
    """Keep the name of the variable, and the lines of a diff."""
    return found["name"] + _VARIABLE.sub(rf"\1{MASK}", found["values"])


_FIELD_HINTS: Final = Pattern(rf"(?:{_CREDENTIAL_FIELDS})[\\\"'\s:]")

# Environment variables of static pods whose names say that the value is a secret; in a diff both values follow the name.
_SECRET_WORDS: Final = ("PASSW", "SECRET", "TOKEN", "CREDENTIAL", "_KEY")
_SECRET_NAME: Final = rf"[A-Z0-9_]*(?:{'|'.join(_SECRET_WORDS)})[A-Z0-9_]*"
_VARIABLE: Final = Pattern(r"(?m)^([-+ ]?[ \t]*value:[ \t]+)\S.*(?:\n(?![-+ ]?[ \t]*value:).*)*")

# In order. Each keeps what names the secret and drops the secret itself. Before the pattern: texts of which one has to be there for it to match,
# or a cheaper pattern that has to match, so that patterns which cannot match are not even compiled.
_RULES: Final[tuple[tuple[tuple[str, ...] | Pattern, Pattern, _Replacement], ...]] = (
    # A private key in PEM, also one that is cut off, or written on one line with \n.
    (("PRIVATE KEY",), Pattern(r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----)[\s\S]*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)"), rf"\1{MASK}\2"),
    # The same in base64, as in kubeconfigs: "-----BEGIN " with PRIVATE, EC PRIVATE, RSA PRIVATE, OPENSSH PRIVATE, ENCRYPTED PRIVATE.
    (
        ("LS0tLS1CRUdJTi",),
        Pattern(
            r"LS0tLS1CRUdJTi(?:BQUklWQVRF|BFQyBQUklWQVRF|BSU0EgUFJJVkFURS|BPUEVOU1NIIFBSSVZBVEUg|BFTkNSWVBURUQgUFJJVkFURS)[A-Za-z0-9+/=\\n]*"
        ),
        MASK,
    ),
    # kubeconfigs and configurations: a field on lines of its own in YAML, also folded or as a block; then one anywhere, in YAML or JSON.
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
        _SECRET_WORDS,
        Pattern(rf"(?P<key>\bname\\?\":\s*\\?\"{_SECRET_NAME}\\?\",\s*\\?\"value\\?\":\s*)(?P<value>{_VALUE})"),
        _hide_value,
    ),
    # Passwords in URLs, such as those of proxies.
    (("@",), Pattern(r"(://[^\s/:@\"']*:)[^\s/@\"']+@"), rf"\1{MASK}@"),
    # Flags.
    (("--",), Pattern(r"(--(?:token|certificate-key|tls-bootstrap-token|discovery-token)[= ])\S+"), rf"\1{MASK}"),
    ((":",), Pattern(r"(?i)(authorization:\s*(?:bearer|basic)\s+)\S+"), rf"\1{MASK}"),
    # Bootstrap tokens: the id is public, it is the name of a Secret.
    ((".",), Pattern(r"(?<![a-z0-9.-])([a-z0-9]{6})\.[a-z0-9]{16}(?![a-z0-9-])"), rf"\1.{MASK}"),
    # Service account tokens and other JWTs: header and claims are no secret, the signature is.
    (("eyJ",), Pattern(r"\b(eyJ[A-Za-z0-9_-]+\.eyJ[A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+"), rf"\1.{MASK}"),
    # Certificate keys: 32 bytes in hex. Digests and pins look the same and say so.
    (("",), Pattern(r"(?<![0-9a-fA-F])(?<!sha256[:\- =])[0-9a-f]{64}(?![0-9a-fA-F])"), MASK),
)
_SECRET_KIND: Final = Pattern(r"\bkind\"?:\s*\"?Secret\b|^(?:---|\+\+\+) secret\b", re.MULTILINE)
_DIFF: Final = Pattern(r"^@@ ", re.MULTILINE)
_SEPARATOR: Final = Pattern(r"^(---\n)", re.MULTILINE)
_DATA: Final = Pattern(r"(?:data|stringData):\s*")
_ENTRY: Final = Pattern(r"(\s*[^\s:][^:]*:)\s*\S.*")
_JSON_DATA: Final = Pattern(r"(\"(?:data|stringData)\"\s*:\s*\{)([^{}]*)(\})")
_JSON_ENTRY: Final = Pattern(r"(\"[^\"]*\"\s*:\s*)\"(?:[^\"\\]|\\.)*\"")


def mask(text: str) -> str:
    """Replace what looks like a secret: private keys, tokens (the id stays), kubeconfig credentials, data of Secrets, certificate keys."""
    if "ecret" in text and _SECRET_KIND.search(text):
        text = "".join(_mask_secret_data(part) if _SECRET_KIND.search(part) else part for part in _SEPARATOR.split(text))
    for hints, pattern, replacement in _RULES:
        if hints.search(text) if isinstance(hints, Pattern) else any(hint in text for hint in hints):
            text = pattern.sub(replacement, text)
    return text


class Masker:
    """Masks what `mask` does, and every secret value that was registered, also in base64. Registering may happen from any thread."""

    def __init__(self, values: Iterable[str | bytes] = ()) -> None:
        self._values: tuple[str, ...] = ()
        for value in values:
            self.register(value)

    def register(self, value: str | bytes) -> None:
        """Hide a value from now on. One of fewer than six characters is not registered: it would blot out ordinary text."""
        raw = value if isinstance(value, bytes) else value.encode()
        text = raw.decode(errors="replace").strip()
        if len(text) < _SHORTEST:
            return
        forms = {text, base64.b64encode(raw).decode(), base64.b64encode(raw).decode().rstrip("="), base64.urlsafe_b64encode(raw).decode()}
        self._values = tuple(sorted({*self._values, *forms}, key=len, reverse=True))

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        for value in self._values:
            text = text.replace(value, MASK)
        return mask(text)


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
            below_data, entry = True, None  # what the hunk begins with is not known
        elif depth == 0 and body:
            below_data, entry = _DATA.fullmatch(body) is not None, None
        elif below_data and body.strip():
            entry = depth if entry is None else entry
            if depth > entry:
                continue  # a further line of a value
            body = _ENTRY.sub(rf"\1 {MASK}", body)
        lines.append(mark + body)
    return "\n".join(lines)
