"""The YAML dialect of Kubernetes tools: reads what sigs.k8s.io/yaml reads, writes what it writes, byte for byte.

Other YAML libraries disagree with kubeadm about values: here dates and `12:30` are strings, `y` and `off` are booleans, `0x10` and `010` are
integers (goyaml v2, the parser and emitter behind sigs.k8s.io/yaml v1.6). PyYAML does the scanning and parsing; meaning and output are ours,
because neither its constructors nor libyaml's emitter agree with goyaml (libyaml 0.2.5 chooses other scalar styles).
"""

from __future__ import annotations

from kubewright.base.yaml.documents import MAX_BYTES, MAX_DEPTH, Document
from kubewright.base.yaml.reading import load, load_all
from kubewright.base.yaml.writing import dump, dump_all

__all__ = ["MAX_BYTES", "MAX_DEPTH", "Document", "dump", "dump_all", "load", "load_all"]
