"""From a container to a process: programs, arguments, environment, and paths without mounts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from supervisor_kit import NODE, pod

from kubewright.base import yaml
from kubewright.base.errors import ValidationError
from kubewright.base.fields import FieldPath
from kubewright.local.supervisor.decoding import FIELDS, read_pod
from kubewright.local.supervisor.pod import Mount
from kubewright.local.supervisor.runtime import SEARCHED, ProcessSpec, expand, refusal_of, rewriter, translate

PROGRAMS = {"kube-apiserver": Path("/cache/v1.36.3/kube-apiserver")}
CASES = Path(__file__).parents[2] / "data" / "reference" / "cases"
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def mount(mount_path: str, host_path: str) -> Mount:
    return Mount(mount_path=mount_path, host_path=host_path, path=FieldPath("spec.containers[0].volumeMounts[0]"))


def launch(*command: str, volumes: dict[str, str] | None = None, **container: object) -> ProcessSpec:
    """Translate a container; `volumes` maps mount paths to host paths."""
    rows = list((volumes or {}).items())
    given = {"volumeMounts": [{"name": str(number), "mountPath": row[0]} for number, row in enumerate(rows)], **container}
    spec = {"volumes": [{"name": str(number), "hostPath": {"path": row[1]}} for number, row in enumerate(rows)]}
    found = read_pod(pod("kube-apiserver", *command, container=given, spec=spec), source="kube-apiserver.yaml", node=NODE.name)
    return translate(found, found.containers[0], node=NODE, programs=PROGRAMS)


def refusals(*command: str, **parts: object) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        launch(*command, **parts)  # type: ignore[arg-type]
    return [str(error) for error in caught.value.errors]


def test_the_program_is_resolved_and_arguments_follow() -> None:
    found = launch("kube-apiserver", "--a=1", args=["--b=2"])
    assert found.argv == ("/cache/v1.36.3/kube-apiserver", "--a=1", "--b=2")
    assert found.env == {}


@pytest.mark.parametrize("name", ["etcd", "/usr/bin/kube-apiserver", "../kube-apiserver"])
def test_an_unknown_program_is_refused(name: str) -> None:
    assert refusals(name) == [
        f'kube-apiserver.yaml: spec.containers[0].command[0]: Unsupported value: "{name}": programs of this machine: kube-apiserver'
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("metadata.name", "kube-apiserver-node1"),
        ("metadata.namespace", "kube-system"),
        ("spec.nodeName", "node1"),
        ("status.hostIP", "127.0.0.1"),
        ("status.hostIPs", "127.0.0.1"),
        ("status.podIP", "127.0.0.1"),
        ("status.podIPs", "127.0.0.1"),
    ],
)
def test_fields_of_the_pod_resolve(field: str, value: str) -> None:
    assert field in FIELDS
    env = [{"name": "V", "valueFrom": {"fieldRef": {"fieldPath": field}}}]
    found = launch("kube-apiserver", "--v=$(V)", env=env)
    assert (found.env, found.argv[1]) == ({"V": value}, f"--v={value}")


def test_every_field_that_is_read_has_a_value() -> None:
    env = [{"name": f"V{number}", "valueFrom": {"fieldRef": {"fieldPath": field}}} for number, field in enumerate(sorted(FIELDS))]
    assert len(launch("kube-apiserver", env=env).env) == len(FIELDS) == 8


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y2"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(A)", "$(A)"),
        ("$$", "$"),
        ("$A", "$A"),
        ("$(", "$("),
        ("$()", "$()"),
        ("", ""),
    ],
)
def test_references_are_expanded_as_the_api_specifies(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expanded


@given(st.text(alphabet="$()AB x"))
def test_expansion_never_fails(text: str) -> None:
    assert isinstance(expand(text, {"A": "1"}), str)


def test_a_variable_can_use_earlier_ones() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)$(C)"}, {"name": "C", "value": "3"}]
    assert launch("kube-apiserver", env=env).env == {"A": "1", "B": "1$(C)", "C": "3"}


MOVED = [
    mount("/etc/kubernetes", "/state/k"),
    mount("/etc/kubernetes/pki", "/state/certs"),
    mount("/data", "/data"),
    mount("/a", "/b"),
    mount("/b", "/c"),
]


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("--config=/etc/kubernetes/admin.conf", "--config=/state/k/admin.conf"),
        ("--cert=/etc/kubernetes/pki/ca.crt", "--cert=/state/certs/ca.crt"),
        ("--dir=/etc/kubernetes/pki", "--dir=/state/certs"),
        ("--dir=/etc/kubernetes/pki/", "--dir=/state/certs/"),
        ("--dir=/etc/kubernetes/pki2", "--dir=/state/k/pki2"),
        ("--dir=/etc/kubernetes2", "--dir=/etc/kubernetes2"),
        ("--dir=/root/etc/kubernetes", "--dir=/root/etc/kubernetes"),
        ("/etc/kubernetes", "/state/k"),
        ("x=/etc/kubernetes/a,y=/etc/kubernetes/pki/b:/data/c", "x=/state/k/a,y=/state/certs/b:/data/c"),
        ("unix:///etc/kubernetes/x.sock", "unix:///state/k/x.sock"),
        ('["/etc/kubernetes/a", "/data"]', '["/state/k/a", "/data"]'),
        ("https://host/etc/kubernetes", "https://host/etc/kubernetes"),
        ("/a/b:/b/a", "/b/b:/c/a"),
        ("--v=2", "--v=2"),
    ],
)
def test_container_paths_become_host_paths(text: str, rewritten: str) -> None:
    assert rewriter(MOVED)(text) == rewritten


def test_equal_paths_need_nothing() -> None:
    same = [mount("/etc/ssl/certs", "/etc/ssl/certs"), mount("/x", "/x")]
    assert rewriter(same)("--x=/x/y") == "--x=/x/y"
    assert [refusal_of(one, ()) for one in same] == [None, None]


@given(st.text(alphabet="/abx=:,", max_size=30))
def test_rewriting_changes_each_path_once(text: str) -> None:
    found = rewriter([mount("/a", "/b"), mount("/b", "/a")])(text)
    assert rewriter([mount("/a", "/b"), mount("/b", "/a")])(found) == text


def test_arguments_variables_and_working_directory_are_rewritten() -> None:
    found = launch(
        "kube-apiserver",
        "--audit-log-path=$(LOGS)/audit.log",
        volumes={"/var/log/kubernetes": "/state/audit"},
        env=[{"name": "LOGS", "value": "/var/log/kubernetes"}],
        workingDir="/var/log/kubernetes",
    )
    assert found.argv[1] == "--audit-log-path=/state/audit/audit.log"
    assert found.env == {"LOGS": "/state/audit"}
    assert found.working_dir == "/state/audit"


@pytest.mark.parametrize("place", SEARCHED)
def test_a_mount_over_a_searched_path_is_refused(place: str) -> None:
    assert refusal_of(mount(place, "/elsewhere"), [place]) is not None
    assert refusal_of(mount(f"{place}/below", "/elsewhere"), [f"{place}/below"]) is not None
    assert refusal_of(mount(place, place), [place]) is None


def test_refusals_name_the_field() -> None:
    found = refusals(
        "kube-apiserver", "--x=/named/x", volumes={"/etc/ssl/certs": "/state/ca", "/named": "/here", "/unnamed": "/there", "/etc": "/e"}
    )
    assert [text.split(": Invalid")[0] for text in found] == [
        "kube-apiserver.yaml: spec.containers[0].volumeMounts[0].mountPath",
        "kube-apiserver.yaml: spec.containers[0].volumeMounts[2].mountPath",
        "kube-apiserver.yaml: spec.containers[0].volumeMounts[3].mountPath",
    ]
    assert "programs read /etc/ssl by default" in found[0]
    assert "no argument or variable names it, so the process would not find /there" in found[1]


def test_the_digest_distinguishes_programs_arguments_and_variables() -> None:
    base = launch("kube-apiserver", "--a", env=[{"name": "A", "value": "1"}])
    others = [
        launch("kube-apiserver", "--b", env=[{"name": "A", "value": "1"}]),
        launch("kube-apiserver", "--a", env=[{"name": "A", "value": "2"}]),
        ProcessSpec(argv=("/other", "--a"), env=base.env),
    ]
    assert len({base.digest, *(one.digest for one in others)}) == 4
    assert base.digest == launch("kube-apiserver", "--a", env=[{"name": "A", "value": "1"}]).digest


MANIFESTS = sorted(CASES.glob("*/manifests/*.yaml"))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_manifests_of_kubeadm_run_unchanged(path: Path) -> None:
    document: Any = yaml.load(path.read_bytes(), source=path.name)
    found = read_pod(document, source=path.name, node="node1")
    (container,) = found.containers
    assert None not in {container.startup, container.liveness}
    assert (container.readiness is None) is (path.stem == "kube-controller-manager")
    programs = {name: Path("/bin", name) for name in COMPONENTS}
    if [one for one in container.mounts if one.mount_path != one.host_path]:
        with pytest.raises(ValidationError) as caught:
            translate(found, container, node=NODE, programs=programs)
        assert ["programs read /etc/ssl" in error.reason for error in caught.value.errors] == [True]
    else:
        launched = translate(found, container, node=NODE, programs=programs)
        assert list(launched.argv[1:]) == document["spec"]["containers"][0]["command"][1:]


def test_all_reference_manifests_exist() -> None:
    assert len(MANIFESTS) >= 27
    assert {path.stem for path in MANIFESTS} == set(COMPONENTS)
