"""PyYAML, loaded with patterns that are compiled late, in a process of its own: here it is loaded already."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import kubewright

PROGRAM = """
import re
before = re.compile
from kubewright.base.yaml.preloading import preload
preload()
assert re.compile is before
import yaml
text = "{a: 2001-12-14t21:59:43.10-05:00, b: [1, 0x1f, 1_000.5, yes, ~, 12:30:45, !!binary aGk=], c: 'x: y'}"
print(yaml.safe_load(text) == yaml.load(text, Loader=yaml.CSafeLoader), yaml.safe_load(yaml.safe_dump(yaml.safe_load(text)))["b"])
try:
    yaml.safe_load("a: \\x00")
except yaml.reader.ReaderError as error:
    print(error.reason)
module = yaml
preload()
import yaml
assert yaml is module
"""


def test_pyyaml_works_as_always_when_it_was_preloaded():
    environment = {**os.environ, "PYTHONPATH": str(Path(kubewright.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines() == ["True [1, 31, 1000.5, True, None, 45045, b'hi']", "special characters are not allowed"]
