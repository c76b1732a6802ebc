"""Manifests that wait for their turn, and what is created before kube-controller-manager starts."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import pytest

from busy import HANGS
from kubewright.apis.kubeadm.types import Arg, ClusterConfiguration, ControlPlaneComponent
from kubewright.base.change import Action, Change
from kubewright.base.errors import AlreadyExists, DiskFull, Forbidden, Unreachable
from kubewright.base.level import KUBERNETES
from kubewright.base.records import replace
from kubewright.host.desired import File
from kubewright.host.seam import Host
from kubewright.kube.api import KubeAPI
from kubewright.lifecycle.deferred_manifests import DeferredManifests
from kubewright.lifecycle.init import operation, startup
from kubewright.lifecycle.init.phases import PHASES as INIT

CLUSTER = replace(ClusterConfiguration(), kubernetes_version=KUBERNETES)


class Disk:
    """Files, and their initial contents."""

    def __init__(self, *there: str, full: bool = False) -> None:
        self.there = set(there)
        self.full = full
        self.written: list[str] = []
        self.layout = SimpleNamespace(
            etcd_data=PurePosixPath("/var/lib/etcd"),
            kubelet=PurePosixPath("/var/lib/kubelet"),
            certificate=lambda name: PurePosixPath(f"/pki/{name}.crt"),
        )

    def state(self, path: PurePosixPath) -> object | None:
        return path if str(path) in self.there else None

    def entries(self, path: PurePosixPath) -> list[PurePosixPath]:
        return sorted({PurePosixPath(one) for one in self.there if PurePosixPath(one).parent == path})

    def read(self, path: PurePosixPath) -> bytes | None:
        return b"-----CA-----\n"

    def ensure(self, desired: File) -> Change:
        if self.full:
            raise DiskFull("no space", remedy="make some")
        self.written.append(desired.path.stem)
        return Change(target=f"file {desired.path}", action=Action.CREATE)


def manifest(name: str) -> File:
    return File(path=PurePosixPath(f"/manifests/{name}.yaml"), content=b"{}", mode=0o600)


def host(disk: Disk) -> Host:
    return cast("Host", disk)


def soon(condition: Any) -> None:
    end = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def arranged(machine, order):
    made = DeferredManifests(machine)
    made.hold(order)
    return made


def test_a_manifest_waits_for_its_turn() -> None:
    disk, due = Disk(), threading.Event()
    with arranged(host(disk), {"a": due.is_set}) as turns:
        assert turns.take("a", manifest("a"))
        time.sleep(0.1)
        assert disk.written == []
        due.set()
        soon(lambda: disk.written == ["a"])
        assert [change.target for change in turns.finish()] == ["file /manifests/a.yaml"]
    assert disk.written == ["a"]


def test_existing_manifests_and_those_without_order_are_written_at_once() -> None:
    with arranged(host(Disk("/manifests/a.yaml")), {"a": lambda: False}) as turns:
        assert not turns.take("a", manifest("a"))
        assert not turns.take("b", manifest("b"))
    with DeferredManifests(host(Disk())) as turns:
        assert not turns.take("a", manifest("a"))
        assert turns.finish() == []


def test_waiting_ends_with_the_run() -> None:
    disk = Disk()
    with arranged(host(disk), dict.fromkeys("ab", lambda: False)) as turns:
        assert turns.take("a", manifest("a"))
        assert turns.take("b", manifest("b"))
        assert len(turns.finish()) == 2
    assert sorted(disk.written) == ["a", "b"]


def test_an_interrupted_run_writes_nothing_more() -> None:
    disk = Disk()
    with arranged(host(disk), {"a": lambda: False}) as turns:
        turns.take("a", manifest("a"))
    assert disk.written == []


def test_errors_of_checks_mean_not_yet_and_errors_of_writes_are_raised() -> None:
    def refused() -> bool:
        raise Unreachable("not there", remedy="")

    with arranged(host(Disk()), {"a": refused}) as turns:
        turns.take("a", manifest("a"))
        time.sleep(0.05)
        turns.check()
    with arranged(host(Disk(full=True)), {"a": lambda: True}) as turns:
        turns.take("a", manifest("a"))

        def failed() -> bool:
            try:
                turns.check()
            except DiskFull:
                return True
            return False

        soon(failed)
        with pytest.raises(DiskFull):
            turns.finish()


class SlowDisk(Disk):
    """Writes only once its start was observed, and ends on request."""

    def __init__(self, *, full: bool = False) -> None:
        super().__init__(full=full)
        self.begun, self.ends = threading.Event(), threading.Event()

    def ensure(self, desired: File) -> Change:
        self.begun.set()
        self.ends.wait(HANGS)
        return super().ensure(desired)


@pytest.mark.parametrize("full", [False, True])
def test_a_write_in_progress_at_the_end_is_completed_and_reported(full: bool) -> None:
    changes, errors = list[Change](), list[DiskFull]()

    def finish() -> None:
        try:
            changes.extend(turns.finish())
        except DiskFull as error:
            errors.append(error)

    disk = SlowDisk(full=full)
    with arranged(host(disk), {"a": lambda: True}) as turns:
        turns.take("a", manifest("a"))
        assert disk.begun.wait(HANGS)
        finishing = threading.Thread(target=finish)
        finishing.start()
        finishing.join(0.1)
        disk.ends.set()
        finishing.join(HANGS)
    assert (len(changes), len(errors)) == ((0, 1) if full else (1, 0))


def test_turns_are_checked_in_their_own_order() -> None:
    asked: list[str] = []

    def turn(name: str) -> bool:
        asked.append(name)
        return asked.count("b") > 2  # so "a" is still there when "b" comes

    disk = Disk()
    with arranged(host(disk), {"b": lambda: turn("b"), "a": lambda: turn("a")}) as turns:
        turns.take("a", manifest("a"))
        turns.take("b", manifest("b"))
        soon(lambda: len(disk.written) == 2)
    rest = asked[asked.index("b") :]
    assert rest[:2] == ["b", "a"]
    assert set(disk.written) == {"a", "b"}


class API:
    """An API server that accepts nothing before it is ready, and has the ClusterRole only later."""

    def __init__(self, *there: str) -> None:
        self.ready = self.rights = False
        self.names = set(there)
        self.created: list[Mapping[str, Any]] = []

    def create(self, body: Mapping[str, Any]) -> None:
        if not self.ready:
            raise Forbidden("not yet", code=403, remedy="")
        metadata = body["metadata"]
        if f"{metadata.get('namespace', '')}/{metadata['name']}" in self.names:
            raise AlreadyExists("it is there", code=409, remedy="")
        self.created.append(body)

    def get(self, *_: object) -> None:
        if not self.rights:
            raise Unreachable("not yet", remedy="")


ACCOUNTS = len(startup.CONTROLLERS) + 4 + 4
RIGHTS = 12
"""Roles and bindings of kube-controller-manager and kube-scheduler."""


def test_the_api_server_starts_with_etcd() -> None:
    disk = Disk()
    turns = startup.start_conditions(CLUSTER, host(disk), connect=lambda: cast("KubeAPI", API()))
    assert turns.keys() == {"kube-apiserver", "kube-controller-manager", "kube-scheduler"}
    assert not turns["kube-apiserver"]()
    disk.there.add("/var/lib/etcd/member")
    assert turns["kube-apiserver"]()
    disk.there.clear()
    assert not turns["kube-apiserver"]()
    disk.there |= {"/var/lib/kubelet/pods/6a3bbf6f76add43414d6d6fa7db0bc14"}
    assert turns["kube-apiserver"]()


def test_components_start_when_their_requirements_exist() -> None:
    api = API("default/default", "/system:kube-scheduler")
    turns = startup.start_conditions(CLUSTER, host(Disk()), connect=lambda: cast("KubeAPI", api))
    assert list(turns) == ["kube-apiserver", "kube-scheduler", "kube-controller-manager"]
    for component in ("kube-scheduler", "kube-controller-manager"):
        with pytest.raises(Forbidden):
            turns[component]()
    api.ready = True
    assert turns["kube-scheduler"]()
    assert len(api.created) == RIGHTS - 2  # the role and the binding of that name were there
    assert {one["kind"] for one in api.created} == {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    assert turns["kube-controller-manager"]()
    assert len(api.created) == RIGHTS - 2 + ACCOUNTS - 1
    names = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in api.created]
    assert len(names) == len(set(names))


def test_the_api_server_creates_permissions_that_may_differ() -> None:
    api, cluster = API("default/default"), replace(CLUSTER, kubernetes_version="v1.36.2")
    turns = startup.start_conditions(cluster, host(Disk()), connect=lambda: cast("KubeAPI", api))
    api.ready = True
    for component in ("kube-scheduler", "kube-controller-manager"):
        with pytest.raises(Unreachable):
            turns[component]()
    assert len(api.created) == ACCOUNTS - 1
    api.rights = True
    assert turns["kube-scheduler"]()
    assert turns["kube-controller-manager"]()
    assert len(api.created) == ACCOUNTS - 1


@pytest.mark.parametrize("flag", ["authorization-mode", "authorization-config", "emulated-version", "feature-gates", "runtime-config"])
def test_no_role_is_created_if_flags_decide(flag: str) -> None:
    changed = replace(CLUSTER, api_server=replace(CLUSTER.api_server, extra_args=(Arg(name=flag, value="x"),)))
    assert startup.component_rights(changed) == []
    assert startup.component_rights(replace(CLUSTER, kubernetes_version="v1.36.4")) == []
    assert len(startup.component_rights(CLUSTER)) == RIGHTS


def test_startup_objects_equal_those_of_the_controller_manager() -> None:
    made = startup.controller_objects(CLUSTER, authority=b"CA")
    accounts = [one for one in made if one["kind"] == "ServiceAccount"]
    assert len(accounts) == len({(one["metadata"]["namespace"], one["metadata"]["name"]) for one in accounts}) == 41
    assert all(one.keys() == {"apiVersion", "kind", "metadata"} for one in accounts)
    bundles = [one for one in made if one["kind"] == "ConfigMap"]
    assert {one["metadata"]["namespace"] for one in bundles} == {"default", "kube-node-lease", "kube-public", "kube-system"}
    assert all(one["data"] == {"ca.crt": "CA"} for one in bundles)


@pytest.mark.parametrize("flag", ["controllers", "feature-gates", "root-ca-file", "use-service-account-credentials"])
def test_nothing_is_created_if_the_controller_manager_would_differ(flag: str) -> None:
    changed = replace(CLUSTER, controller_manager=replace(ControlPlaneComponent(), extra_args=(Arg(name=flag, value="x"),)))
    assert startup.controller_objects(changed, authority=b"CA") == []
    assert startup.controller_objects(replace(CLUSTER, kubernetes_version="v1.35.4"), authority=b"CA") == []


def test_with_an_external_etcd_the_api_server_does_not_wait() -> None:
    external = replace(CLUSTER, etcd=replace(CLUSTER.etcd, local=None, external=cast("Any", SimpleNamespace())))
    turns = startup.start_conditions(external, host(Disk()), connect=lambda: cast("KubeAPI", API()))
    assert "kube-apiserver" not in turns


def test_phases_that_run_ahead_exist_with_their_requirements() -> None:
    names = [node.name for node in INIT.nodes]
    assert set(operation.START_ORDER) <= set(names)
    assert len(set(operation.START_ORDER)) == len(operation.START_ORDER)
    place = {name: number for number, name in enumerate(operation.START_ORDER)}
    assert place["certs/ca"] < place["kubeconfig/kubelet"] < place["kubelet-start"]
    assert place["control-plane"] < place["kubelet-start"]  # the directory of manifests
    assert max(place[name] for name in place if name.startswith("certs/etcd")) < place["etcd/local"]
    assert max(place[name] for name in place if name.startswith("certs/")) < place["control-plane/apiserver"]
