"""Damaged files, given to commands that read them: they end in an error of ours, never exit 70, and leave no incomplete file.

KUBEWRIGHT_DIFFERENTIAL_EXAMPLES is the number of examples, KUBEWRIGHT_DIFFERENTIAL_SEED repeats a run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from accepted import DRY
from arena import CONFIG, SOURCE, Answer, File, Files, Request, Worker, alone
from certs_comparison import INIT
from fuzzing import SEED, examples
from hostile_documents import hostile
from hypothesis import given, note, seed
from hypothesis import strategies as st
from machine_files import describe
from machine_strategies import PATCHES

from kubewright.base.errors import KubewrightError

CLUSTER = INIT.replace("nodeReg", "patches: {directory: " + PATCHES + "}\nnodeReg") + "encryptionAlgorithm: ECDSA-P256\n"
_WITH = ("--config", CONFIG)
PREPARED = tuple(("init", "phase", *words, *_WITH) for words in (("certs", "all"), ("kubeconfig", "all"), ("control-plane", "all")))
_PATCH = f"{PATCHES}/kube-apiserver+json.yaml"
_REQUESTS = ("certs", "generate-csr", *_WITH, "--cert-dir", "/srv/csr/pki", "--kubeconfig-dir", "/srv/csr")
READERS = (
    ("config", "validate", *_WITH),
    ("config", "migrate", "--old-config", CONFIG),
    ("config", "images", "list", *_WITH),
    ("init", "phase", "certs", "all", *_WITH),
    ("init", "phase", "kubeconfig", "all", *_WITH),
    ("init", "phase", "control-plane", "all", *_WITH),
    ("init", "phase", "addon", "coredns", "--print-manifest", *_WITH),
    ("init", "--dry-run", "--ignore-preflight-errors=all", *_WITH),
    ("certs", "check-expiration", *_WITH),
    ("certs", "check-expiration"),
    ("certs", "renew", "all", *_WITH),
    _REQUESTS,
    ("kubeconfig", "user", "--client-name", "ada", *_WITH),
    ("token", "list", "--kubeconfig", "/etc/kubernetes/admin.conf"),
)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with alone() as made:
        yield made


@pytest.fixture(scope="module")
def machine(worker) -> Mapping[str, str]:
    """The files of a machine, a patch, and keys with requests."""
    made = worker.run(Request((*PREPARED, _REQUESTS), {CONFIG: CLUSTER, _PATCH: '[{"op": "remove", "path": "/spec/priority"}]'}))
    assert made.code == 0
    files = {path: file.content.decode() for path, file in made.files.items() if file.kind == "file"}
    assert len(files) > 50
    return Files(files)


_GARBAGE = st.sampled_from(
    ("", "\x00", "\n", "{", "[" * 3000, "- " * 3000, "-----BEGIN CERTIFICATE-----\n", "&a [*a]", "\udcff\udcfe", "%", "null", "0")
)


@st.composite
def damaged(draw: st.DrawFn, text: str, others: tuple[str, ...]) -> str:
    """A text with some damage."""
    at = draw(st.integers(0, len(text)))
    match draw(st.sampled_from(("cut", "insert", "replace", "double", "other", "change"))):
        case "cut":
            return text[:at]
        case "insert":
            return text[:at] + draw(_GARBAGE) + text[at:]
        case "replace":
            return draw(_GARBAGE)
        case "double":
            return text + text[at:]
        case "other":
            return draw(st.sampled_from(others))
    return text[:at] + draw(st.characters()).encode(errors="replace").decode() + text[at + 1 :]


@seed(SEED)
@examples(150)
@given(data=st.data())
def test_damaged_files_give_a_proper_error_and_leave_nothing_half_done(data, worker, machine):
    path = data.draw(st.sampled_from((*sorted(machine), *[CONFIG, _PATCH] * 10)))
    files = {**machine, path: data.draw(damaged(machine[path], tuple(sorted(set(machine.values())))))}
    argv = data.draw(st.sampled_from(READERS))
    note(f"{' '.join(argv)}\n{path}: {files[path]!r}")
    made = worker.run(Request([argv], files, {"KUBEADM_INIT_DRYRUN_DIR": DRY}))
    note(made.err)
    assert made.code in {0, 1}
    assert made.code == 0 or "error: " in made.err
    assert half_done(made, files) == []


def half_done(made: Answer, files: Mapping[str, str]) -> list[str]:
    """Files that a command wrote incompletely; files that it did not touch may be as damaged as before."""
    written = {path: file for path, file in made.files.items() if file.kind == "file" and file.content != given_text(files, path)}
    return [path for path, file in written.items() if Path(path).name.startswith(".") or not whole(path, file, made.files)]


def given_text(files: Mapping[str, str], path: str) -> bytes | None:
    return files[path].encode(errors="surrogateescape") if path in files else None


def whole(path: str, file: File, others: Mapping[str, File]) -> bool:
    key = path.removesuffix(".pub").removesuffix(".crt") + ".key"
    beside = {key: others[key]} if key in others and not path.endswith(".crt") else {}
    try:
        describe({**beside, path: file})
    except (KubewrightError, KeyError, UnicodeDecodeError):
        return False
    return file.content != b""


@seed(SEED)
@examples(60)
@given(
    token=st.text(max_size=30) | st.from_regex(r"[a-z0-9]{5,7}\.[a-z0-9]{15,17}", fullmatch=True),
    verb=st.sampled_from(("create", "delete")),
)
def test_any_text_for_a_token_gives_a_proper_error(token, verb, worker):
    made = worker.run(Request([["token", verb, "--kubeconfig", "/none", "--", token]]))
    note(made.err)
    assert made.code == 1
    assert "error: " in made.err


@pytest.mark.parametrize("digits", [4301, 100_000])
@pytest.mark.parametrize("form", ['"{}"', "{}", "-{}", "0x{}", "{}.5", "{}e9"])
def test_a_text_of_many_digits_is_migrated(form, digits, worker):
    text = f"{HEAD}kubernetesVersion: v1.36.3\nclusterName: {form.format('9' * digits)}\n"
    made = worker.run(Request([("config", "migrate", "--old-config", CONFIG)], {CONFIG: text}))
    assert made.code == 0


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
HEAD = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"
HOSTILE = {
    "an alias bomb": lambda: HEAD + BOMB,
    "an alias bomb of maps": lambda: HEAD + BOMB.replace("[x", "[{y: z}").replace(", x", ", {y: z}"),
    "deep lists": lambda: HEAD + "x: " + "[" * 100_000,
    "deep maps": lambda: HEAD + "x: " + "{a: " * 100_000,
    "deep indentation": lambda: HEAD + "".join(f"{' ' * depth}a:\n" for depth in range(3000)),
    "50 MB in one text": lambda: HEAD + "clusterName: " + "x" * 50_000_000 + "\n",
    "50 MB of lines": lambda: HEAD + "apiServer:\n  certSANs:\n" + "  - a.example.com\n" * 2_800_000,
    "50 MB of documents": lambda: (HEAD + "---\n") * 800_000,
    "50 MB of one line of braces": lambda: "{" * 50_000_000,
    "50 MB of nothing": lambda: "\n" * 50_000_000,
    "many anchors": lambda: HEAD + "".join(f"k{number}: &a{number} x\n" for number in range(30_000)),
    "a long number": lambda: HEAD + "x: " + "9" * 2_000_000 + "\n",
    "thousands of long wrong names by aliases": lambda: f"{HEAD}apiServer:\n  certSANs:\n  - &x {'_' * 30_000}\n" + "  - *x\n" * 4000,
    "thousands of wrong names": lambda: f"{HEAD}apiServer:\n  certSANs:\n" + "".join(f"  - a_{number}\n" for number in range(200_000)),
    "thousands of unknown gates": lambda: f"{HEAD}featureGates:\n" + "".join(f"  a{number}: true\n" for number in range(100_000)),
    "thousands of unknown kinds": lambda: "".join(f"apiVersion: a/v1\nkind: ResetConfiguratio{number}\n---\n" for number in range(9000)),
    "a hundred thousand documents": lambda: "a\n---\n" * 400_000,
    "a hundred thousand directives": lambda: "".join(f"%TAG !a{number}! x\n" for number in range(150_000)) + f"---\n{HEAD}",
    "a long key above many lists": lambda: f'{HEAD}? "{"k" * 1_000_000}"\n: [{"[], " * 200_000}]\n',
    "a long fraction of a second": lambda: f"{HEAD}caCertificateValidityPeriod: -1.{'0' * 2_900_000}s\n",
    "a long key": lambda: HEAD + "x" * 2_000_000 + ": 1\n",
}
CPU_SECONDS, MEBIBYTES, MOST_SHOWN = 20.0, 200, 100_000


_CHILD = """
import sys
from kubewright.cli.main import main
code = main(sys.argv[1:])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
sys.exit(code)
"""
"""The peak of a forked process includes its parent's memory; that of this line does not."""


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_files_give_a_clear_error_quickly_and_with_little_memory(what, tmp_path):
    code, told, kibibytes = judged(HOSTILE[what](), tmp_path)
    assert (code, told.partition(" ")[0]) == (1, "error:")
    assert kibibytes < MEBIBYTES * 1024


