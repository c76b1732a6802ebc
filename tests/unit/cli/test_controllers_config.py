"""`controllers run --config`: the same settings as the flags, all wrong fields at once, and flags that override the file."""

from __future__ import annotations

import pytest

from kubewright.base import yaml
from kubewright.base.errors import DocumentError, ValidationError
from kubewright.cli.handlers.controllers import run as controllers
from kubewright.cli.parsing import parser
from kubewright.cli.rows.controllers import RUN_FLAGS

FIELDS = controllers.CONFIG.fields
HEAD = "apiVersion: controllers.kubewright/v1alpha1\nkind: ControllersConfiguration\n"


def chosen(tmp_path, text: str, *argv: str):
    path = tmp_path / "controllers.yaml"
    path.write_text(HEAD + text)
    return controllers.options_of(
        controllers.CONFIG.with_file(parser.parse(["controllers", "run", "--config", str(path), *argv], program="k"))
    )


def test_a_file_has_the_same_effect_as_flags(tmp_path):
    flags = {
        "kubeconfig": "/k",
        "controllers": ["*", "bootstrapsigner"],
        "clusterSigningCertFile": "/ca.crt",
        "clusterSigningKeyFile": "/ca.key",
        "clusterSigningDuration": "48h",
        "leaderElectLeaseDuration": "30s",
        "leaderElectResourceName": "mine",
        "kubeApiQps": 0.5,
        "kubeApiBurst": 7,
    }
    argv = [f"--{FIELDS[name].name}={','.join(value) if isinstance(value, list) else value}" for name, value in flags.items()]
    by_flags = controllers.options_of(parser.parse(["controllers", "run", *argv], program="k"))
    assert chosen(tmp_path, yaml.dump(flags)) == by_flags
    assert by_flags.qps == 0.5


def test_a_flag_overrides_the_file(tmp_path):
    found = chosen(tmp_path, "kubeconfig: /k\nkubeApiBurst: 7\nleaderElect: true\n", "--kube-api-burst=9", "--leader-elect=false")
    assert (found.burst, found.election) == (9, None)


def test_every_flag_except_config_is_a_field():
    assert [flag.name for flag in FIELDS.values()] == [flag.name for flag in RUN_FLAGS if flag.name != "config"]
    assert len(FIELDS) == 30


def test_all_wrong_fields_are_reported_at_once_with_their_lines(tmp_path):
    text = (
        "kubeconfig: 5\nleaderElect: yess\nsecurePort: many\ncontrollers: '*'\nclusterSigningDuration: 0s\nleaderElectRetryPeriod: soon\n"
        "leaderElectResourceLock: endpoints\nclusterSigningCertFil: /x\nkubeApiBurst: 99999999999\nbindAddress: 127.0.0.1\n"
    )
    with pytest.raises(ValidationError) as error:
        chosen(tmp_path, text)
    told = {one.path.text: (one.type.name, one.source.rpartition("controllers.yaml:")[2]) for one in error.value.errors}
    assert told == {
        "kubeconfig": ("TYPE", "3:1"),
        "leaderElect": ("TYPE", "4:1"),
        "securePort": ("TYPE", "5:1"),
        "controllers": ("TYPE", "6:1"),
        "clusterSigningDuration": ("INVALID", "7:1"),
        "leaderElectRetryPeriod": ("INVALID", "8:1"),
        "leaderElectResourceLock": ("UNSUPPORTED", "9:1"),
        "clusterSigningCertFil": ("UNKNOWN", "10:1"),
        "kubeApiBurst": ("INVALID", "11:1"),
    }
    assert 'did you mean "clusterSigningCertFile"?' in error.value.detail


@pytest.mark.parametrize("text", ["kind: Pod\n", "[]\n", "apiVersion: controllers.kubewright/v1\nkind: ControllersConfiguration\n"])
def test_another_document_is_refused(text):
    with pytest.raises(DocumentError, match="is not a ControllersConfiguration"):
        controllers.CONFIG.read(text.encode(), source="x.yaml")


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(DocumentError, match="does not exist"):
        controllers.CONFIG.with_file(parser.parse(["controllers", "run", "--config", str(tmp_path / "none")], program="k"))
