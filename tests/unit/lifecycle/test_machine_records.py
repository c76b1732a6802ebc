"""What is stored about a machine between runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from init_kit import TOKEN, Box, asked

from kubewright.base.errors import ConfigurationChanged, HostError
from kubewright.base.records import replace
from kubewright.host.desired import File
from kubewright.lifecycle import machine_record


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


def record(box, **more: object):
    return machine_record.of_init(box.call(asked(**more)).configuration)


def test_a_record_is_read_back_unchanged(box):
    host = box.call(asked()).host
    assert machine_record.load(host) is None
    machine_record.save(host, record(box))
    assert machine_record.load(host) == record(box)
    machine_record.save(host, replace(record(box), finished=True))
    assert machine_record.load(host).finished
    path = Path(machine_record.path(host))
    assert (oct(path.stat().st_mode & 0o777), oct(path.parent.stat().st_mode & 0o777)) == ("0o600", "0o700")


def test_tokens_and_keys_are_not_stored(box):
    kept = record(box, init=f"certificateKey: {'ab' * 32}\n").configuration
    assert TOKEN.partition(".")[2] not in kept
    assert "abab" not in kept


def test_options_of_a_single_run_are_no_other_configuration(box):
    machine_record.require_same(record(box), record(box, init="skipPhases: [preflight]\ntimeouts: {discovery: 1m0s}\n"))


@pytest.mark.parametrize(
    "other",
    [
        {"cluster": "clusterName: other\n"},
        {"cluster": "networking: {podSubnet: 10.1.0.0/16}\n"},
        {"init": "nodeRegistration: {name: other}\n"},
    ],
)
def test_another_configuration_is_refused_with_the_difference(box, other):
    with pytest.raises(ConfigurationChanged, match="another configuration") as caught:
        machine_record.require_same(record(box), record(box, **other))
    assert "\n+" in caught.value.detail


WHOLE = '{"format": 1, "workflow": "init", "configuration": "", "finished": false'


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "3", "{}", '{"format": 2}'),
        '{"format": 1, "workflow": 3, "configuration": "", "finished": true}',
        *(
            f"{WHOLE}, {more}}}"
            for more in (
                '"established": 1',
                '"free": []',
                '"free": {"/a": 1}',
                '"directories": {}',
                '"directories": [1]',
                '"directories": [null]',
            )
        ),
    ],
)
def test_an_invalid_record_is_refused(box, text):
    host = box.call(asked()).host
    path = Path(machine_record.path(host))
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(HostError, match="does not describe the configuration of this machine"):
        machine_record.load(host)


def test_a_record_of_another_format_is_reported(box):
    host = box.call(asked()).host
    machine_record.save(host, record(box))
    path = Path(machine_record.path(host))
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))
    with pytest.raises(HostError, match="format 2"):
        machine_record.load(host)


def test_a_different_secret_is_reported_without_its_value(box):
    one, other = (
        record(box, cluster=f"apiServer: {{extraEnvs: [{{name: A_PASSWORD, value: {value}}}]}}\n") for value in ("horse", "stable")
    )
    with pytest.raises(ConfigurationChanged) as refused:
        machine_record.require_same(one, other)
    assert "-    value: <masked>\n+    value: <masked>" in refused.value.detail
    assert "horse" not in refused.value.detail


def test_a_record_left_by_the_reset_of_another_tool_does_not_count(box):
    host = box.call(asked()).host
    machine_record.save(host, record(box))
    assert machine_record.current(host) == record(box)  # a run that was killed at its start
    machine_record.save(host, replace(record(box), finished=True))
    assert machine_record.current(host) is None
    host.ensure(File(path=host.layout.certificate("ca"), content=b"", mode=0o644, directory_mode=0o755))
    assert machine_record.current(host) == machine_record.load(host)
