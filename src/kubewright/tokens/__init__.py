"""Bootstrap tokens, their Secrets, the signed cluster-info."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kubewright.tokens.strings import BootstrapTokenString, generate, is_valid, parse

__all__ = ["BootstrapTokenString", "generate", "is_valid", "parse"]


def __getattr__(name: str) -> object:
    """Load what is exported when it is asked for (PEP 562): `kubewright.tokens.characters` alone stays cheap."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kubewright.tokens import strings

    return getattr(strings, name)
