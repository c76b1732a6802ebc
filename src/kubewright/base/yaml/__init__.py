"""The YAML dialect of Kubernetes tools: reads what sigs.k8s.io/yaml reads, and writes what it writes, byte for byte.

Other YAML libraries disagree with kubeadm about values: here dates and `12:30` are strings, `y` and `off` are
booleans, `0x10` and `010` are integers (goyaml v2, the parser and emitter behind sigs.k8s.io/yaml v1.6). PyYAML scans
and parses; the meaning of values and the output are our own code, because neither PyYAML's constructors nor libyaml's
emitter agree with goyaml (libyaml 0.2.5 chooses other scalar styles).
"""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.base.yaml.documents import MAX_BYTES, MAX_DEPTH, Document
from kubewright.base.yaml.reader import load, load_all, load_one

__all__ = ["MAX_BYTES", "MAX_DEPTH", "Document", "dump", "dump_all", "load", "load_all", "load_one", "writable"]


def dump(value: object) -> str:
    """Write one document, ending with a line break.

    Accepts maps with string keys, lists, tuples, str, int, float, bool and None; a TypeError for anything else is a
    bug of the caller. The output reads back as an equal value. Raises DocumentError for characters that no parser
    accepts (control characters beyond ASCII 0x7e, halves of surrogate pairs) and for a value that is nested too
    deeply.
    """
    from kubewright.base.yaml import emitter

    return emitter.dump(value)


def dump_all(values: Iterable[object]) -> str:
    """Write several documents with `---` between them."""
    from kubewright.base.yaml import emitter

    return emitter.dump_all(values)


def writable(text: str) -> str:
    r"""Return a text that `dump` accepts: a character that no parser accepts becomes `\u009b`.

    This is for objects of other authors that are only shown: one odd text must not prevent a whole list from being
    printed. `dump` refuses such texts, because documents have to read back as equal values.
    """
    from kubewright.base.yaml import emitter

    return emitter.writable(text)
