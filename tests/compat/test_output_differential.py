"""Generated templates and paths, compared with real kubeadm: both print the same, or both refuse.

`..` and wildcards over maps are left out, because kubeadm iterates over maps in random order.
"""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from certs_comparison import find_kubeadm
from fuzzing import SEED, examples
from hypothesis import given, note, seed
from template_kit import FORMATS, GO_TEMPLATES, PATHS

from kubewright.base.errors import UsageError
from kubewright.cli.printers import choosing

LIST = ("config", "images", "list", "--kubernetes-version", "v1.36.3", "-o")
ACCEPTED = ("%#q",)
"""What is written differently: floats with `%#q`, which is a mistake anyway."""
PANIC = 2
"""The exit code of a Go program that crashes."""


def kubeadm(form: str) -> tuple[int, str]:
    inside = [] if os.geteuid() == 0 else ["unshare", "-r"]
    done = subprocess.run([*inside, find_kubeadm(), *LIST, form], check=False, capture_output=True, timeout=600)
    return done.returncode, done.stdout.decode(errors="replace")


@pytest.fixture(scope="module")
def images():
    return json.loads(kubeadm("json")[1])


def ours(form: str, value: dict[str, object]) -> tuple[int, str]:
    try:
        printer = choosing.choose(form)
        assert printer is not None
        return 0, printer([value])
    except UsageError as error:
        note(str(error))
        return 1, ""


def require_same(form: str, images: dict[str, object]) -> None:
    code, out = kubeadm(form)
    if code == PANIC:
        assert ours(form, images)[0] in {0, 1}
    else:
        assert ours(form, images) == (code, out if code == 0 else "")


@seed(SEED)
@examples(80)
@given(GO_TEMPLATES)
def test_go_templates(images, template):
    require_same(f"go-template={template}", images)


@seed(SEED)
@examples(60)
@given(FORMATS.filter(lambda template: not any(word in template for word in ACCEPTED)))
def test_formats(images, template):
    require_same(f"go-template={template}", images)


def test_an_index_into_an_empty_list_does_not_crash(images):
    form = "jsonpath={range .x}{[0]}{end}"
    assert kubeadm(form) == (PANIC, "")
    assert ours(form, images) == (0, "")


@seed(SEED)
@examples(80)
@given(PATHS.filter(lambda path: ".." not in path and "{.*" not in path and "$.*" not in path and "@.*" not in path))
def test_paths(images, path):
    require_same(f"jsonpath={path}", images)
