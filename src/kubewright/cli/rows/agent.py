"""The rows of `agent`. Those of `agent run` are the kubelet's flags, from the table that defines their treatment."""

from __future__ import annotations

from collections.abc import Iterator

from kubewright.agent.configuration import fields
from kubewright.agent.configuration.flags import FLAGS, OURS, KubeletFlag, reason_ignored
from kubewright.apis.kubelet import KUBELET
from kubewright.apis.schema import Fields, Plain
from kubewright.cli.rows.commands import summary
from kubewright.cli.rows.model import ALL_FORMATS, BOOL, DURATION, INT32, LIST, PATH, STRING, Command, Flag, Workflow

_KINDS = {"flag": BOOL, "int": INT32, "span": DURATION, "text": STRING, "taints": STRING}
"""The parser's kind for a kind of the kubelet's flags; all others are lists, which their reader splits."""
_SHOWN = {"pairs": "mapStringString", "less": "mapStringString", "taints": "[]v1.Taint", "limits": "reserved-memory"}
"""The placeholder in help for a kind's value, if it is not our own word."""


def _meanings(of: Fields, above: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the meaning of each field, those of structs below their paths."""
    for field in of:
        yield f"{above}{field.name}", field.meaning
        if isinstance(field.kind, Plain):
            yield from _meanings(field.kind.fields, f"{above}{field.name}.")


_MEANINGS = dict(_meanings(KUBELET.fields))


def _flag(row: KubeletFlag) -> Flag:
    ignored = reason_ignored(row)
    text = f"ignored: {ignored}" if ignored else row.text or _MEANINGS[row.field]
    name = row.field.partition(".")[0]
    if name in fields.REFUSED:
        text = f"refused: {fields.REFUSED[name]}"
    return Flag(row.name, text, kind=_KINDS.get(row.kind, LIST), metavar=_SHOWN.get(row.kind, ""), hidden=bool(ignored))


RUN_FLAGS = tuple(map(_flag, (*FLAGS, *OURS)))

_ROOT_DIR = Flag("root-dir", "directory of the agent", default="/var/lib/kubelet", metavar="dir", form=PATH)
_CHANGES = "kubewright.cli.printers.reporters:ChangeLines"
_LEAVE_FLAGS = {
    flag.name: flag
    for flag in (
        _ROOT_DIR,
        Flag(
            "kubeconfig",
            "kubeconfig that may delete the Node; without one only its Lease and CSINode are deleted",
            metavar="file",
            form=PATH,
        ),
        Flag("skip-phases", "phases to skip", kind=LIST, metavar="phases", sets="skip"),
        Flag("plan", "show what would be removed, and remove nothing", kind=BOOL, default=False),
        ALL_FORMATS,
    )
}

ROWS = (
    Command("agent", summary("agent")),
    Command(
        "agent run",
        "Make this machine a node, without a kubelet and without pods",
        handler="kubewright.cli.handlers.agent.run:run",
        flags=RUN_FLAGS,
        description="Registers the machine, reports its status and renews its lease and its certificate as a kubelet does, and accepts the kubelet's"
        " flags and its configuration file. It runs no pods: the Node has the taint kubewright.dev/no-pods. Runs until it is stopped by SIGTERM"
        " or Ctrl-C.",
        examples=("agent run --kubeconfig /etc/kubernetes/kubelet.conf --bootstrap-kubeconfig /etc/kubernetes/bootstrap.conf",),
    ),
    Command(
        "agent install",
        "Install the agent as a service of this machine",
        flags=(
            *RUN_FLAGS,
            Flag("plan", "show what would change, as diffs, and write nothing", kind=BOOL, default=False),
            ALL_FORMATS,
        ),
        workflow=Workflow(
            operation="kubewright.agent.service.install:INSTALL",
            request="kubewright.cli.handlers.agent.requests:install_request",
            text=_CHANGES,
        ),
        description="Accepts the flags of agent run, checks them and the files that they name, writes the unit kubewright-agent.service with those that have"
        " an effect, and enables and starts it.",
        examples=("agent install --kubeconfig /etc/kubernetes/kubelet.conf --bootstrap-kubeconfig /etc/kubernetes/bootstrap.conf",),
    ),
    Command(
        "agent leave",
        "Remove this machine from its cluster",
        flags=tuple(_LEAVE_FLAGS.values()),
        workflow=Workflow(
            "kubewright.agent.service.leave:PHASES",
            flags=_LEAVE_FLAGS,
            ours="plan output",
            operation="kubewright.agent.service.leave:LEAVE",
            request="kubewright.cli.handlers.agent.requests:leave_request",
            text=_CHANGES,
        ),
        description="Stops the service, deletes the node's objects in the cluster, and removes its certificates, its kubeconfig and its unit.",
        examples=(
            "agent leave --plan",
            "agent leave",
        ),
    ),
    Command(
        "agent status",
        "Show the state of this machine's agent, or its last state if it has stopped",
        handler="kubewright.cli.handlers.agent.run:status",
        flags=(_ROOT_DIR, ALL_FORMATS),
        examples=(
            "agent status",
            "agent status -o json",
        ),
    ),
)
