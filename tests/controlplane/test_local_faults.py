"""Faults on a user's machine, each with a message that names it and says what to do, and nothing left running.

docs/guide/troubleshooting.md has a row for each of these.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_kit import COMPONENTS, Bench, Ran, address_of, bench, eventually, leftovers, program

from kubewright.apis.machine import Ports
from kubewright.base.errors import BinariesError
from kubewright.base.events import SilentReporter
from kubewright.base.records import fields
from kubewright.binaries import sources_from
from kubewright.local.cluster.up import up
from kubewright.local.up_options import UpOptions

CLUSTER = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"
INIT = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n"

needs_mounts = pytest.mark.skipif(os.geteuid() != 0, reason="a file system of one's own needs root")


@pytest.fixture
def home() -> Iterator[Bench]:
    yield from bench()


def _up(home: Bench, *words: str, config: str = "", **environment: str) -> Ran:
    if config:
        (home.root / "kubeadm.yaml").write_text(config)
        words = (*words, "--config", str(home.root / "kubeadm.yaml"))
    return home.run("up", "--nodes", "0", *words, **environment)


def _failed(home: Bench, ran: Ran, code: int, *said: str, hint: str) -> None:
    """Require a message with all its parts, including the hint, and that nothing is running."""
    assert hint, "a message without a hint is none"
    assert ran.code == code, ran.err
    assert "Traceback" not in ran.err
    assert "internal error" not in ran.err
    missing = [part for part in said if part not in ran.err]
    assert missing == [], ran.err
    assert hint in ran.err[ran.err.index("hint: ") :]
    assert _running(home) == []


def _running(home: Bench) -> list[str]:
    return [line for line in leftovers(home.paths().root) if not line.startswith("file")]


# -- disks and directories


def _inside(home: Bench, mount: str, *then: str) -> Ran:
    """Run a shell script with the state directory on a separate file system, which ends with the script and whatever it started."""
    script = "\n".join(["set -e", f"mount {mount} {home.root}", "set +e", *then])
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", script], capture_output=True, text=True, timeout=900, check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def _command(home: Bench, *words: str) -> str:
    return " ".join(home.argv(*words))


@needs_mounts
def test_a_small_disk_is_refused_before_anything_is_written(home: Bench) -> None:
    ran = _inside(home, "-t tmpfs -o size=100m tmpfs", f"{_command(home, 'up')}; code=$?; ls -A {home.root}; exit $code")
    _failed(home, ran, 4, "disk: ", "MB left", "268 MB are needed", hint="run the same command again")
    assert ran.out == ""


@needs_mounts
@pytest.mark.parametrize("files", [8, 20, 45, 60, 68])
def test_a_disk_that_fills_up_during_the_start_is_reported(home: Bench, files: int) -> None:
    """A file system that only has room for this many files and directories, so that ENOSPC comes at a different place each time."""
    ran = _inside(
        home, f"-t tmpfs -o size=1g,nr_inodes={files} tmpfs", f"{_command(home, 'up', '--nodes', '0')}; code=$?; sleep 0.2; exit $code"
    )
    _failed(home, ran, 1, hint="free some space")
    assert any(said in ran.err.lower() for said in ("the disk is full", "no space left on device"))


@needs_mounts
def test_a_cluster_recovers_when_a_full_disk_has_space_again(home: Bench) -> None:
    """The cluster continues while its disk is full. What fails first depends on the space that etcd takes and frees in the meantime."""
    up = _command(home, "up", "--nodes", "0")
    ran = _inside(
        home,
        "-t tmpfs -o size=1g tmpfs",
        f"{up} >/dev/null 2>&1 || exit 90",
        f"rm {home.root}/one/machines/one-control-plane/kubernetes/manifests/kube-scheduler.yaml",
        f"head -c 2G /dev/zero > {home.root}/filler 2>/dev/null",
        f"{up} && exit 91",
        f"rm {home.root}/filler",
        f"{up} -o json || exit 92",
        f"{_command(home, 'down')} >&2",
    )
    assert ran.code == 0, ran.err
    assert "hint: " in ran.err
    assert "the disk is full" in ran.err or re.search(r"disk: .* MB left, 268 MB are needed", ran.err), ran.err
    assert json.loads(ran.out)["state"] == "Ready"
    assert _running(home) == []


@needs_mounts
def test_a_read_only_state_directory_is_reported(home: Bench) -> None:
    ran = _inside(home, "-t tmpfs -o ro tmpfs", _command(home, "up"))
    _failed(home, ran, 1, str(home.paths().root), "read-only", hint="choose another directory")


@needs_mounts
def test_a_state_directory_that_becomes_read_only_is_reported(home: Bench) -> None:
    ran = _inside(
        home,
        "-t tmpfs -o size=1g tmpfs",
        f"{_command(home, 'up', '--nodes', '0')} >/dev/null 2>&1 || exit 90",
        f"{_command(home, 'down', '--keep-data')} >/dev/null || exit 91",
        f"mount -o remount,ro {home.root}",
        _command(home, "up"),
    )
    _failed(home, ran, 1, "read-only", hint="remount it writable")


@needs_mounts
def test_a_state_directory_of_another_user_is_refused_and_not_changed(home: Bench) -> None:
    root = home.paths().root
    root.mkdir(mode=0o750)
    os.chown(root, 4711, 4711)

    ran = _up(home)

    _failed(home, ran, 1, f"{root} is a directory that belongs to user 4711", hint="choose another directory")
    assert (root.stat().st_mode & 0o777, list(root.iterdir())) == (0o750, [])


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_state_directory_that_others_may_enter_is_refused(home: Bench, mode: int) -> None:
    root = home.paths().root
    root.mkdir()
    root.chmod(mode)
    _failed(home, _up(home), 1, f"{root} is open to other users", f"its mode is {mode:04o}", hint=f"`chmod 0700 {root}`")
    assert list(root.iterdir()) == []


def test_a_state_directory_that_is_a_file_is_reported(home: Bench) -> None:
    home.paths().root.write_text("")
    _failed(home, _up(home), 1, str(home.paths().root), hint="namei -l")


def test_an_invalid_record_is_reported(home: Bench) -> None:
    home.paths().root.mkdir(mode=0o700)
    home.paths().record.write_text('{"machines": 7}')
    _failed(home, _up(home), 1, "cluster.json does not describe a cluster", hint="kubewright down --name one")
    assert home.run("down").code == 0
    assert leftovers(home.paths().root) == []


# -- binaries


def test_missing_binaries_are_reported_without_go_and_downloads(home: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, because a Go outside of PATH has to be hidden as well."""
    monkeypatch.setattr("kubewright.binaries.golang.INSTALLED", str(tmp_path / "go"))
    monkeypatch.setenv("PATH", str(tmp_path))
    nothing = sources_from({"KUBEWRIGHT_CACHE_DIR": str(tmp_path), "KUBEWRIGHT_OFFLINE": "1"})
    with pytest.raises(BinariesError) as caught:
        up(home.paths(), UpOptions(), sources=nothing, reporter=SilentReporter())
    error = caught.value
    said = f"{error.what} {error.detail} {error.remedy}"
    assert [part for part in ("kube-apiserver", "KUBEWRIGHT_OFFLINE", "go is not on PATH") if part not in said] == []
    assert leftovers(home.paths().root) == []


