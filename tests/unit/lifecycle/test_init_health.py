"""Where the health of the components is asked."""

from __future__ import annotations

import pytest
from init_kit import Box, asked

from kubewright.apis.machine import Addresses
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
def test_components_are_asked_where_they_serve(tmp_path, arguments, server):
    call = Box(tmp_path).call(asked(cluster=f"controllerManager: {{extraArgs: [{arguments}]}}\n"))
    found = health.checks(
        call.configuration, layout=call.host.layout, addresses=Addresses.of_machine("10.98.0.11"), detected=call.host.facts.detected
    )
    assert list(found) == ["kube-controller-manager", "kube-scheduler"]
    assert found["kube-controller-manager"].args == (server, "/healthz")
    assert found["kube-scheduler"].args == ("https://127.0.0.1:10259", "/livez")
