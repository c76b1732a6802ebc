"""A dozen commands of kubeadm and kubewright, side by side, as a page of the documentation.

Both programs run on their own machines (see `arena`), and what changes from run to run is replaced by a word in angle
brackets.

Usage: PYTHONPATH=src python tests/compat/transcript.py writes the page.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arena import Answer, Request, Run, arena
from certs_comparison import find_kubeadm

PAGE = Path(__file__).parents[2] / "docs" / "compat" / "transcript.md"

CONFIG = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens:
- token: abcdef.0123456789abcdef
localAPIEndpoint:
  advertiseAddress: 10.98.0.12
nodeRegistration:
  name: node1
  criSocket: unix:///run/containerd/containerd.sock
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
encryptionAlgorithm: ECDSA-P256
networking:
  podSubnet: 10.244.0.0/16
"""
OLD = """\
apiVersion: kubeadm.k8s.io/v1beta3
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
apiServer:
  extraArgs:
    audit-log-path: /var/log/audit.log
  timeoutForControlPlane: 5m0s
"""
BROKEN = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
clusterNam: blue
networking:
  podSubnet: 10.244.0.0/36
  serviceSubnet: ten
"""
FILES = {"/srv/kubeadm.yaml": CONFIG, "/srv/old.yaml": OLD, "/srv/broken.yaml": BROKEN}


@dataclass(frozen=True)
class Step:
    """A command, and an explanation if the results differ."""

    words: str
    note: str = ""


_SAME_FILES = "The progress is worded differently; the files are the same (`tests/compat/test_init_differential.py`)."

STEPS = (
    Step("version -o short"),
    Step("config print init-defaults"),
    Step("config validate --config /srv/kubeadm.yaml"),
    Step("config migrate --old-config /srv/old.yaml"),
    Step("config images list --config /srv/kubeadm.yaml"),
    Step("config images list --config /srv/kubeadm.yaml -o jsonpath={.images[0]}"),
    Step("token generate"),
    Step("certs certificate-key"),
    Step("init phase certs all --config /srv/kubeadm.yaml", _SAME_FILES),
    Step("init phase kubeconfig all --config /srv/kubeadm.yaml", _SAME_FILES),
    Step("init phase control-plane all --config /srv/kubeadm.yaml", _SAME_FILES),
    Step("certs check-expiration --config /srv/kubeadm.yaml"),
    Step("kubeconfig user --client-name ada --org developers --config /srv/kubeadm.yaml"),
    Step(
        "config validate --config /srv/broken.yaml",
        "kubeadm stops at the first error; kubewright reports all errors at once, with their positions and how to correct them.",
    ),
    Step("certs check-expiration --config /srv/nothing.yaml"),
)
"""In this order on one machine: later commands see the files of earlier ones."""

HEAD = """\
# kubeadm and kubewright side by side

The same commands on two equal, empty machines, with the same configuration files: kubeadm v1.36.3 on one, kubewright,
called as `kubeadm`, on the other. Values that differ from run to run are in angle brackets: `<token>`, `<key>`,
`<date>`, `<left>`, `<data>`, `<place>`. If both print the same, it is shown once.

This page is written by `tests/compat/transcript.py`; `tests/compat/test_transcript.py` fails if a program prints
something else today.
"""

VOLATILE = (
    (re.compile(r"\b(?!abcdef\.)[a-z0-9]{6}\.[a-z0-9]{16}\b"), "<token>"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<key>"),
    (re.compile(r"\b[A-Z][a-z]{2} \d\d, \d{4} \d\d:\d\d UTC {3}\S+"), f"{'<date>':25}<left>"),
    (re.compile(r"((?:certificate-authority|client-certificate|client-key)-data: )\S+"), r"\1<data>"),
    (re.compile(r"^([WIE])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+\]", re.MULTILINE), r"\1<place>]"),
)


def still(text: str) -> str:
    """Replace what changes from run to run."""
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def runs(program: str) -> tuple[Answer, Answer]:
    """Run everything on both machines: kubeadm's results, and ours."""
    request = Request([step.words.split() for step in STEPS], FILES, stops=False)
    with arena(program) as machines:
        return machines.both(request)


def page(theirs: Sequence[Run], ours: Sequence[Run]) -> str:
    """Return the page."""
    parts = [HEAD, "## The files\n"]
    parts += [f"`{name}`:\n\n```yaml\n{text}```\n" for name, text in FILES.items()]
    parts += [_section(step, one, two) for step, one, two in zip(STEPS, theirs, ours, strict=True)]
    return "\n".join(parts)


def _section(step: Step, theirs: Run, ours: Run) -> str:
    first, second = _block(theirs), _block(ours)
    if first == second:
        told = [f"Both ({_exit(ours)}):\n", second]
    else:
        told = [f"kubeadm ({_exit(theirs)}):\n", first, f"kubewright ({_exit(ours)}):\n", second]
    note = [f"{step.note}\n"] if step.note and first != second else []
    return "\n".join([f"## `{step.words}`\n", *note, *told])


def _exit(run: Run) -> str:
    return f"exit code {run.code}"


def _block(run: Run) -> str:
    """Return stdout, and stderr after a line that says so."""
    err = still(run.err)
    tail = f"(stderr)\n{err}" if err else ""
    return f"```text\n{still(run.out)}{tail}```\n"


def write() -> None:
    """Write the page."""
    theirs, ours = runs(find_kubeadm())
    PAGE.write_text(page(theirs.runs, ours.runs))


if __name__ == "__main__":
    write()
