"""How a text of the user's is quoted in a message: in double quotes, as in YAML and in the messages of Kubernetes, never as Python writes it."""

from __future__ import annotations

_ESCAPES = {ord('"'): '\\"', ord("\\"): "\\\\", ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}


def quoted(text: object) -> str:
    """Return a text in double quotes; quotes, backslashes and what cannot be printed are escaped."""
    escaped = str(text).translate(_ESCAPES)
    if escaped.isprintable():
        return f'"{escaped}"'
    return '"' + "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in escaped) + '"'
