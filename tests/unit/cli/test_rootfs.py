"""`--rootfs`: commands in another root directory, and errors if that is impossible."""

from __future__ import annotations

import ast
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kubewright
import other_user
from kubewright.base import yaml
from kubewright.cli import rootfs

CONFIG = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 10.98.0.11}
nodeRegistration: {criSocket: "unix:///var/run/containerd/containerd.sock"}
patches: {directory: /patches}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
encryptionAlgorithm: ECDSA-P256
apiServer: {extraArgs: [{name: no-such-flag, value: x}]}
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its root directory")


def run(*argv: str, **more: object):
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(kubewright.__file__).parents[1])}
    words = [sys.executable, "-m", "kubewright", *argv]
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=600, env=environment, **more)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    made = tmp_path_factory.mktemp("root")
    (made / "kubeadm.yaml").write_text(CONFIG)
    (made / "patches").mkdir(mode=0o755)
    (made / "patches" / "etcd+json.json").write_text('[{"op": "add", "path": "/metadata/labels/patched", "value": "yes"}]')
    return made


COMMANDS = (
    "init phase certs all --config /kubeadm.yaml",
    "init phase kubeconfig all --config /kubeadm.yaml",
    "init phase etcd local --config kubeadm.yaml",
    "init --plan --config /kubeadm.yaml",
    "init --dry-run --config /kubeadm.yaml -o json",
    "certs check-expiration --config /kubeadm.yaml -o yaml",
    "certs renew admin.conf --config /kubeadm.yaml",
    "certs generate-csr --cert-dir /csr --kubeconfig-dir /csr --config /kubeadm.yaml",
    "kubeconfig user --client-name me --config /kubeadm.yaml",
    "config migrate --old-config /kubeadm.yaml --new-config /new.yaml",
    "reset --plan --delete-node --cleanup-cni --cleanup-packet-filter",
    "reset phase remove-etcd-member --dry-run",
    "reset phase preflight --force",
)


@needs_root
def test_commands_work_in_an_empty_root_directory(root):
    """One test, because each command uses what the previous ones made."""
    failed = {}
    for command in COMMANDS:
        done = run(*command.split(), f"--rootfs={root}")
        if done.returncode != 0:
            failed[command] = done.stdout[-300:] + done.stderr[-600:]
    assert failed == {}
    made = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert {"etc/kubernetes/pki/ca.key", "etc/kubernetes/admin.conf", "csr/apiserver.csr", "new.yaml"} <= made
    manifest = yaml.load((root / "etc/kubernetes/manifests/etcd.yaml").read_bytes())
    assert manifest["metadata"]["labels"]["patched"] == "yes"
    asked = run("token", "list", "--kubeconfig", "/etc/kubernetes/admin.conf", f"--rootfs={root}")
    assert (asked.returncode, "mount /proc" in asked.stderr) == (1, True)


def in_a_namespace(script: str, root: Path, *argv: str):
    """Run a command in a mount namespace, which a script prepares with the root directory as `$0`. The mounts end with the process."""
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f'{script}\nexec "$@"', str(root)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(kubewright.__file__).parents[1])}
    words += [sys.executable, "-m", "kubewright", *argv, f"--rootfs={root}"]
    return subprocess.run(words, check=False, capture_output=True, timeout=600, env=environment)


PROC = 'mount -t proc proc "$0/proc"'
BIND = 'mount --bind "$0/../precious" "$0/var/lib/kubelet/pods/volume"'


@pytest.fixture
def member(tmp_path):
    """A machine with keys, and a pod's volume in which another directory can be mounted."""
    for name in ("proc", "etc/kubernetes/manifests", "etc/kubernetes/pki/etcd", "var/lib/kubelet/pods/volume"):
        (tmp_path / "root" / name).mkdir(parents=True)
    for name in ("etc/kubernetes/admin.conf", "etc/kubernetes/pki/ca.key", "etc/kubernetes/pki/etcd/ca.key", "var/lib/kubelet/config.yaml"):
        (tmp_path / "root" / name).write_text("")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("")
    return tmp_path / "root"


def left(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for place in ("etc/kubernetes", "var/lib/kubelet") for path in (root / place).rglob("*"))


CLEAN = ["etc/kubernetes/manifests", "etc/kubernetes/pki"]


@needs_root
def test_reset_in_another_root_unmounts_its_file_systems_and_empties_all(member):
    done = in_a_namespace(f"{PROC}\n{BIND}", member, "reset", "--force", "-o", "json")
    assert (done.returncode, left(member)) == (0, CLEAN), done.stderr
    changed = [row["target"] for row in json.loads(done.stdout)]
    assert "mount /var/lib/kubelet/pods/volume" in changed
    assert (member.parent / "precious/file").exists()


@needs_root
def test_no_directory_is_removed_without_a_table_of_mounts(member):
    """Whatever may be mounted is not removed. With the table of mounts, the same command removes the rest."""
    done = in_a_namespace(BIND, member, "reset", "--force")
    assert done.returncode == 1
    error = done.stderr.decode()
    assert "internal error" not in error
    assert "/var/lib/kubelet/pods is left as it is" in error
    assert error.count("hint: mount /proc, with --rootfs DIR below that directory (`mount -t proc proc DIR/proc`)") == 1
    assert (member.parent / "precious/file").exists()
    kept = ["etc/kubernetes/pki/etcd", "etc/kubernetes/pki/etcd/ca.key", "var/lib/kubelet/pods", "var/lib/kubelet/pods/volume"]
    assert left(member) == sorted([*CLEAN, *kept])
    assert in_a_namespace(PROC, member, "reset", "--force").returncode == 0
    assert left(member) == CLEAN


