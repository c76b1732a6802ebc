"""Where the health of the kubelet and of the components is requested, how long, and over how many connections."""

from __future__ import annotations

from pathlib import Path

import pytest
from init_kit import Box, asked
from scripted_server import answer

from busy import HANGS
from kubewright.apis.machine import Addresses
from kubewright.base.clock import SystemClock
from kubewright.base.errors import Unreachable, WaitTimeout
from kubewright.base.events import RecordingReporter
from kubewright.base.wait import PollingWaiter
from kubewright.http import sync
from kubewright.http.messages import Response
from kubewright.kube.recording import RecordingKube
from kubewright.lifecycle.steps import health
from operation_kit import run_phases


@pytest.mark.parametrize(
    ("arguments", "server"),
    [
        ("", "https://127.0.0.1:10257"),
        ("{name: secure-port, value: '20257'}", "https://127.0.0.1:20257"),
        ("{name: secure-port, value: x}", "https://127.0.0.1:10257"),
        ("{name: bind-address, value: 192.0.2.1}", "https://192.0.2.1:10257"),
        ("{name: bind-address, value: '::'}", "https://127.0.0.1:10257"),
        ("{name: bind-address, value: ''}", "https://127.0.0.1:10257"),
    ],
)
def test_components_are_checked_where_they_serve(tmp_path, arguments, server):
    call = Box(tmp_path).call(asked(cluster=f"controllerManager: {{extraArgs: [{arguments}]}}\n"))
    found = health.checks(
        call.configuration, layout=call.host.layout, addresses=Addresses.of_machine("10.98.0.11"), detected=call.host.facts.detected
    )
    assert list(found) == ["kube-controller-manager", "kube-scheduler"]
    asked_for = {name: (check.server, check.path) for name, check in found.items()}
    assert asked_for == {"kube-controller-manager": (server, "/healthz"), "kube-scheduler": ("https://127.0.0.1:10259", "/livez")}


def test_a_starting_component_is_checked_over_one_connection(make_server):
    answers = [answer(500, b"not yet"), answer(500, b"not yet"), answer(500, b"not yet"), answer(200, b"ok")]
    server = make_server(lambda _: answers.pop(0))
    look = health.HealthEndpoint(server.url, "/healthz")
    assert [look() for _ in range(4)] == [f"{server.url}/healthz answers 500: not yet"] * 3 + [None]
    assert (len(server.seen), server.connections) == (4, 1)


def test_a_restarted_component_is_checked_over_a_new_connection(make_server):
    answers = [answer(500, b"not yet", close=True), answer(200, b"ok")]
    server = make_server(lambda _: answers.pop(0))
    look = health.HealthEndpoint(server.url, "/healthz")
    PollingWaiter(clock=SystemClock(), reporter=RecordingReporter()).until(look, within=HANGS, saying="it to be healthy", every=0.01)
    assert (len(server.seen), server.connections) == (2, 2)


class Silent(RecordingKube):
    """An API server that does not answer."""

    def send(self, call, /):
        raise Unreachable("connection refused")


@pytest.mark.parametrize(
    ("port", "status", "gives_up"),
    [
        (10248, 500, "the kubelet to be healthy after 3"),
        (10248, 200, "the API server to accept requests after 9"),
        (0, None, "the API server to accept requests after 9"),
    ],
)
def test_init_waits_for_the_kubelet_and_for_the_api_server_as_long_as_configured(tmp_path, monkeypatch, port, status, gives_up):
    asked_for = []

    class Transport:
        def __init__(self, server, *, context) -> None:
            self.server = server

        def request(self, method, target, /, *, timeout):
            asked_for.append(f"{method} {self.server}{target}")
            return Response(status=status, body=b"")

        def close(self):
            pass

    monkeypatch.setattr(sync, "Transport", Transport)
    box = Box(tmp_path)
    box.services.last_lines = lambda name, /, *, count: []
    config = Path(box.layout.kubelet_config)
    config.parent.mkdir(parents=True)
    config.write_text(f"healthzPort: {port}\n")
    request = asked(init="timeouts: {kubeletHealthCheck: 3s, controlPlaneComponentHealthCheck: 9s}\n", only=("wait-control-plane",))
    waiter = PollingWaiter(clock=box.clock, reporter=box.reporter)
    with pytest.raises(WaitTimeout, match=gives_up):
        run_phases(box.call(request), request, box.whole(), kube=Silent(), reporter=box.reporter, waiter=waiter)
    assert set(asked_for) == ({"GET http://127.0.0.1:10248/healthz"} if port else set())
    assert len(box.lines("kubelet-check")) == (status == 500)