def test_a_missing_directory_of_binaries_is_reported(home: Bench, tmp_path: Path) -> None:
    ran = _up(home, "--binaries-dir", str(tmp_path / "nowhere"))
    _failed(
        home,
        ran,
        1,
        f"the directory of binaries {tmp_path / 'nowhere'} does not exist",
        hint="correct --binaries-dir or KUBEWRIGHT_BINARIES_DIR",
    )
    assert leftovers(home.paths().root) == []


def test_an_empty_directory_of_binaries_is_reported_with_each_missing_program(home: Bench, tmp_path: Path) -> None:
    """No module has been downloaded, so nothing can be built either."""
    empty = tmp_path / "empty"
    empty.mkdir()
    nothing_else = {"KUBEWRIGHT_OFFLINE": "1", "KUBEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), "GOMODCACHE": str(tmp_path / "modules")}
    ran = _up(home, "--binaries-dir", str(empty), **nothing_else)
    missing = [f"({name}): {empty / name} does not exist" for name in COMPONENTS]
    _failed(home, ran, 1, "no binary is available for etcd", *missing, hint="provide a directory that contains them (--binaries-dir")
    assert leftovers(home.paths().root) == []


def _elf(machine: int) -> bytes:
    """The first bytes of a 64-bit little-endian executable for a machine (e_machine of elf(5))."""
    return b"\x7fELF\x02\x01\x01" + bytes(9) + (2).to_bytes(2, "little") + machine.to_bytes(2, "little") + bytes(4096)


FOREIGN = {"x86_64": (183, "arm64"), "aarch64": (62, "amd64")}


def test_a_binary_for_another_architecture_is_reported(home: Bench, tmp_path: Path) -> None:
    for name in COMPONENTS:
        (tmp_path / name).symlink_to(program(name))
    machine, said = FOREIGN[os.uname().machine]
    (tmp_path / "kube-scheduler").unlink()
    (tmp_path / "kube-scheduler").write_bytes(_elf(machine))
    (tmp_path / "kube-scheduler").chmod(0o755)
    ran = _up(home, "--binaries-dir", str(tmp_path))
    _failed(home, ran, 1, f"{tmp_path}/kube-scheduler", said, hint="put kube-scheduler for linux/")


def test_a_binary_that_is_not_executable_code_is_reported(home: Bench, tmp_path: Path) -> None:
    for name in COMPONENTS:
        (tmp_path / name).symlink_to(program(name))
    (tmp_path / "etcd").unlink()
    (tmp_path / "etcd").write_text("<html>404</html>")
    (tmp_path / "etcd").chmod(0o755)
    ran = _up(home, "--binaries-dir", str(tmp_path))
    _failed(home, ran, 1, f"{tmp_path}/etcd is not an ELF program", hint="put etcd for linux/")


def test_an_incomplete_binary_is_reported(home: Bench, tmp_path: Path) -> None:
    for name in COMPONENTS:
        (tmp_path / name).symlink_to(program(name))
    (tmp_path / "kube-scheduler").unlink()
    (tmp_path / "kube-scheduler").write_bytes(Path(program("kube-scheduler")).read_bytes()[:1_000_000])
    (tmp_path / "kube-scheduler").chmod(0o755)
    ran = _up(home, "--binaries-dir", str(tmp_path))
    _failed(home, ran, 1, f"{tmp_path}/kube-scheduler", hint="replace kube-scheduler")


# -- components


@pytest.mark.parametrize(
    ("section", "component", "words"),
    [
        ("apiServer", "kube-apiserver", "unknown flag: --no-such-flag"),
        ("controllerManager", "kube-controller-manager", "unknown flag: --no-such-flag"),
        ("scheduler", "kube-scheduler", "unknown flag: --no-such-flag"),
    ],
)
def test_a_component_with_a_bad_flag_is_reported_with_its_last_output(home: Bench, section: str, component: str, words: str) -> None:
    ran = _up(home, config=f"{CLUSTER}{section}:\n  extraArgs:\n  - {{name: no-such-flag, value: '1'}}\n")
    _failed(home, ran, 1, f"{component} does not stay up", words, hint="extraArgs")

    (home.root / "kubeadm.yaml").write_text(CLUSTER)
    ran = home.run("up", "--config", str(home.root / "kubeadm.yaml"))
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("no-such-flag", "1", "flag provided but not defined: -no-such-flag"),
        ("election-timeout", "1", "--election-timeout[1ms] should be at least"),
    ],
)
def test_an_etcd_with_a_bad_flag_is_reported_with_its_last_output(home: Bench, name: str, value: str, words: str) -> None:
    ran = _up(home, config=f"{CLUSTER}etcd:\n  local:\n    extraArgs:\n    - {{name: {name}, value: '{value}'}}\n")
    _failed(home, ran, 1, "etcd does not stay up", words, hint="extraArgs")