@seed(SEED)
@examples(10)
@given(text=hostile(), command=st.sampled_from((("validate", "--config"), ("migrate", "--old-config"), ("images", "list", "--config"))))
def test_any_documents_below_the_limit_are_checked_quickly(text, command, tmp_path_factory):
    note(f"{text[:2000]}\n… {len(text)} characters")
    code, told, _ = judged(text, tmp_path_factory.mktemp("hostile"), *command)
    assert code in {0, 1}
    assert code == 0 or "error: " in told


def judged(text: str, directory: Path, *command: str) -> tuple[int, str, int]:
    """Give a file to a command, and return its exit code, its stderr, and its memory in KiB. It may neither hang nor print much."""
    path, out, err = (directory / name for name in ("kubeadm.yaml", "stdout", "stderr"))
    path.write_text(text)
    with out.open("w") as stdout, err.open("w") as stderr:
        argv = [sys.executable, "-c", _CHILD, "config", *(command or ("validate", "--config")), str(path)]
        process = subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(SOURCE)}, stdout=stdout, stderr=stderr)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    told = err.read_text()
    assert len(told) < MOST_SHOWN
    assert used.ru_utime + used.ru_stime < CPU_SECONDS
    return process.returncode, told, int(out.read_text().splitlines()[-1])
