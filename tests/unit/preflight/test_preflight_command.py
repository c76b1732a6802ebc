"""`kubewright preflight init|join`: the checks alone."""

from __future__ import annotations

import json

import pytest
from preflight_kit import FakeHost

from kubewright.apis.machine import Detected
from kubewright.cli.handlers import machine as cli_machine
from kubewright.cli.main import main
from kubewright.host.facts import Facts

INIT = ["preflight", "init", "--kubernetes-version", "v1.36.3", "--apiserver-advertise-address", "192.0.2.11", "--node-name", "localhost"]
JOIN = ["preflight", "join", "192.0.2.1:6443", "--token", "abcdef.0123456789abcdef", "--discovery-token-unsafe-skip-ca-verification"]
JOIN += ["--node-name", "localhost"]
DETECTED = Detected(host_name="localhost", default_ipv4="192.0.2.11")


class Host(FakeHost):
    @property
    def facts(self):
        return Facts(detected=DETECTED, machine=self.machine)


@pytest.fixture
def host(monkeypatch):
    made = Host()
    monkeypatch.setattr(cli_machine, "host", lambda layout, *, files=None: made)
    monkeypatch.setattr(cli_machine, "detected", lambda: DETECTED)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    return made


@pytest.mark.parametrize(("argv", "count"), [(INIT, 29), (JOIN, 17)])
def test_a_ready_machine_is_reported_in_one_line(host, capsys, argv, count):
    assert main(argv) == 0
    assert capsys.readouterr().out == f"{count} checks: this machine is ready\n"


@pytest.mark.parametrize("argv", [INIT, JOIN])
def test_failures_are_reported_with_hints_and_an_exit_code(host, capsys, argv):
    host.files["/proc/sys/net/ipv4/ip_forward"] = "0\n"
    host.services.clear()
    assert main(argv) == 4
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith("this machine is not ready")
    assert "[ERROR FileContent--proc-sys-net-ipv4-ip_forward]: /proc/sys/net/ipv4/ip_forward contents are not set to 1" in lines
    assert any(line.startswith("\thint: set it with `sysctl -w net.ipv4.ip_forward=1`") for line in lines)
    assert sum(line.startswith("[WARNING Service-kubelet]") for line in lines) == 1


def test_ignored_errors_are_warnings(host, capsys):
    host.files["/proc/sys/net/ipv4/ip_forward"] = "0\n"
    assert main([*INIT, "--ignore-preflight-errors", "filecontent--proc-sys-net-ipv4-ip_forward"]) == 0
    assert "[WARNING FileContent--proc-sys-net-ipv4-ip_forward]" in capsys.readouterr().out


def test_json_has_every_check(host, capsys):
    host.services.clear()
    assert main([*INIT, "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["passed"], len(told["checks"])) == (True, 29)
    assert [check["name"] for check in told["checks"] if check["findings"]] == ["Service-kubelet"]