def test_a_volume_that_a_process_cannot_have_is_refused_with_its_field_path(home: Bench) -> None:
    """A process sees no mounts: it cannot have a path that differs inside and outside, and that no argument names."""
    volume = "  extraVolumes:\n  - {name: roots, hostPath: /usr/share/ca-certificates, mountPath: /etc/ssl/certs, readOnly: true}\n"
    ran = _up(home, config=f"{CLUSTER}scheduler:\n{volume}")
    _failed(home, ran, 1, "kube-scheduler", "volumeMounts[1].mountPath", "/etc/ssl/certs", hint="extraVolumes")


def test_damaged_data_is_reported_with_the_last_output_of_etcd_and_kept(home: Bench) -> None:
    assert _up(home).code == 0
    assert home.run("down", "--keep-data").code == 0
    member = Path(home.paths().layout("one-control-plane").etcd_data) / "member"
    database = member / "snap" / "db"
    database.write_bytes(b"garbage" + bytes(database.stat().st_size - 7))

    ran = home.run("up")

    assert ran.code == 1, ran.err
    assert "etcd does not stay up" in ran.err
    assert database.exists()


def test_a_certificate_of_another_ca_is_reported(home: Bench) -> None:
    assert _up(home).code == 0
    pki = Path(home.paths().layout("one-control-plane").pki)
    for name in ("ca.crt", "ca.key"):
        shutil.copy(pki / "etcd" / name, pki / name)

    ran = home.run("up")

    assert ran.code == 1
    assert "apiserver" in ran.err
    assert "Traceback" not in ran.err
    assert home.status()["state"] == "Ready", "what ran before goes on"