@needs_root
def test_a_bind_mount_that_stays_is_not_emptied(member):
    """It is busy: a process of another namespace of mounts cannot be seen, so something is held open in ours."""
    hold = 'exec 3<"$0/var/lib/kubelet/pods/volume/file"'
    done = in_a_namespace(f"{PROC}\n{BIND}\n{hold}", member, "reset", "--force")
    assert done.returncode == 1
    assert b"a file system is mounted at /var/lib/kubelet/pods/volume" in done.stderr
    assert (member.parent / "precious/file").exists()
    assert left(member) == [*CLEAN, "var/lib/kubelet/pods", "var/lib/kubelet/pods/volume"]


@needs_root
def test_names_that_are_not_utf_8_are_reported_and_removed(member):
    """Of files, directories, a manifest, CNI and a mount, in an environment that knows no encoding but ASCII."""
    odd = os.fsdecode(b"caf\xe9")
    for place in ("var/lib/kubelet/pods", "etc/cni/net.d", "etc/kubernetes/manifests"):
        (member / place / odd).mkdir(parents=True)
    (member / f"etc/cni/net.d/{odd}.conf").write_text("")
    script = f"export LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0\n{PROC}\n{BIND.replace('volume', odd)}"
    for form, words in (("yaml", ["--plan"]), ("json", ["--force", "--dry-run"]), ("text", ["--force"])):
        done = in_a_namespace(script, member, "reset", *words, "--cleanup-cni", "-o", form)
        assert (done.returncode, b"internal error" in done.stderr) == (0, False), done.stderr
        assert (rb"caf\\xe9" if form == "json" else rb"caf\xe9") in done.stdout
        assert b"caf\xe9" not in done.stdout + done.stderr
    assert left(member) == CLEAN
    assert (member.parent / "precious/file").exists()


CHECKS = (
    "preflight init --config /kubeadm.yaml",
    "join phase preflight 127.0.0.1:1 --token abcdef.0123456789abcdef --discovery-token-unsafe-skip-ca-verification",
    "init --plan --config /kubeadm.yaml",
)


@needs_root
@pytest.mark.parametrize("command", CHECKS)
def test_nothing_is_read_outside_of_a_root_directory_with_proc(member, command):
    (member / "kubeadm.yaml").write_text(CONFIG.replace("patches: {directory: /patches}\n", ""))
    done = in_a_namespace(PROC, member, *command.split())
    said = done.stdout.decode() + done.stderr.decode()
    assert done.returncode in {0, 1, 4}, said
    assert "internal error" not in said
    assert "unknown encoding" not in said


@needs_root
def test_errors_in_another_root_directory_are_proper_errors(root):
    (root / "broken.yaml").write_text("kind: [\n")
    done = run("init", "phase", "certs", "ca", "--config", "/broken.yaml", "--rootfs", str(root))
    assert (done.returncode, done.stdout) == (1, "")
    assert "/broken.yaml" in done.stderr
    assert "internal error" not in done.stderr


@needs_root
@pytest.mark.parametrize("place", ["/no/such/directory", "/etc/passwd"])
def test_an_invalid_root_directory_is_reported(place):
    done = run("token", "generate", f"--rootfs={place}")
    assert (done.returncode, done.stdout, done.stderr.count("cannot change the root directory to ")) == (1, "", 1)


def test_an_ordinary_user_gets_a_hint_to_be_root(readable):
    user = other_user.uid()
    done = subprocess.run(
        [other_user.python(user), "-m", "kubewright", "token", "generate", f"--rootfs={readable}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": other_user.library(user, readable / "library")},
        **other_user.becoming(user),
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "only root may do that" in done.stderr


def test_modules_imported_by_functions_are_loaded_before():
    script = (
        "import sys; from kubewright.cli import rootfs; rootfs.preload('kubewright.cli.handlers.operations:init'); "
        "wanted = ['kubewright.kube.strategic', 'jsonpatch', 'jsonpointer', 'kubewright.base.masking', 'concurrent.futures.thread']; "
        "print([name for name in wanted if name not in sys.modules], 'aiohttp' in sys.modules, 'kubewright.local' in sys.modules)"
    )
    environment = {"PYTHONPATH": str(Path(kubewright.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=600, env=environment)
    assert done.stdout == "[] False False\n"


def late_imports(path: Path) -> set[str]:
    """The modules that functions of a file import."""
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    nodes = [node for function in functions for node in ast.walk(function)]
    plain = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_the_list_has_all_third_party_imports_of_functions():
    """Modules that are imported in functions must be in the list: only what was loaded before works in another root."""
    package = Path(kubewright.__file__).parent
    left_out = (*rootfs.NEVER, *rootfs.DAEMONS)
    files = [package / Path(*name.split(".")[1:]) for name in rootfs.modules("kubewright", left_out=left_out)]
    sources = [path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py" for path in files]
    late = set().union(*map(late_imports, sources))
    named = {name for one in (*rootfs.LATE, "importlib", "sys", "os") for name in itertools.accumulate(one.split("."), "{}.{}".format)}
    assert len(sources) > 100
    assert {name for name in late if not name.startswith("kubewright")} - named == set()
