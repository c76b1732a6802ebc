"""Field errors of documents: path, kind of error, value, reason. The texts are those of apimachinery's `field` package."""

from __future__ import annotations

import enum

from kubewright.base.records import dataclass


class FieldErrorType(enum.Enum):
    """The kinds of field error, with the words that the Kubernetes API uses for them."""

    INVALID = "Invalid value"
    REQUIRED = "Required value"
    UNSUPPORTED = "Unsupported value"
    DUPLICATE = "Duplicate value"
    FORBIDDEN = "Forbidden"
    UNKNOWN = "Unknown field"
    TYPE = "Wrong type"


@dataclass(frozen=True)
class FieldPath:
    """The path of a field in a document: `etcd.local.dataDir`, `apiServer.extraArgs[2].name`."""

    text: str = ""

    def __truediv__(self, name: str) -> FieldPath:
        """Step into a named field."""
        return FieldPath(f"{self.text}.{name}" if self.text else name)

    def __getitem__(self, index: int) -> FieldPath:
        """Step into a list element."""
        return FieldPath(f"{self.text}[{index}]")

    def key(self, name: str) -> FieldPath:
        """Step into a map entry."""
        return FieldPath(f"{self.text}[{name}]")

    def __str__(self) -> str:
        return self.text or "<root>"


@dataclass(frozen=True, kw_only=True)
class FieldError:
    """One error of one field. `value` is shown for kinds of errors that have one; never put a secret there."""

    path: FieldPath
    type: FieldErrorType
    reason: str = ""
    value: object = None
    source: str = ""
    """The document, line and column of the field, for example `kubeadm.yaml:12:3`; may be empty."""

    def __str__(self) -> str:
        shown = self.type.value
        if self.type in _WITH_VALUE:
            import json  # only errors need it

            shown += f": {json.dumps(self.value, ensure_ascii=False, default=str)}"
        where = f"{self.source}: {self.path}" if self.source else str(self.path)
        return f"{where}: {shown}: {self.reason}" if self.reason else f"{where}: {shown}"

    def as_map(self) -> dict[str, object]:
        """Return the machine-readable form."""
        return {"field": self.path.text, "type": self.type.value, "value": self.value, "reason": self.reason, "source": self.source}


_WITH_VALUE = frozenset({FieldErrorType.INVALID, FieldErrorType.UNSUPPORTED, FieldErrorType.DUPLICATE, FieldErrorType.TYPE})