# -- documents


def test_an_invalid_document_is_refused_with_every_field_error(home: Bench) -> None:
    config = (
        f"{CLUSTER}kubernetesVersion: v1.36.3\nencryptionAlgorithm: ROT13\nnetworking: {{serviceSubnet: 10.96.0.0/40, dnsDomain: -x}}\n"
        f"---\n{INIT}nodeRegistration: {{taints: [{{key: 'a b', effect: Sometimes}}]}}\n"
    )
    ran = _up(home, config=config)
    _failed(home, ran, 3, "encryptionAlgorithm", "networking.serviceSubnet", "networking.dnsDomain", hint="correct the fields")
    assert leftovers(home.paths().root) == []


def test_a_document_that_sets_paths_is_refused_with_the_field_path(home: Bench) -> None:
    config = (
        f"{CLUSTER}certificatesDir: /etc/kubernetes/pki\netcd: {{local: {{dataDir: /var/lib/etcd}}}}\n"
        f"---\n{INIT}localAPIEndpoint: {{advertiseAddress: 10.0.0.1, bindPort: 7443}}\n"
        "nodeRegistration: {name: mine, criSocket: unix:///run/x.sock}\n"
    )
    ran = _up(home, config=config)
    _failed(
        home,
        ran,
        3,
        "certificatesDir: Forbidden",
        "etcd.local.dataDir: Forbidden",
        "localAPIEndpoint.advertiseAddress: Forbidden",
        "localAPIEndpoint.bindPort: Forbidden",
        "nodeRegistration.name: Forbidden",
        "nodeRegistration.criSocket: Forbidden",
        hint="leave these fields out",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [("kind: [", "--config is not YAML"), ("\x00", "--config is not YAML"), ("kind: Pod\napiVersion: v1\n", 'apiVersion "v1"')],
)
def test_an_unusable_configuration_is_refused(home: Bench, text: str, said: str) -> None:
    _failed(home, _up(home, config=text), 3, said, hint="ClusterConfiguration")
    assert leftovers(home.paths().root) == []


def test_phases_that_local_clusters_lack_may_be_skipped_and_warnings_appear_once(home: Bench) -> None:
    config = f"{INIT}skipPhases: [upload-certs, show-join-command, addon/kube-proxy]\n---\n{CLUSTER}kubernetesVersion: stable-1\n"
    ran = _up(home, config=config)
    assert ran.code == 0, ran.err
    warnings = [line for line in ran.err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == len(set(warnings))
    with home.client() as api:
        found = json.loads(api.raw("GET", "/apis/apps/v1/namespaces/kube-system/daemonsets").body)["items"]
    assert found == []


# -- ports


def test_preflight_checks_every_port_of_the_table(home: Bench) -> None:
    """A port that preflight does not check would be reported only by a component."""
    from kubewright.local.cluster.preflight import PORT_USERS

    assert set(PORT_USERS) == {one.name for one in fields(Ports)}


@contextlib.contextmanager
def _stolen(home: Bench, component: str, port: int) -> Iterator[None]:
    """Kill a component and listen on its port; the daemon is stopped meanwhile, so that it cannot start the component first."""
    address, daemon = address_of(home.paths()), home.daemon().pid
    pid = home.components()[component]["pid"]
    with contextlib.ExitStack() as opened:
        os.kill(daemon, signal.SIGSTOP)
        try:
            os.kill(pid, signal.SIGKILL)

            def taken() -> bool:
                with contextlib.suppress(OSError):
                    opened.enter_context(socket.create_server((address, port)))
                    return True
                return False

            eventually(taken, f"port {port} to be free")
        finally:
            os.kill(daemon, signal.SIGCONT)
        yield


def test_a_port_taken_from_a_running_cluster_is_reported_by_the_component(home: Bench) -> None:
    assert _up(home).code == 0
    with _stolen(home, "kube-scheduler", 10259):
        ran = home.run("up")
        assert ran.code == 1, ran.err
        assert "kube-scheduler does not stay up" in ran.err
        assert "address already in use" in ran.err
    assert home.run("up").code == 0
    eventually(home.ready, "the scheduler to be back")
