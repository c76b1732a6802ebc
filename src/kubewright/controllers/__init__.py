"""The controllers opposite a joining node: certificates (approving, signing, cleaning) and bootstrap tokens (cluster-info, expiry).

Decisions (`approving`, `signing`, `cleaning`, `bootstrap_tokens`) are pure: from what was seen to one of a few outcomes. A strict approver comes
beside them.
"""
