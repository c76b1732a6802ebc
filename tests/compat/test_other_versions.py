"""Clusters of other minor releases than our own, compared with kubeadm of our own version and with kubeadm of theirs.

kubewright renders what kubeadm v1.36.3 renders for a release. Every difference from the kubeadm of that release is a
row of `ROWS` with its reason; a difference without a row fails, and so does a row that is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from arena import Answer, Request, Worker, _worker
from oracles import KUBEADMS, kubeadm_of

from kubewright.base import yaml
from kubewright.base.versions import OWN

CASES = Path(__file__).parents[1] / "data" / "reference" / "cases"
CONFIG = "/srv/kubeadm.yaml"
DRY_RUN = "/srv/dry"
OTHERS = ("1.35", "1.37")
OURS = "ours"

NAMES = ("ipv4-minimal", "extra-everything", "external-etcd", "dual-stack", "ipv6-only", "custom-paths-sans", "structured-authz")
"""Reference cases whose configuration is used, with another version and faster keys."""

FILES = ("etcd.yaml", "kube-apiserver.yaml", "kube-controller-manager.yaml", "kube-scheduler.yaml", "config.yaml", "instance-config.yaml",
         "kubeadm-flags.env")  # fmt: skip
IMAGES = "images"
PRINTED = "printed"
ADD_ONS = ("coredns", "kube-proxy")
NO_FILES = "preflight wait-control-plane upload-config mark-control-plane bootstrap-token kubelet-finalize addon show-join-command".replace(
    " ", ","
)
"""Phases of a dry run that write no files; some of them wait half a minute for names that cannot be resolved."""


@dataclass(frozen=True)
class Row:
    """Text that the kubeadm of a release writes for a cluster of a release, and that differs from ours.

    `theirs` is a regular expression; its matches are replaced by `ours`, in our own text as well if only this makes
    the two equal.
    """

    kubeadm: str
    cluster: str
    file: str
    theirs: str
    ours: str
    reason: str


_ONE_TAG = "kubeadm v1.36.3 has one version of it for all releases that it deploys"
_FLEX_MOUNT = r"    - mountPath: /usr/libexec/kubernetes/kubelet-plugins/volume/exec\n      name: flexvolume-dir\n"
_FLEX_VOLUME = (
    r"  - hostPath:\n      path: /usr/libexec/kubernetes/kubelet-plugins/volume/exec\n"
    r"      type: DirectoryOrCreate\n    name: flexvolume-dir\n"
)
_FLEX = "kubeadm mounts no flex volumes any more since v1.36"
_MODE = "adopted for clusters of v1.37: kube-proxy warns where no mode is written down"
_PRINTED_MODE = "what is printed is for our own version; v1.37 writes the mode down"
_PROBES = "kubeadm's probes miss a secure-port that a user gives"
ROWS = (
    Row("1.35", "1.35", "etcd.yaml", r"/etcd:3\.6\.6-0\n", "/etcd:3.6.8-0\n", _ONE_TAG),
    Row("1.35", "1.35", IMAGES, r"/etcd:3\.6\.6-0\n", "/etcd:3.6.8-0\n", _ONE_TAG),
    Row("1.35", "1.35", IMAGES, r"/coredns:v1\.13\.1\n", "/coredns:v1.14.2\n", _ONE_TAG),
    Row("1.35", "1.35", IMAGES, r"/pause:3\.10\.1\n", "/pause:3.10.2\n", _ONE_TAG),
    Row("1.35", "1.35", "coredns", r"/coredns:v1\.13\.1\n", "/coredns:v1.14.2\n", _ONE_TAG),
    Row("1.35", "1.35", "kube-controller-manager.yaml", _FLEX_MOUNT, "", _FLEX),
    Row("1.35", "1.35", "kube-controller-manager.yaml", _FLEX_VOLUME, "", _FLEX),
    Row("1.36", "1.37", "kube-proxy", r'mode: ""\n', "mode: iptables\n", _MODE),
    Row("1.37", "1.37", "etcd.yaml", r"/etcd:3\.7\.0-0\n", "/etcd:3.6.8-0\n", _ONE_TAG),
    Row("1.37", "1.37", IMAGES, r"/etcd:3\.7\.0-0\n", "/etcd:3.6.8-0\n", _ONE_TAG),
    Row("1.37", "1.37", IMAGES, r"/coredns:v1\.14\.6\n", "/coredns:v1.14.2\n", _ONE_TAG),
    Row("1.37", "1.37", "coredns", r"/coredns:v1\.14\.6\n", "/coredns:v1.14.2\n", _ONE_TAG),
    Row("1.37", PRINTED, PRINTED, r"mode: iptables\n", 'mode: ""\n', _PRINTED_MODE),
    *(
        Row(
            kubeadm, cluster, "kube-controller-manager.yaml", r"(--secure-port=(\d+)\n[\s\S]*containerPort: )10257\n", r"\g<1>\2\n", _PROBES
        )
        for kubeadm, cluster in (("1.35", "1.35"), ("1.36", "1.35"), ("1.36", "1.37"), ("1.37", "1.37"))
    ),
)


@pytest.fixture(scope="module")
def machines() -> Iterator[Mapping[str, Worker]]:
    """A machine for each kubeadm, and one for kubewright."""
    with ExitStack() as stack:
        programs = {line: kubeadm_of(line) for line in KUBEADMS} | {OURS: OURS}
        yield {name: stack.enter_context(_worker(program)) for name, program in programs.items()}


def ask(worker: Worker, *commands: list[str], text: str = "") -> Answer:
    worker.send(Request(commands, {CONFIG: text} if text else {}, {"KUBEADM_INIT_DRYRUN_DIR": DRY_RUN}, stops=False))
    return worker.receive()


def configuration(case: str, version: str) -> str:
    documents = [document.value for document in yaml.load_all((CASES / case / "kubeadm.yaml").read_text())]
    for document in documents:
        if document["kind"] == "ClusterConfiguration":
            document |= {"kubernetesVersion": version, "encryptionAlgorithm": "ECDSA-P256"}
    return yaml.dump_all(documents)


def rendered(worker: Worker, text: str) -> dict[str, str]:
    """The results of a program for a configuration: files of the machine, images, add-ons."""
    answer = ask(
        worker,
        ["init", "--dry-run", f"--skip-phases={NO_FILES}", f"--config={CONFIG}"],
        ["config", "images", "list", f"--config={CONFIG}"],
        *(["init", "phase", "addon", name, "--print-manifest", f"--config={CONFIG}"] for name in ADD_ONS),
        text=text,
    )
    assert [run.code for run in answer.runs] == [0] * 4, answer.err
    files = {name: answer.files[f"{DRY_RUN}/{name}"].content.decode() for name in FILES if f"{DRY_RUN}/{name}" in answer.files}
    add_ons = {name: normal(run.out) for name, run in zip(ADD_ONS, answer.runs[2:], strict=True)}
    return {**files, IMAGES: answer.runs[1].out, **add_ons}


def normal(text: str) -> str:
    """Write documents without empty values, some of which Go leaves out."""
    return yaml.dump_all([without_empty(document.value) for document in yaml.load_all(text)])


def without_empty(value: object) -> object:
    if isinstance(value, dict):
        return {key: found for key, part in value.items() if (found := without_empty(part)) not in ({}, [], "", None, False)}
    return [without_empty(part) for part in value] if isinstance(value, list) else value


def compare(key: tuple[str, str], theirs: Mapping[str, str], mine: Mapping[str, str], used: set[Row]) -> None:
    """Compare the results of the kubeadm of a release and of kubewright for a cluster of a release, except for rows."""
    their, our = dict(theirs), dict(mine)
    for row in ROWS:
        if (row.kubeadm, row.cluster) == key and re.search(row.theirs, their.get(row.file, "")):
            used.add(row)
            their[row.file] = re.sub(row.theirs, row.ours, their[row.file])
            our[row.file] = re.sub(row.theirs, row.ours, our[row.file])
    assert our == their


@pytest.mark.parametrize("cluster", OTHERS)
@pytest.mark.parametrize("kubeadm", ["our version", "its version"])
def test_every_difference_has_a_row_and_every_row_is_needed(machines, kubeadm, cluster):
    key = (OWN.line if kubeadm == "our version" else cluster, cluster)
    used: set[Row] = set()
    for case in NAMES:
        text = configuration(case, KUBEADMS[cluster])
        theirs, mine = rendered(machines[key[0]], text), rendered(machines[OURS], text)
        assert len(theirs) == len(FILES) + 3 - (case == "external-etcd")
        compare(key, theirs, mine, used)
    assert {row for row in ROWS if (row.kubeadm, row.cluster) == key} == used


COMMANDS = (
    "init-defaults",
    "join-defaults",
    "reset-defaults",
    "upgrade-defaults",
    "init-defaults --component-configs=KubeletConfiguration,KubeProxyConfiguration",
)
VERSION = re.compile(r"^kubernetesVersion: .*$", re.MULTILINE)
"""Every kubeadm prints the first patch release of its own minor release."""


@pytest.mark.parametrize("line", KUBEADMS)
def test_printed_defaults_equal_those_of_every_release(machines, line):
    commands = [["config", "print", *words.split()] for words in COMMANDS]
    theirs, mine = ask(machines[line], *commands), ask(machines[OURS], *commands)
    assert [run.code for run in (*theirs.runs, *mine.runs)] == [0] * 10
    used: set[Row] = set()
    for their, our in zip(theirs.runs, mine.runs, strict=True):
        compare((line, PRINTED), {PRINTED: VERSION.sub("", their.out)}, {PRINTED: VERSION.sub("", our.out)}, used)
    assert {row for row in ROWS if (row.kubeadm, row.cluster) == (line, PRINTED)} == used


OLD = (Path(__file__).parents[1] / "data" / "reference" / "config-migrate" / "v1beta3-input.yaml").read_text()


@pytest.mark.parametrize("line", KUBEADMS)
def test_old_documents_are_migrated_as_by_every_kubeadm_that_supports_them(machines, line):
    command = ["config", "migrate", f"--old-config={CONFIG}"]
    theirs, mine = ask(machines[line], command, text=OLD), ask(machines[OURS], command, text=OLD)
    if line == "1.37":
        assert (theirs.code, "uses an old API spec" in theirs.err) == (1, True)
        assert mine.code == 0
    else:
        assert (theirs.code, mine.code) == (0, 0)
        assert without_time_out(mine.out) == without_time_out(theirs.out)


@pytest.mark.parametrize("line", KUBEADMS)
def test_current_documents_are_migrated_as_by_kubeadm(machines, line):
    command = ["config", "migrate", f"--old-config={CONFIG}"]
    for case in NAMES:
        text = configuration(case, KUBEADMS[line])
        theirs, mine = ask(machines[line], command, text=text), ask(machines[OURS], command, text=text)
        assert (theirs.code, mine.code) == (0, 0)
        if line == "1.37":  # keeps the timeout that kubeadm v1.36 loses, as we do
            assert mine.out == theirs.out
        assert without_time_out(mine.out) == without_time_out(theirs.out)


def without_time_out(text: str) -> str:
    return re.sub(r"(controlPlaneComponentHealthCheck): .*", r"\1", text)


def test_a_release_that_is_too_old_or_unknown_is_treated_as_by_our_kubeadm(machines):
    command = ["config", "images", "list", f"--config={CONFIG}"]
    for version, code in (("v1.34.9", 1), ("v1.35.0", 0), ("v1.38.0", 0), ("v1.99.1", 0)):
        text = configuration("ipv4-minimal", version)
        theirs, mine = ask(machines["1.36"], command, text=text), ask(machines[OURS], command, text=text)
        assert (theirs.code, mine.code) == (code, code)
        assert mine.out == theirs.out


def test_make_fetches_every_kubeadm_that_the_tests_need():
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    fetched = re.findall(r"binaries fetch ([a-z ]+) --kubernetes-version (v[\d.]+)", makefile)
    assert [version for programs, version in fetched if "kubeadm" in programs.split()] == [
        version for line, version in KUBEADMS.items() if line != OWN.line
    ]
