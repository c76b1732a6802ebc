"""Every command that prints a result has `-o` with json and yaml, and the output can be read back."""

from __future__ import annotations

import fnmatch
import json

import pytest

from kubewright.apis.machine import Detected
from kubewright.base import yaml
from kubewright.cli.handlers import machine as cli_machine
from kubewright.cli.main import main
from kubewright.cli.rows import commands
from kubewright.cli.rows.model import PRINTED_FORMATS

WITHOUT = {
    "agent run": "a daemon, which writes a log",
    "controllers run": "a daemon, which writes a log",
    "hub run": "a daemon, which writes a log",
    "completion": "a script for a shell",
    "help": "text for people",
    "local logs": "a log as the component wrote it",
    "local shell": "whatever the command in the machine prints",
}
"""Commands without `-o`, and why."""

FILE = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.3\n"


def formats(command) -> tuple[str, ...]:
    flag = next((flag for flag in command.flags if flag.name == "output"), None)
    return () if flag is None else flag.choices or PRINTED_FORMATS


def test_every_command_that_prints_has_json_and_yaml():
    lacking = [row.path for row in commands.TABLE.every() if row.handler and not {"json", "yaml"} <= set(formats(row))]
    assert [path for path in lacking if not any(fnmatch.fnmatch(path, pattern) for pattern in WITHOUT)] == []
    assert [pattern for pattern in WITHOUT if not any(fnmatch.fnmatch(path, pattern) for path in lacking)] == []
    assert len([row for row in commands.TABLE.every() if formats(row)]) > 70


@pytest.fixture
def run(monkeypatch, capsys):
    monkeypatch.setattr(cli_machine, "detected", lambda: Detected(host_name="node1", default_ipv4="10.98.0.11"))

    def call(*argv: str) -> tuple[int, str, str]:
        code = main([*argv])
        return (code, *capsys.readouterr())

    return call


def read(text: str, form: str) -> object:
    return yaml.load(text) if form == "yaml" else json.loads(text)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_created_secrets_are_fields_of_the_result(run, form):
    code, out, err = run("token", "generate", "-o", form)
    found = read(out, form)
    assert (code, err, set(found), len(found["token"])) == (0, "", {"kind", "apiVersion", "token"}, 23)
    assert (found["kind"], found["apiVersion"]) == ("BootstrapToken", "output.kubeadm.k8s.io/v1alpha3")
    code, out, err = run("certs", "certificate-key", "-o", form)
    assert (code, err, len(read(out, form)["certificateKey"])) == (0, "", 64)


@pytest.mark.parametrize("kind", ["init", "join", "reset", "upgrade"])
def test_examples_are_equal_in_yaml_and_json(run, kind):
    _, text, _ = run("config", "print", f"{kind}-defaults")
    code, out, err = run("config", "print", f"{kind}-defaults", "-o", "json")
    assert (code, err) == (0, "")
    assert several(out) == [document.value for document in yaml.load_all(text)]


def several(text: str) -> list[object]:
    """The values of consecutive JSON texts."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        found.append(value)
        at += len(text[at:]) - len(text[at:].lstrip())
    return found


def test_a_migrated_file_is_equal_in_yaml_and_json(run, tmp_path):
    old, new = tmp_path / "old.yaml", tmp_path / "new.json"
    old.write_text(f"{FILE}clusterName: blue\n")
    _, text, _ = run("config", "migrate", "--old-config", str(old))
    assert run("config", "migrate", "--old-config", str(old), "--new-config", str(new), "-o", "json") == (0, "", "")
    kinds = [document["kind"] for document in several(new.read_text())]
    assert kinds == [document.value["kind"] for document in yaml.load_all(text)] == ["InitConfiguration", "ClusterConfiguration"]
    assert several(new.read_text())[1] == yaml.load_all(text)[1].value


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_findings_of_validate_are_the_result(run, tmp_path, form):
    path = tmp_path / "kubeadm.yaml"
    path.write_text(FILE)
    code, out, err = run("config", "validate", "--config", str(path), "-o", form)
    assert (code, err, read(out, form)) == (0, "", {"valid": True, "warnings": [], "error": None})
    path.write_text(f"{FILE}networking: {{podSubnet: x}}\nclusterNam: y\n")
    code, out, err = run("config", "validate", "--config", str(path), "-o", form)
    found = read(out, form)
    assert (code, err, found["valid"], found["error"]["error"]) == (1, "", False, "ValidationError")
    assert len(found["error"]["fields"]) == 2
    code, out, _ = run("config", "validate", "--config", str(tmp_path / "none"), "-o", form)
    assert (code, read(out, form)["error"]["error"]) == (1, "DocumentError")


def test_findings_of_validate_contain_no_secret(run, tmp_path):
    path = tmp_path / "kubeadm.yaml"
    token = "abcdef.0123456789ABCDEF"
    path.write_text(f"apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nbootstrapTokens: [{{token: {token}}}]\n")
    code, out, err = run("config", "validate", "--config", str(path), "-o", "json")
    assert (code, err) == (1, "")
    assert token not in out


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_formats_that_are_not_offered_are_refused(run, form):
    code, out, err = run("config", "validate", "--config", "x", "-o", f"{form}x")
    assert (code, out) == (1, "")
    assert "choose one of text, json, yaml" in err
