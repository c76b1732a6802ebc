"""Bootstrap tokens as Secrets of the cluster: creating them, and reading Secrets that anyone may have written.

Source: kubeadm v1.36: apis/bootstraptoken/v1.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from kubewright.base.clock import Clock, rfc3339
from kubewright.base.durations import SECOND
from kubewright.base.encoding import decode_base64
from kubewright.base.errors import ValidationError
from kubewright.base.fields import FieldError, FieldErrorType, FieldPath
from kubewright.base.masking import remember
from kubewright.base.records import dataclass, field
from kubewright.tokens import strings
from kubewright.tokens.strings import BootstrapTokenString

if TYPE_CHECKING:
    from kubewright.apis.kubeadm.types import BootstrapToken

NAMESPACE: Final = "kube-system"
TYPE: Final = "bootstrap.kubernetes.io/token"
PREFIX: Final = "bootstrap-token-"
SIGNING: Final = "signing"
_USAGE: Final = "usage-bootstrap-"
# Go's time.RFC3339, as time.Parse reads it: fractions and hours of one digit allowed, capital letters only.
_MOMENT: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)T(?P<hour>[01]?\d|2[0-3])(?P<rest>:\d\d:\d\d(?:[.,]\d+)?)(?:Z|(?P<sign>[+-])(?P<hours>\d\d):(?P<minutes>\d\d))",
    re.ASCII,
)
_MOST_HOURS, _MOST_MINUTES = 24, 60
"""The largest offset that Go reads."""


def name_of(token_id: str) -> str:
    """Return the name of a token's Secret."""
    return f"{PREFIX}{token_id}"


def secret_object(token: BootstrapToken, *, clock: Clock) -> dict[str, object]:
    """Make the Secret of a configured token. A ttl of 0, or none, means that it does not expire.

    Raises UsageError for an invalid token.
    """
    parsed = strings.parse(token.token)
    content = {"auth-extra-groups": ",".join(token.groups)} if token.groups else {}
    if token.description:
        content["description"] = token.description
    expiration = _expiration(token, clock)
    if expiration:
        content["expiration"] = expiration
    content |= {"token-id": parsed.id, "token-secret": parsed.secret}
    content |= {f"{_USAGE}{usage}": "true" for usage in sorted(token.usages)}
    return {
        "apiVersion": "v1",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in content.items()},
        "kind": "Secret",
        "metadata": {"name": name_of(parsed.id), "namespace": NAMESPACE},
        "type": TYPE,
    }


def _expiration(token: BootstrapToken, clock: Clock) -> str:
    if token.expires:
        return token.expires
    return rfc3339(clock.now() + timedelta(seconds=token.ttl / SECOND)) if token.ttl else ""


@dataclass(frozen=True, kw_only=True)
class StoredToken:
    """A token in a Secret. `expiration` is the unchanged text, '' for never."""

    token: BootstrapTokenString
    description: str = ""
    expiration: str = ""
    usages: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    uid: str = field(default="", compare=False)
    """The uid of the Secret, to delete exactly this one."""

    @property
    def expires(self) -> datetime | None:
        """When the token expires; None for never, and for text that is not a time."""
        return parse_moment(self.expiration)

    def expired(self, now: datetime) -> bool:
        """Whether the token has expired; it has at its expiration time.

        Unreadable times count as expired (cluster-bootstrap: util/secrets).
        """
        if not self.expiration:
            return False
        end = self.expires
        return end is None or end <= now

    def signs(self, now: datetime) -> bool:
        """Whether the bootstrap signer uses it."""
        return SIGNING in self.usages and not self.expired(now)


def parse_moment(text: str) -> datetime | None:
    """Parse a time as Go's RFC 3339; None for other texts."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    hours, minutes = int(found["hours"] or 0), int(found["minutes"] or 0)
    if hours > _MOST_HOURS or minutes > _MOST_MINUTES:
        return None
    offset = timedelta(hours=hours, minutes=minutes) * (-1 if found["sign"] == "-" else 1)
    try:
        return datetime.fromisoformat(f"{found['date']}T{found['hour']:0>2}{found['rest'].replace(',', '.')}+00:00") - offset
    except (ValueError, OverflowError):
        return None


def parse_secret(secret: Mapping[str, object]) -> StoredToken:
    """Read a Secret from the API.

    Raises ValidationError with every problem: type, name, id and secret must be right. An expiration that is not a
    time is kept as text.
    """
    metadata = secret.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    name = str(metadata.get("name") or "")
    problems: list[FieldError] = []
    content = _content(secret.get("data"), problems)
    _check(secret, name, content, problems)
    if problems:
        raise ValidationError(f"secret {NAMESPACE}/{name} is no bootstrap token", problems, remedy=f"delete it: it cannot be used ({name})")
    return StoredToken(
        token=BootstrapTokenString(content["token-id"], remember(content["token-secret"])),
        description=content.get("description", ""),
        expiration=content.get("expiration", ""),
        usages=_usages(content),
        groups=tuple(filter(None, content.get("auth-extra-groups", "").split(","))),
        uid=str(metadata.get("uid") or ""),
    )


def _check(secret: Mapping[str, object], name: str, content: Mapping[str, str], problems: list[FieldError]) -> None:
    root = FieldPath()
    if secret.get("type") != TYPE:
        _note(problems, root / "type", f"must be {TYPE}")
    if not name.startswith(PREFIX) or not strings.ID.fullmatch(name.removeprefix(PREFIX)):
        _note(problems, root / "metadata" / "name", f"must be {PREFIX} and six lower-case letters or digits")
    elif content.get("token-id") != name.removeprefix(PREFIX):
        _note(problems, root / "data" / "token-id", "must be the end of the name")
    if not strings.SECRET.fullmatch(content.get("token-secret", "")):
        _note(problems, root / "data" / "token-secret", "must be 16 lower-case letters or digits")


def _content(data: object, problems: list[FieldError]) -> dict[str, str]:
    """Decode the values. Each is UTF-8 text in base64."""
    found: dict[str, str] = {}
    for key, value in (data if isinstance(data, Mapping) else {}).items():
        try:
            found[str(key)] = decode_base64(str(value)).decode()
        except ValueError:
            _note(problems, (FieldPath() / "data") / str(key), "must be text in base64")
    return found


def _note(problems: list[FieldError], path: FieldPath, reason: str) -> None:
    problems.append(FieldError(path=path, type=FieldErrorType.INVALID, reason=reason, value="(hidden)"))


def _usages(content: Mapping[str, str]) -> tuple[str, ...]:
    """Return the enabled usages: those whose value is exactly `true`."""
    return tuple(sorted(key.removeprefix(_USAGE) for key, value in content.items() if key.startswith(_USAGE) and value == "true"))
