"""Where the health of the components is requested, and over how many connections."""

from __future__ import annotations

import pytest
from init_kit import Box, asked
from scripted_server import answer

from busy import HANGS
from kubewright.apis.machine import Addresses
from kubewright.base.clock import SystemClock
from kubewright.base.events import RecordingReporter
from kubewright.base.wait import PollingWaiter
from kubewright.lifecycle.steps import health


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
