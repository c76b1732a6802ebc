"""What can be seen of systemd's services without asking systemd."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from kubewright.base.errors import HostError
from kubewright.host.found import FileState, Kind, ServiceState
from kubewright.lifecycle.init.services import SeenServices

BOOTED = {"/run/systemd/system": Kind.DIRECTORY}
UNIT = {"/usr/lib/systemd/system/kubelet.service": Kind.FILE}
ACTIVE = {"/run/systemd/units/invocation:kubelet.service": Kind.LINK}
ENABLED = {"/etc/systemd/system/multi-user.target.wants/kubelet.service": Kind.LINK}


class Paths:
    def __init__(self, found: dict[str, Kind]) -> None:
        self._found = found

    def state(self, path: PurePosixPath, /) -> FileState | None:
        kind = self._found.get(str(path))
        return None if kind is None else FileState(kind=kind, mode=0o644)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        ({}, None),
        (UNIT | ACTIVE, None),
        (BOOTED, None),
        (BOOTED | UNIT, ServiceState(running=False, enabled=False)),
        (BOOTED | UNIT | ENABLED, ServiceState(running=False, enabled=True)),
        (BOOTED | UNIT | ACTIVE, ServiceState(running=True, enabled=False)),
        (BOOTED | UNIT | ACTIVE | ENABLED, ServiceState(running=True, enabled=True)),
        (BOOTED | {"/etc/systemd/system/kubelet.service": Kind.LINK}, ServiceState(running=False, enabled=False)),
    ],
)
def test_links_and_unit_files_tell_the_state(found, state):
    assert SeenServices(Paths(found)).state("kubelet") == state


@pytest.mark.parametrize("verb", ["start", "stop", "restart", "enable", "disable"])
def test_nothing_can_be_done_to_a_service_yet(verb):
    with pytest.raises(HostError, match="service kubelet cannot be changed") as caught:
        getattr(SeenServices(Paths({})), verb)("kubelet")
    assert "--plan" in caught.value.remedy
