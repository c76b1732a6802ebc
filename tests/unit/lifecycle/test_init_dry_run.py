"""Dry runs: their directory, the files that are copied into it, and the output."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pytest
from init_kit import TOKEN, asked

from kubewright.apis.machine import Layout
from kubewright.base.clock import FakeClock
from kubewright.base.errors import UsageError
from kubewright.base.randomness import SeededRandom
from kubewright.host.filesystem.trees import remove_tree
from kubewright.host.real import RealHost
from kubewright.kube.recording import DryRunKube, RecordingKube, dry_run_lines
from kubewright.kube.resources import CLUSTER_ROLE_BINDING, named
from kubewright.lifecycle import dry_run as dry_runs
from kubewright.lifecycle import machine
from kubewright.lifecycle.init.operation import INIT

VARIABLE, PREFIX = INIT.dry_run.variable, INIT.dry_run.prefix


def dry_run(box, request, directory, *, observe=lambda _: None):
    return box.dry_run(request, directory, observe=observe)


def contents(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_all_files_are_flat_in_the_directory_and_none_on_the_machine(box, tmp_path):
    plan, written = dry_run(box, asked(), tmp_path / "dry")
    found = contents(tmp_path / "dry")
    assert len(found) == len(written) == 34
    assert {"ca.crt", "etcd/ca.key", "admin.conf", "etcd.yaml", "kube-apiserver.yaml", "config.yaml", "kubeadm-flags.env"} <= set(found)
    assert (tmp_path / "dry").stat().st_mode & 0o777 == 0o700
    assert plan.changes
    assert box.snapshot() == {}
    assert box.services.done == []


def test_paths_in_the_files_are_those_of_the_machine(box, tmp_path):
    dry_run(box, asked(), tmp_path / "dry")
    manifest = contents(tmp_path / "dry")["kube-apiserver.yaml"].decode()
    assert f"--client-ca-file={box.layout.pki}/ca.crt" in manifest
    assert str(tmp_path / "dry") not in manifest


def test_cas_of_the_machine_are_reused_and_copied(box, tmp_path):
    box.run(asked(only=("certs/ca", "certs/etcd-ca")))
    before = box.snapshot()
    dry_run(box, asked(), tmp_path / "dry")
    found = contents(tmp_path / "dry")
    for name in ("ca.crt", "ca.key", "etcd/ca.crt", "etcd/ca.key"):
        assert found[name] == Path(box.layout.pki / name).read_bytes()
        assert (tmp_path / "dry" / name).stat().st_mode & 0o777 == (0o644 if name.endswith("crt") else 0o600)
    assert len(found) == 34
    assert box.snapshot() == before
    assert 'Using existing "ca" certificate and key' in box.lines("certs")


def test_files_are_shown_with_their_content_except_for_secrets(box, tmp_path):
    dry_run(box, asked(upload_certs=True), tmp_path / "dry")
    told = box.lines("dryrun")
    files = [re.fullmatch(r'Would write file "(.*)" with content:\n.*', text, re.DOTALL) for text in told]
    assert [Path(found[1]).name for found in files if found] == [
        "etcd.yaml",
        "kube-apiserver.yaml",
        "kube-controller-manager.yaml",
        "kube-scheduler.yaml",
        "kubeadm-flags.env",
        "instance-config.yaml",
        "config.yaml",
    ]
    text = "\n".join(told)
    assert "PRIVATE KEY" not in text
    assert TOKEN not in text
    assert "MDEyMzQ1Njc4OWFiY2RlZg==" not in text  # the token's secret in base64


def test_a_password_in_a_manifest_is_written_and_not_shown(box, tmp_path):
    cluster = "apiServer: {extraEnvs: [{name: A_PASSWORD, value: horse}, {name: HTTPS_PROXY, value: 'http://me:stable@proxy'}]}\n"
    dry_run(box, asked(cluster=cluster), tmp_path / "dry")
    manifest = contents(tmp_path / "dry")["kube-apiserver.yaml"].decode()
    assert ("horse" in manifest, "stable" in manifest) == (True, True)
    text = "\n".join(box.lines("dryrun"))
    assert ("A_PASSWORD" in text, "horse" in text, "stable" in text) == (True, False, False)


def test_waits_and_services_are_reported_and_not_done(box, tmp_path):
    dry_run(box, asked(), tmp_path / "dry")
    told = box.lines("dryrun")
    assert "Would restart the service kubelet" in told
    assert [text for text in told if text.startswith("Would wait")] == [
        "Would wait for the kubelet to be healthy",
        "Would wait for the API server to accept requests",
        "Would wait for Node node1 to register",
        "Would wait for the API server to be ready",
        "Would wait for kube-controller-manager to be healthy",
        "Would wait for kube-scheduler to be healthy",
    ]


def test_the_last_lines_name_the_directory(box, tmp_path):
    dry_run(box, asked(), tmp_path / "dry")
    assert str(tmp_path / "dry") in box.lines("dryrun")[-2]
    assert "private keys" in box.lines("dryrun")[-1]


def test_an_existing_cluster_is_read_and_not_written_to(box, tmp_path):
    box.run(asked())
    before = len(box.kube.writes)
    box.kube.delete(named("ServiceAccount"), "coredns", "kube-system")
    dry_run(box, asked(), tmp_path / "dry", observe=lambda _: box.kube)
    assert len(box.kube.writes) == before + 1
    told = [text for text in box.lines("dryrun") if text.startswith("Would perform")]
    assert told == ['Would perform action CREATE on resource "serviceaccounts" in API group "core/v1"']


def binding(subject):
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "c"},
        "subjects": [{"kind": "User", "name": subject}],
    }


def test_requests_are_reported_in_the_words_of_kubeadm(box):
    kube = DryRunKube(reporter=box.reporter)
    kube.create(binding("x"))
    kube.update(binding("y"))
    kube.patch(CLUSTER_ROLE_BINDING, "b", {"metadata": {"labels": {"a": "b"}}})
    kube.delete(CLUSTER_ROLE_BINDING, "b")
    kube.list(CLUSTER_ROLE_BINDING)
    group = 'resource "clusterrolebindings" in API group "rbac.authorization.k8s.io/v1"'
    assert [text.partition("\n")[0] for text in box.lines("dryrun")] == [
        f"Would perform action CREATE on {group}",
        "Attached object:",
        f"Would perform action UPDATE on {group}",
        'Resource name "b", namespace ""',
        "Attached object:",
        f"Would perform action PATCH on {group}",
        'Resource name "b", namespace ""',
        "Attached object:",
        f"Would perform action DELETE on {group}",
        'Resource name "b", namespace ""',
    ]


def test_values_of_secrets_are_masked_in_requests():
    kube = RecordingKube()
    kube.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n"}, "data": {"key": "c2VjcmV0LXZhbHVl"}})
    text = "\n".join(dry_run_lines(kube.actions[0]))
    assert "c2VjcmV0LXZhbHVl" not in text
    assert "key:" in text


class TestDirectory:
    def given(self, tmp_path, *, environment, root=False):
        writer = RealHost(layout=Layout.below(PurePosixPath(tmp_path / "machine")))
        writer.facts.user = 0 if root else 1000
        whole = machine.TargetMachine(at=lambda _: writer, clock=FakeClock(), random=SeededRandom(), environment=environment)
        return dry_runs.directory(writer, whole, variable=VARIABLE, prefix=PREFIX)

    def test_a_named_directory_of_a_dry_run_stays(self, tmp_path):
        with self.given(tmp_path, environment={VARIABLE: str(tmp_path / "mine")}) as found:
            Path(found).mkdir()
        assert found == PurePosixPath(tmp_path / "mine")
        assert Path(found).exists()

    def test_a_relative_directory_is_refused(self, tmp_path):
        with pytest.raises(UsageError, match="not an absolute path"), self.given(tmp_path, environment={VARIABLE: "here"}):
            pytest.fail("not reached")

    def test_a_temporary_directory_is_removed_although_a_signal_comes_meanwhile(self, tmp_path, monkeypatch):
        """A write to a terminal that was closed may fail before the signal comes."""
        removals = []

        def interrupted(path):
            removals.append(path)
            if len(removals) == 1:
                Path(path, "ca.crt").unlink()
                raise KeyboardInterrupt
            remove_tree(path)

        monkeypatch.setattr(dry_runs, "remove_tree", interrupted)
        with pytest.raises(KeyboardInterrupt), self.given(tmp_path, environment={}, root=True) as found:
            for name in ("ca.crt", "ca.key"):
                Path(found, name).touch()
            raise OSError("the terminal was closed")
        assert (removals, Path(found).exists()) == ([found] * 2, False)

    @pytest.mark.parametrize("root", [True, False])
    def test_a_temporary_directory_is_always_removed(self, tmp_path, root):
        environment = {"XDG_STATE_HOME": str(tmp_path / "state")}
        with pytest.raises(ZeroDivisionError), self.given(tmp_path, environment=environment, root=root) as found:
            (Path(found) / "etcd").mkdir()
            (Path(found) / "etcd" / "ca.key").write_text("x")
            assert Path(found).stat().st_mode & 0o777 == 0o700
            raise ZeroDivisionError
        above = tmp_path / "machine/kubernetes/tmp" if root else tmp_path / "state/kubewright/dryrun"
        assert Path(found).parent == above
        assert re.fullmatch(rf"{PREFIX}\d+", found.name)
        assert list(above.iterdir()) == []

    def test_an_existing_directory_is_not_used(self, tmp_path):
        environment = {"XDG_STATE_HOME": str(tmp_path)}
        with self.given(tmp_path, environment=environment) as first, self.given(tmp_path, environment=environment) as second:
            assert first != second

    @pytest.mark.parametrize(
        ("environment", "wanted"),
        [
            ({"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/kubewright"),
            ({"XDG_STATE_HOME": "s", "HOME": "/h"}, "/h/.local/state/kubewright"),
            ({"HOME": "/h"}, "/h/.local/state/kubewright"),
        ],
    )
    def test_the_state_of_a_user_is_where_the_specification_says(self, environment, wanted):
        assert str(machine.state_home(environment)) == wanted

    def test_a_missing_home_directory_gives_a_hint(self):
        with pytest.raises(UsageError, match="home directory") as caught:
            machine.state_home({})
        assert "XDG_STATE_HOME" in caught.value.remedy
