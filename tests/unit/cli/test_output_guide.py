"""The examples of docs/guide/output.md print what the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kubewright.cli.main import main

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "output.md"
EXAMPLES = re.findall(r"^```console\n\$ kubewright (.*?)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
BROKEN = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nnetworking:\n  podSubnet: ten\n"


@pytest.mark.parametrize(("words", "text"), EXAMPLES)
def test_an_example_prints_what_the_page_shows(words, text, tmp_path, monkeypatch, capsys):
    (tmp_path / "broken.yaml").write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    code = main(shlex.split(words))
    out, err = capsys.readouterr()
    assert out + err == text
    assert code == (1 if "error" in text else 0)


def test_there_are_examples():
    assert len(EXAMPLES) >= 5
