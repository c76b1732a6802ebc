"""The cluster that a plan asks: where it comes from, and what happens when it cannot be asked."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from init_kit import asked

from kubewright.lifecycle.init import observing, planning


def test_a_machine_without_a_kubeconfig_has_no_cluster(box):
    assert observing.cluster(box.call(asked())) is None
    assert box.warnings() == []


@pytest.fixture
def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return port  # noqa: RET504 - closed by now


def test_a_cluster_that_is_down_is_a_warning_and_counts_as_empty(box, closed_port):
    box.act(asked(only=("certs/ca",)))
    box.act(asked(only=("kubeconfig/admin",)))
    path = Path(box.layout.kubeconfig("admin"))
    path.write_text(path.read_text().replace("https://10.98.0.11:6443", f"https://127.0.0.1:{closed_port}"))
    request = asked(kubeconfig=str(path.with_name("admin-elsewhere.conf")))
    path.rename(request.kubeconfig)
    assert observing.cluster(box.call(request)) is None
    (warning,) = box.warnings()
    assert "takes it for empty" in warning
    assert f"127.0.0.1:{closed_port}" in warning
    assert planning.plan(box.call(request)).changes


@pytest.mark.parametrize("content", ["", "not: a kubeconfig", "\0", "{"])
def test_a_broken_kubeconfig_is_a_warning(box, content, tmp_path):
    path = tmp_path / "broken.conf"
    path.write_text(content)
    assert observing.cluster(box.call(asked(kubeconfig=str(path)))) is None
    assert len(box.warnings()) == 1
    assert str(path) in box.warnings()[0]
