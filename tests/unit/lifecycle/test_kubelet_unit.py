"""The kubelet's unit if no package has installed one."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from init_kit import Box, asked

import systemd_kit
from kubewright.apis.machine import Layout
from kubewright.base.change import Action
from kubewright.base.errors import HostError
from kubewright.host.facts import Facts, MachineInfo
from kubewright.host.overlay import OverlayHost
from kubewright.host.seam import Host
from kubewright.lifecycle.steps import kubelet
from kubewright.manifests.kubelet import DROP_IN, UNIT, UNIT_FILES, UNIT_HEADER, is_ours, unit_files

PROGRAM = PurePosixPath("/usr/bin/kubelet")
FILES = unit_files(PROGRAM, Layout())


class Programs:
    def __init__(self, *names: str) -> None:
        self.names = names

    def path(self, name):
        return PurePosixPath("/usr/bin", name) if name in self.names else None


class _Overlay(OverlayHost):
    """A machine on which nothing is really written, with or without systemd and a kubelet."""

    def __init__(self, base: Host, *, systemd: bool, programs: Programs) -> None:
        super().__init__(base, facts=Facts(detected=base.facts.detected, machine=MachineInfo(), user=0, systemd=systemd))
        self.given = programs

    @property
    def programs(self):
        return self.given


def units(tmp_path, *, known=False, systemd=True, programs=("kubelet",), there=None):
    box = Box(tmp_path)
    box.services.known = known
    host = _Overlay(box.machine(box.layout), systemd=systemd, programs=Programs(*programs))
    if there is not None:
        host.read = lambda path: there if path == UNIT else None
    return kubelet.missing_units(host, Layout(), host.service(kubelet.SERVICE))


def test_the_unit_starts_the_installed_kubelet_with_the_files_of_init():
    unit, drop_in = (_parsed(FILES[path]) for path in UNIT_FILES)
    assert unit["Service"]["ExecStart"] == ["/usr/bin/kubelet"]
    assert unit["Service"]["Restart"] == ["always"]
    assert unit["Install"]["WantedBy"] == ["multi-user.target"]
    assert drop_in["Service"]["EnvironmentFile"] == ["-/var/lib/kubelet/kubeadm-flags.env", "-/etc/default/kubelet"]
    cleared, command = drop_in["Service"]["ExecStart"]
    assert cleared == ""
    assert command == "/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS"
    assert drop_in["Service"]["Environment"] == [
        '"KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"',
        '"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"',
    ]


def test_both_files_say_that_kubewright_wrote_them():
    assert [is_ours(text.encode()) for text in FILES.values()] == [True, True]
    assert not is_ours(b"[Unit]\n" + FILES[UNIT].encode())
    assert not is_ours(None)


def test_a_unit_is_needed_only_with_systemd_a_kubelet_and_no_other_unit(tmp_path):
    wanted = [str(path) for path in UNIT_FILES]
    assert [str(unit.path) for unit in units(tmp_path)] == wanted
    assert units(tmp_path, systemd=False) == ()
    assert units(tmp_path, programs=()) == ()
    assert units(tmp_path, known=True, there=b"[Unit]\n") == ()
    assert [str(unit.path) for unit in units(tmp_path, known=True, there=FILES[UNIT].encode())] == wanted


def test_the_unit_is_installed_enabled_and_started_once(tmp_path, monkeypatch):
    box = Box(tmp_path)
    box.services.known = False
    monkeypatch.setattr(box, "machine", _machine(box.machine))
    plan = box.plan(asked(only=("kubelet-start",)))
    service = next(change for change in plan.changes if change.target == "service kubelet")
    assert (service.action, service.reason) == (Action.UPDATE, "reload, enable, restart")
    assert service.diff.count(f"+{UNIT_HEADER}") == 2
    assert box.lines("kubelet-start")[-1] == "Starting the kubelet"


def _machine(machine):
    return lambda layout: _Overlay(machine(layout), systemd=True, programs=Programs("kubelet"))


@pytest.mark.parametrize("program", ["/usr/local/bin/kubelet", "/opt/bin/kubelet"])
def test_a_kubelet_in_another_directory_is_started_there(program):
    found = unit_files(PurePosixPath(program), Layout())
    assert all(f"ExecStart={program}" in text for text in found.values())


NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=["Cc", "Zl", "Zp"]), min_size=1, max_size=12
).filter(lambda name: name not in {".", ".."})


@given(name=NAMES)
@example(name="a b")
@example(name="%h %%")
@example(name="$HOME ${PATH} $$")
@example(name='say "hi"')
@example(name="it's *")
@example(name="back\\slash")
def test_any_paths_are_quoted_for_systemd_or_refused(name):
    layout = Layout(kubernetes=PurePosixPath("/etc", name), kubelet=PurePosixPath("/var", name))
    drop_in = unit_files(PROGRAM, layout)[DROP_IN]
    values = dict(map(systemd_kit.assignment, systemd_kit.values(drop_in, "Environment")))
    assert {variable: systemd_kit.words(value) for variable, value in values.items()} == {
        "KUBELET_KUBECONFIG_ARGS": [f"--bootstrap-kubeconfig=/etc/{name}/bootstrap-kubelet.conf", f"--kubeconfig=/etc/{name}/kubelet.conf"],
        "KUBELET_CONFIG_ARGS": [f"--config=/var/{name}/config.yaml"],
    }
    program = PurePosixPath("/opt", name, "kubelet")
    if set(name) & set("\"'\\"):
        with pytest.raises(HostError, match="no unit can start"):
            unit_files(program, Layout())
        return
    unit = unit_files(program, Layout())[UNIT]
    assert systemd_kit.commands(systemd_kit.values(unit, "ExecStart")[0]) == [[str(program)]]


def _parsed(text):
    """Read a unit; names may occur several times."""
    sections: dict[str, dict[str, list[str]]] = {}
    for line in text.split("\n"):
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            section.setdefault(name, []).append(value)
    return sections
