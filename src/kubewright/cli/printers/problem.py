"""What is wrong with a template or path; turned into a UsageError where the format was chosen."""

from __future__ import annotations


class Problem(ValueError):
    """A template that cannot be read, or does not fit the object. The text is Go's where scripts may look for it."""


class MissingKey(Problem):
    """A field or key is not there, and missing ones are not allowed."""
