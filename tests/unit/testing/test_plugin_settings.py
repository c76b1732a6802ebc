"""The pytest plugin without a cluster: its settings, and errors that a user can read. Runs of pytest inside of ours."""

from __future__ import annotations

import pytest

from kubewright.base import events
from kubewright.host.processes import Identity
from kubewright.testing import clusters, settings
from kubewright.testing.clusters import TerminalLines
from kubewright.testing.runs import Run, abandoned

pytest_plugins = ["pytester"]

LOADED = (clusters,)
"""Inner runs forget what they have imported; modules that are already loaded need not be loaded again."""

PLUGIN = ("-p", "kubewright.testing.plugin")
ASKS = "def test_asks(kubewright_namespace):\n    pass\n\ndef test_asks_again(kubewright_cluster):\n    pass\n"


@pytest.fixture(autouse=True)
def nothing_at_hand(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name in ("KUBEWRIGHT_BINARIES_DIR", "KUBEWRIGHT_MIRRORS", "KUBEWRIGHT_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KUBEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KUBEWRIGHT_OFFLINE", "1")
    monkeypatch.setenv("KUBEWRIGHT_NO_BUILD", "1")


def run(pytester: pytest.Pytester, ini: str = "", *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(ASKS)
    pytester.makeini(f"[pytest]\n{ini}\n")
    # In CI pytest repeats the whole message of a failure in its summary.
    return pytester.runpytest_inprocess(*PLUGIN, "-r", "", *arguments)


def test_without_binaries_every_test_reports_what_is_missing_and_a_hint(pytester, tmp_path):
    result = run(pytester)
    result.assert_outcomes(errors=2)
    text = result.stdout.str()
    assert "Traceback" not in text
    assert "During handling" not in text
    assert text.count("kubewright: no binary is available for etcd") == 2
    assert text.count("hint: ") == 2
    assert not list((tmp_path / "state" / "kubewright" / "clusters").glob("*"))


@pytest.mark.parametrize(
    ("ini", "arguments", "said"),
    [
        ("kubewright_nodes = many", (), 'kubewright_nodes = "many" is not a number of nodes'),
        ("kubewright_nodes = -1", (), 'kubewright_nodes = "-1" is not a number of nodes'),
        ("kubewright_control_planes = 0", (), 'kubewright_control_planes = "0" is not a number of control planes'),
        ("kubewright_wait = soon", (), 'kubewright_wait = "soon" is not a duration'),
        ("kubewright_config = none.yaml", (), "cannot read kubewright_config = none.yaml"),
        ("kubewright_version = 1.2.3", (), "Kubernetes v1.2.3 is not supported"),
        ("kubewright_version = v1.36.3", ("--kubewright-version", "newest"), 'Kubernetes version "newest" is not a version'),
        ("", ("--kubewright-binaries-dir", "/nowhere/at/all"), "/nowhere/at/all"),
    ],
)
def test_an_unusable_setting_is_reported(pytester, ini, arguments, said):
    result = run(pytester, ini, *arguments)
    result.assert_outcomes(errors=2)
    assert said in result.stdout.str()
    assert "hint: " in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


def test_without_a_home_the_plugin_reports_it_and_other_tests_run(pytester, monkeypatch):
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "relative")
    pytester.makepyfile(test_other="def test_other():\n    pass\n")
    result = run(pytester)
    result.assert_outcomes(errors=2, passed=1)
    assert result.stdout.str().count("kubewright: no home directory is known") == 2


def test_the_command_line_overrides_the_ini_file(pytester):
    pytester.makeini(
        "[pytest]\nkubewright_version = v1.35.4\nkubewright_nodes = 7\nkubewright_control_planes = 3\nkubewright_wait = 90s\n"
        "kubewright_config = one.yaml\n"
    )
    pytester.path.joinpath("one.yaml").write_text("kind: ClusterConfiguration\n")
    config = pytester.parseconfig(*PLUGIN, "--kubewright-version", "v1.36.3", "--kubewright-binaries-dir", "/binaries")
    assert settings.settings(config) == settings.Settings(
        nodes=7,
        control_planes=3,
        kubernetes_version="v1.36.3",
        config="kind: ClusterConfiguration\n",
        binaries_dir="/binaries",
        within=90.0,
    )
    assert settings.settings(pytester.parseconfig(*PLUGIN)).kubernetes_version == "v1.35.4"


def test_every_setting_has_a_default(pytester):
    pytester.makeini("[pytest]\n")
    assert settings.settings(pytester.parseconfig(*PLUGIN)) == settings.Settings()


@pytest.mark.parametrize(
    ("test", "prefix"),
    [
        ("test_pods", "test-pods"),
        ("test_Pods[ÄÖ-1 2]", "test-pods-1-2"),
        ("___", "test"),
        ("x" * 80, "x" * 40),
        (f"{'x' * 39}[1]", "x" * 39),
    ],
)
def test_the_name_of_a_test_becomes_a_namespace_prefix(test, prefix):
    assert clusters.prefix(test) == prefix


def test_two_runs_never_share_a_cluster_and_workers_do(tmp_path):
    one, other = (Run.begin(state_dir=str(tmp_path), keep=False) for _ in range(2))
    assert one.name != other.name
    assert Run.parse(one.as_map()) == one
    assert one.is_here
    assert one.paths.root.parent == tmp_path
    elsewhere = Run(name=one.name, state_dir="/", owner="1:1:another-boot")
    assert not elsewhere.is_here
    assert Run.begin(state_dir=str(tmp_path), keep=True).owner == ""


def test_only_clusters_of_runs_that_have_ended_are_abandoned(tmp_path):
    import json
    import os

    def leave(name: str, owner: str | None) -> None:
        (tmp_path / name).mkdir()
        if owner is not None:
            (tmp_path / name / "launch.json").write_text(json.dumps({"programs": {}, "owner": owner}))

    leave("pytest-1-aaaaa", "1:1:another-boot")
    leave("pytest-4194305-bbbbb", None)  # above the largest process ID: killed before it recorded its owner
    leave(f"pytest-{os.getpid()}-ccccc", None)
    leave("pytest-1-ddddd", str(Identity.of(os.getpid())))
    leave("pytest-1-eeeee", "")  # kept for inspection
    leave("pytest-mine", "1:1:another-boot")
    leave("default", "1:1:another-boot")
    assert [place.name for place in abandoned(str(tmp_path))] == ["pytest-1-aaaaa", "pytest-4194305-bbbbb"]


class Terminal:
    def __init__(self) -> None:
        self.lines = []

    def ensure_newline(self):
        pass

    def write_line(self, line):
        self.lines.append(line)


def test_progress_is_shown_despite_output_capturing(pytester):
    terminal = Terminal()
    config = pytester.parseconfig(*PLUGIN)
    if (old := config.pluginmanager.getplugin("terminalreporter")) is not None:
        config.pluginmanager.unregister(old)
    config.pluginmanager.register(terminal, "terminalreporter")
    told = TerminalLines(config)
    for done in (1, 2, 3):
        told.emit(events.Progress(task="building etcd", done=done, total=4))
    told.emit(events.Progress(task="kubectl", done=1))
    told.emit(events.Warned(text="the cache is slow"))
    told.emit(events.State(subject="cluster", state="Ready", elapsed=1.0))
    assert terminal.lines == ["kubewright: building etcd 25 %", "kubewright: kubectl", "kubewright: warning: the cache is slow"]
