"""The contents of a kubeconfig as values, and parsing them from YAML.

As lenient as client-go about unknown fields, as strict as Go about types. All problems are found in one pass. Names are
kept in the order of the file. Secrets are excluded from `repr` and errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from kubewright.base.encoding import decode_base64
from kubewright.base.errors import ValidationError
from kubewright.base.fields import FieldError, FieldErrorType, FieldPath
from kubewright.base.masking import remember, remember_token
from kubewright.base.records import dataclass, field
from kubewright.base.yaml import Document

T = TypeVar("T")
_REMEDY: Final = "correct the file, or generate it again"
_KINDS: Final = {str: "string", bool: "boolean", int: "number", float: "number", list: "list", dict: "object", type(None): "null"}


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The address and CA of a cluster.

    `certificate_authority` is a path, relative to the file; the data takes precedence over it.
    """

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: bytes = field(default=b"", repr=False)
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    disable_compression: bool = False


@dataclass(frozen=True, kw_only=True)
class User:
    """The credentials of a user. `exec` and `auth_provider` are the raw maps; paths are relative to the file."""

    client_certificate: str = ""
    client_certificate_data: bytes = field(default=b"", repr=False)
    client_key: str = ""
    client_key_data: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)
    token_file: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    exec: Mapping[str, object] | None = field(default=None, repr=False)
    auth_provider: Mapping[str, object] | None = field(default=None, repr=False)
    impersonate: str = ""
    impersonate_uid: str = ""
    impersonate_groups: tuple[str, ...] = ()

    @property
    def has_certificate(self) -> bool:
        """Whether there is a client certificate, as data or path."""
        return bool(self.client_certificate or self.client_certificate_data)


