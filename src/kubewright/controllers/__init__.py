"""The controllers that admit joining nodes.

Certificates (approving, signing, cleaning) and bootstrap tokens (cluster-info, expiry).

Decisions (`approving`, `signing`, `cleaning`, and functions of `bootstrap`) are pure: they map an observation to one of a few
outcomes.
"""
