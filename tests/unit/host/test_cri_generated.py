"""Generated code equals the compiler's output for the interfaces; logs of the CRI are read whatever they contain."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kubewright
from kubewright.host.cri import runtime

PACKAGE = Path(kubewright.__file__).parent


@pytest.mark.parametrize("option", ["--python_out", "--pyi_out"])
@pytest.mark.parametrize("source", ["kubewright/host/cri/api.proto", "kubewright/etcd/maintenance.proto"])
def test_the_generated_code_belongs_to_the_interface(tmp_path, option, source):
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{PACKAGE.parent}", f"{option}={tmp_path}", source], check=True, capture_output=True
    )
    [made] = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert made.read_text() == (PACKAGE.parent / made.relative_to(tmp_path)).read_text(), "run `make proto`"


LINES = st.lists(st.text(st.characters(exclude_characters="\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029", exclude_categories=("Cs",)), max_size=20))


@given(LINES)
def test_whole_lines_are_read_back_unchanged(lines):
    content = "".join(f"2026-11-21T00:00:00.0Z stdout F {line}\n" for line in lines).encode()
    assert runtime.log_texts(content) == lines


@given(st.lists(st.text("ab ", min_size=1, max_size=5), min_size=1), st.sampled_from(["stdout", "stderr"]))
def test_parts_of_a_line_are_joined_with_those_of_its_own_stream(parts, stream):
    other = {"stdout": "stderr", "stderr": "stdout"}[stream]
    rows = [row for part in parts[:-1] for row in (f"t {stream} P {part}", f"t {other} F x")]
    content = "\n".join([*rows, f"t {stream} F {parts[-1]}"]).encode()
    assert runtime.log_texts(content) == ["x"] * (len(parts) - 1) + ["".join(parts)]


@given(st.binary(max_size=200))
def test_invalid_lines_are_left_out(content):
    assert all(isinstance(line, str) for line in runtime.log_texts(content))
