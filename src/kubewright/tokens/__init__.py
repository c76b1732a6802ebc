"""Bootstrap tokens, their Secrets, the signed cluster-info."""

from kubewright.tokens.strings import BootstrapTokenString, generate, is_valid, parse

__all__ = ["BootstrapTokenString", "generate", "is_valid", "parse"]
