"""The foundation: errors, time, randomness, waiting, reporting, changes, versions, quantities, field errors, the YAML dialect.

Knows no Kubernetes objects and does no I/O itself.
"""