@dataclass(frozen=True, kw_only=True)
class Context:
    """A cluster and a user that belong together, by name."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """A context with the objects that it names."""

    cluster: Cluster
    user: User
    namespace: str = ""


@dataclass(frozen=True, kw_only=True)
class Kubeconfig:
    """A parsed kubeconfig: well-formed, not necessarily usable. `source` is its file name, for messages."""

    clusters: Mapping[str, Cluster] = field(default_factory=dict)
    users: Mapping[str, User] = field(default_factory=dict)
    contexts: Mapping[str, Context] = field(default_factory=dict)
    current_context: str = ""
    source: str = ""

    @property
    def cluster(self) -> Cluster | None:
        """The cluster of the current context, or None."""
        context = self.contexts.get(self.current_context)
        return self.clusters.get(context.cluster) if context else None

    @property
    def user(self) -> User | None:
        """The user of the current context, or None."""
        context = self.contexts.get(self.current_context)
        return self.users.get(context.user) if context else None


@dataclass(frozen=True)
class _Reader:
    """A map of the document, its path, and the list of problems that all readers share.

    `where` returns the position of a field in the text.
    """

    path: FieldPath
    where: Callable[[str], str]
    value: Mapping[str, object]
    problems: list[FieldError] = field(default_factory=list)

    def at(self, path: FieldPath, value: object) -> _Reader:
        """Step to another map; anything else counts as empty, after a problem was recorded. null is an empty map, as in Go."""
        if isinstance(value, Mapping):
            return _Reader(path, self.where, value, self.problems)
        if value is not None:
            self.wrong(path, "an object", value)
        return _Reader(path, self.where, {}, self.problems)

    def wrong(self, path: FieldPath, expected: str, found: object) -> None:
        """Record a wrong type: by its name, never by its value."""
        kind = _KINDS.get(type(found), "something else")
        self.note(path, FieldErrorType.TYPE, f"must be {expected}", kind)

    def note(self, path: FieldPath, kind: FieldErrorType, reason: str, value: object = None) -> None:
        """Record one problem."""
        self.problems.append(FieldError(path=path, type=kind, reason=reason, value=value, source=self.where(path.text)))

    def text(self, name: str) -> str:
        """Read a string; '' if it is missing or null."""
        value = self.value.get(name)
        if value is None or isinstance(value, str):
            return value or ""
        self.wrong(self.path / name, "a string", value)
        return ""

    def flag(self, name: str) -> bool:
        """Read a boolean."""
        value = self.value.get(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.wrong(self.path / name, "true or false", value)
        return False

    def data(self, name: str) -> bytes:
        """Read base64 data."""
        try:
            return decode_base64(self.text(name))
        except ValueError:
            self.note(self.path / name, FieldErrorType.INVALID, "must be base64", "(hidden)")
            return b""

    def mapping(self, name: str) -> Mapping[str, object] | None:
        """Read a map that is passed on unchanged; None if it is missing or null."""
        value = self.value.get(name)
        return None if value is None else self.at(self.path / name, value).value

    def texts(self, name: str) -> tuple[str, ...]:
        """Read a list of strings."""
        found = []
        for path, value in self.items(name):
            if isinstance(value, str):
                found.append(value)
            else:
                self.wrong(path, "a string", value)
        return tuple(found)

    def items(self, name: str) -> Iterator[tuple[FieldPath, object]]:
        """Iterate over a list with the path of each element."""
        value = self.value.get(name)
        if isinstance(value, list):
            yield from (((self.path / name)[index], element) for index, element in enumerate(value))
        elif value is not None:
            self.wrong(self.path / name, "a list", value)


def parse(document: object, *, source: str = "") -> Kubeconfig:
    """Parse a kubeconfig: a value, or a Document, with which errors include line and column.

    Raises ValidationError with all problems of form; it does not check whether the kubeconfig is usable.
    """
    where: Callable[[str], str] = lambda _path: source  # noqa: E731
    if isinstance(document, Document):
        where, source, document = document.where, source or document.source, document.value
    start = _Reader(FieldPath(), where, {})
    reader = start.at(FieldPath(), document)
    if document is None:
        start.wrong(FieldPath(), "an object", document)
    _check_kind(reader)
    found = Kubeconfig(
        clusters=_named(reader, "clusters", "cluster", _cluster),
        users=_named(reader, "users", "user", _user),
        contexts=_named(reader, "contexts", "context", _context),
        current_context=reader.text("current-context"),
        source=source,
    )
    if reader.problems:
        raise ValidationError(f"{source or 'the kubeconfig'} is not a valid kubeconfig", reader.problems, remedy=_REMEDY)
    return found


def _check_kind(reader: _Reader) -> None:
    """Check kind and version, which may be omitted, as in client-go; given ones must be right."""
    for name, wanted in (("apiVersion", "v1"), ("kind", "Config")):
        value = reader.text(name)
        if value not in {"", wanted}:
            reader.note(reader.path / name, FieldErrorType.UNSUPPORTED, f"must be {wanted}", value)


def _named(reader: _Reader, plural: str, singular: str, read: Callable[[_Reader], T]) -> dict[str, T]:
    """Read a list of named entries. A duplicate name is an error, as in client-go."""
    found: dict[str, T] = {}
    for path, value in reader.items(plural):
        entry = reader.at(path, value)
        name = entry.text("name")
        if name in found:
            reader.note(path / "name", FieldErrorType.DUPLICATE, "names must be unique", name)
        found[name] = read(reader.at(path / singular, entry.value.get(singular)))
    return found


def _cluster(reader: _Reader) -> Cluster:
    return Cluster(
        server=reader.text("server"),
        certificate_authority=reader.text("certificate-authority"),
        certificate_authority_data=reader.data("certificate-authority-data"),
        insecure_skip_tls_verify=reader.flag("insecure-skip-tls-verify"),
        tls_server_name=reader.text("tls-server-name"),
        proxy_url=reader.text("proxy-url"),
        disable_compression=reader.flag("disable-compression"),
    )


def _key(reader: _Reader) -> bytes:
    remember(reader.text("client-key-data"))
    return reader.data("client-key-data")


def _user(reader: _Reader) -> User:
    return User(
        client_certificate=reader.text("client-certificate"),
        client_certificate_data=reader.data("client-certificate-data"),
        client_key=reader.text("client-key"),
        client_key_data=_key(reader),
        token=remember_token(reader.text("token")),
        token_file=reader.text("tokenFile"),
        username=reader.text("username"),
        password=remember(reader.text("password")),
        exec=reader.mapping("exec"),
        auth_provider=reader.mapping("auth-provider"),
        impersonate=reader.text("as"),
        impersonate_uid=reader.text("as-uid"),
        impersonate_groups=reader.texts("as-groups"),
    )


def _context(reader: _Reader) -> Context:
    return Context(cluster=reader.text("cluster"), user=reader.text("user"), namespace=reader.text("namespace"))
