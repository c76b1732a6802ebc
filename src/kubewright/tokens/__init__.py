"""Bootstrap tokens, their Secrets, the signed cluster-info."""

from __future__ import annotations

from kubewright.tokens.strings import BootstrapTokenString, generate, is_valid, parse

__all__ = ["BootstrapTokenString", "generate", "is_valid", "parse"]
