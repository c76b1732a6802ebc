"""PyYAML without the patterns that only its Python parser uses."""

from __future__ import annotations

import re
import sys
from typing import Any


def preload() -> None:
    """Import PyYAML with patterns that are compiled when they are first used; does nothing where it is loaded already.

    For commands, which own their process. One character class of `yaml.reader`, which libyaml's parser does without, takes 7 of the 60 ms of
    `config validate`. All of PyYAML works as always afterwards.
    """
    if "yaml" in sys.modules:
        return
    import base64  # noqa: F401 - what PyYAML imports of the standard library keeps its own patterns
    import datetime as dt  # noqa: F401

    from kubewright.base.patterns import Pattern

    kept: Any = re.compile
    re.compile = Pattern  # type: ignore[assignment]
    try:
        import yaml  # noqa: F401
    finally:
        re.compile = kept
