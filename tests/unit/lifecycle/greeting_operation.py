"""A new operation, and the row that makes a command of it. A test counts its lines."""

from __future__ import annotations

from kubewright.base.records import dataclass
from kubewright.cli.rows.commands import HEADS, Head, Table
from kubewright.cli.rows.model import ALL_FORMATS, BOOL, Command, Flag, Workflow, by_name
from kubewright.host.desired import File
from kubewright.kube.objects import DesiredObject, ensure_object
from kubewright.lifecycle.machine_record import MachineRecord
from kubewright.lifecycle.operation import Bound, DryRun, Operation, Prepared
from kubewright.workflow.phases import Phase, Phases


@dataclass(frozen=True, kw_only=True)
class Greeting:
    bound: Bound
    text: str


def file(ctx):
    yield ctx.bound.host.ensure(File(path=ctx.bound.host.layout.kubernetes / "greeting", content=ctx.text.encode()))


def publish(ctx):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "greeting", "namespace": "default"}, "data": {"text": ctx.text}}
    yield ensure_object(ctx.bound.connections.kube(None), DesiredObject(body))


def configure(request, machine):
    text, only, dry_run = request
    record = MachineRecord(workflow="greet", configuration=f"text: {text}\n")
    return Prepared(configuration=text, host=machine.at(machine.layout), only=only, dry_run=dry_run, record=lambda: record)


PHASES = Phases(
    Phase("file", "Write the greeting", run=f"{__name__}:file", flags="dry-run text"),
    Phase("object", "Publish the greeting", run=f"{__name__}:publish", flags="dry-run text"),
)
GREET = Operation(
    name="greet",
    phases=PHASES,
    configure=configure,
    context=lambda _, text, bound: Greeting(bound=bound, text=text),
    dry_run=DryRun(variable="GREET_DRYRUN_DIR", prefix="greet-dryrun"),
)


def request(parsed, *, only):
    return parsed.text("text"), only, parsed.flag("dry-run")


FLAGS = by_name(Flag("text", "what to say", default="hello"), Flag("plan", "show what would change", kind=BOOL, default=False), ALL_FORMATS)
WORKFLOW = Workflow(f"{__name__}:PHASES", flags=FLAGS, ours="plan output", operation=f"{__name__}:GREET", request=f"{__name__}:request")
ROWS = (Command("greet", "Leave a greeting", flags=[FLAGS[name] for name in ("dry-run", "output", "plan", "text")], workflow=WORKFLOW),)
TABLE = Table((*HEADS, Head("greet", "Leave a greeting", rows=__name__)))
