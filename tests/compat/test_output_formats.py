"""`-o` compared with real kubeadm: every template and path of `output_templates`, what is printed and what is refused."""

from __future__ import annotations

import os
import subprocess

import pytest
from certs_comparison import DEFAULT, Pair, Run, find_kubeadm
from output_templates import ABSENT_KEYS, CERTIFICATES, IMAGES, REFUSED

from kubewright.cli.main import main

LIST = ("config", "images", "list", "--kubernetes-version", "v1.36.3")
SAID_OTHERWISE = {
    "go-template-file=/nothing/here": "the template /nothing/here cannot be read",
    "jsonpath-file=/nothing/here": "the template /nothing/here cannot be read",
    "go-template={{.kind.}}": 'unexpected "." in operand',
    "go-template={{9999999999999999999}}": "bad number syntax",
    "go-template={{#}}": "unrecognized character in action",
}
"""Refusals before anything is printed have kubeadm's words, except for these."""


@pytest.fixture(scope="module")
def program():
    return find_kubeadm()


@pytest.fixture
def ours(capsys):
    def call(*words: str) -> tuple[int, str, str]:
        code = main([*LIST, *words])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def theirs(program):
    def call(*words: str) -> tuple[int, str, str]:
        inside = [] if os.geteuid() == 0 else ["unshare", "-r"]
        done = subprocess.run([*inside, program, *LIST, *words], check=False, capture_output=True, text=True, timeout=600)
        return done.returncode, done.stdout, done.stderr

    return call


def first_line(text: str) -> str:
    return text.partition("\n")[0].removeprefix("error: ")


def test_there_are_enough_templates():
    assert len(set(IMAGES)) == len(IMAGES) > 80
    assert len(set(REFUSED)) == len(REFUSED) > 60
    assert len(CERTIFICATES) >= 19


@pytest.mark.parametrize("form", IMAGES)
def test_output_equals_that_of_kubeadm(ours, theirs, form):
    code, out, _ = theirs("-o", form)
    assert code == 0
    assert ours("-o", form) == (0, out, "")


@pytest.mark.parametrize("form", REFUSED)
def test_the_same_templates_are_refused_as_by_kubeadm(ours, theirs, form):
    code, out, err = ours("-o", form)
    their_code, _, their_err = theirs("-o", form)
    assert (code, their_code) == (1, 1)
    assert out == ""
    if form in SAID_OTHERWISE:
        assert SAID_OTHERWISE[form] in err
    elif first_line(their_err).startswith("could not construct"):
        assert first_line(err) == first_line(their_err)


@pytest.mark.parametrize("form", ABSENT_KEYS)
@pytest.mark.parametrize("allowed", ["true", "false"])
def test_missing_keys_are_refused_with_the_flag_of_kubeadm(ours, theirs, form, allowed):
    flag = f"--allow-missing-template-keys={allowed}"
    code, out, _ = theirs("-o", form, flag)
    our_code, our_out, _ = ours("-o", form, flag)
    assert our_code == code == (0 if allowed == "true" else 1)
    assert our_out == (out if allowed == "true" else "")  # kubeadm prints the whole object in addition to the error


def test_templates_of_files_and_managed_fields(ours, theirs, tmp_path):
    path = tmp_path / "template"
    path.write_text("{{range .images}}{{.}}\n{{end}}\n")
    for form in (f"go-template-file={path}", f"templatefile={path}"):
        assert ours("-o", form, "--show-managed-fields")[1] == theirs("-o", form, "--show-managed-fields")[1]
    path.write_text('{range .images[*]}{@}{"\\n"}{end}\n')
    assert ours("-o", f"jsonpath-file={path}")[1] == theirs("-o", f"jsonpath-file={path}")[1]


@pytest.fixture(scope="module")
def machines(program, tmp_path_factory):
    pair = Pair.make(program, tmp_path_factory.mktemp("machines"), DEFAULT)
    for name in ("super-admin.conf", "pki/apiserver.crt"):
        pair.remove(name)
    return pair


def both(machines: Pair, form: str) -> tuple[Run, Run]:
    return machines.both("certs", "check-expiration", "--config", "/kubeadm.yaml", "-o", form)


@pytest.mark.parametrize("form", CERTIFICATES)
def test_certificates_are_printed_as_by_kubeadm(machines, form):
    ours, theirs = both(machines, form)
    assert theirs.code == 0
    assert ours == theirs


def test_seconds_are_floats_to_a_path_and_whole_numbers_to_a_template(machines):
    path, template = (
        both(machines, form) for form in ("jsonpath={..residualTime}", "go-template={{range .certificates}}{{.residualTime}} {{end}}")
    )
    assert [run.out.count("e+") > 5 for run in path] == [True, True]
    assert [run.out.count("e+") for run in template] == [0, 0]


def test_maps_are_iterated_in_a_stable_order(machines):
    """Go's order is random; ours is that of the keys."""
    ours, theirs = both(machines, "jsonpath={..name}")
    assert sorted(ours.out.split()) == sorted(theirs.out.split())
    assert ours.out.startswith("ca etcd-ca front-proxy-ca admin.conf ")
