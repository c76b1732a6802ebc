"""`upgrade plan`, `diff`, `status` and `recover`: possible upgrades of a cluster, and their changes on this machine.

The plan creates a Job in the cluster, which is deleted automatically.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.kubeadm.documents import CLUSTER
from kubewright.apis.kubeadm.node_types import UpgradeConfiguration
from kubewright.apis.machine import Layout
from kubewright.base import yaml
from kubewright.base.clock import SystemClock
from kubewright.base.errors import UsageError
from kubewright.base.events import Line, Reporter, SilentReporter
from kubewright.base.messages import one_line
from kubewright.base.versions import Version
from kubewright.base.wait import PollingWaiter
from kubewright.cli.handlers import cluster_access, machine, operations
from kubewright.cli.handlers.operation_requests import upgrade_request
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.parser import Parsed, as_called
from kubewright.cli.printers import output
from kubewright.cli.printers.output import printer, write_output, write_result
from kubewright.cli.printers.reporters import KubeadmText
from kubewright.kube.client import KubeClient
from kubewright.lifecycle import config_diff, engine, stored_configuration
from kubewright.lifecycle.steps import preflight
from kubewright.lifecycle.upgrade.planning import diff as upgrade_diff
from kubewright.lifecycle.upgrade.planning import plan as upgrade_plan
from kubewright.lifecycle.upgrade.planning.health import Health
from kubewright.lifecycle.upgrade.planning.plan import AvailableUpgrade, PlanOptions, UpgradePlan
from kubewright.lifecycle.upgrade.planning.versions import observe
from kubewright.lifecycle.upgrade.request import UpgradeOptions, configure

CONTEXT_LINES: Final = 3
_HEADINGS: Final = ("COMPONENT", "NODE", "CURRENT", "TARGET")
_RULE: Final = "_" * 69 + "\n\n"


def _loaded(request: UpgradeOptions) -> UpgradeConfiguration:
    loaded = configure(request)
    inputs.warn(loaded.warnings)
    return loaded.configuration


def plan(parsed: Parsed) -> int:
    """Show the versions to which the cluster can be upgraded.

    Nothing is printed after the versions if there is no newer one.
    """
    wanted = _loaded(upgrade_request(parsed, "plan")).plan
    printed = printer(parsed)
    clock, reporter = SystemClock(), KubeadmText()
    said = SilentReporter() if printed is not None else reporter  # other formats print the result alone
    with closing(_client(parsed)) as api:
        waiter = PollingWaiter(clock=clock, reporter=reporter)
        fitness = Health(api=api, host=machine.host(Layout()), clock=clock, waiter=waiter, ignored=wanted.ignore_preflight_errors)
        _say(said, "preflight", "Running pre-flight checks")
        preflight.require_passed(fitness.check_dns(), reporter=reporter)
        _say(said, "upgrade/config", *stored_configuration.READING)
        stored = config_diff.read_stored(api)
        _say(said, "upgrade", "Running cluster health checks")
        preflight.require_passed(fitness.check(stored[CLUSTER].value), reporter=reporter)
        _say(said, "upgrade", "Fetching available versions to upgrade to")
        observed = observe(api)
    wish = PlanOptions(
        version=_argument(parsed) or wanted.kubernetes_version,
        experimental=bool(wanted.allow_experimental_upgrades),
        candidates=bool(wanted.allow_rc_upgrades),
        etcd=wanted.etcd_upgrade,
    )
    groups = {str(document.value.get("apiVersion")).partition("/")[0] for document in stored.values() if isinstance(document.value, dict)}
    found = upgrade_plan.plan(observed, wish, groups=groups)
    inputs.warn(found.warnings)
    if wanted.print_config:
        _print_configuration(stored[CLUSTER].value)
    if printed is not None:
        sys.stdout.write(printed([found.as_map()]) if found.upgrades else "")
        return 0
    _say(said, "upgrade/versions", *found.lines)
    sys.stdout.write("\n")
    if found.upgrades:
        sys.stdout.write(text(found))
    return 0


def diff(parsed: Parsed) -> int:
    """Show the changes of an upgrade to the static pods of this machine as unified diffs."""
    configuration = _loaded(upgrade_request(parsed, "diff"))
    present = upgrade_diff.manifests(machine.host(Layout()))
    with closing(_client(parsed)) as api:
        if parsed.text("output") == "text":
            _say(KubeadmText(), "upgrade/diff", *stored_configuration.READING)
        stored = config_diff.read_stored(api)[CLUSTER]
    theirs = stored.value.get("kubernetesVersion", "") if isinstance(stored.value, dict) else ""
    version = _argument(parsed) or configuration.diff.kubernetes_version or str(theirs)
    patches = configuration.apply.patches or configuration.node.patches
    found = upgrade_diff.configuration(
        stored, present, version=_checked(version), host=machine.host(Layout()), patches=patches.directory if patches else ""
    )
    context = configuration.diff.context_lines or CONTEXT_LINES
    if "context-lines" in parsed.given:
        context = parsed.number("context-lines") or 0
    host = machine.host(upgrade_diff.layout_of(found, Layout()))
    texts = upgrade_diff.differences(found, present, host=host, context=max(context, 0))
    shown = [{"manifest": str(host.layout.manifest(name)), "diff": text} for name, text in zip(present, texts, strict=True) if text]
    write_output({"differs": bool(shown), "manifests": shown}, "".join(one["diff"] for one in shown), form=parsed.text("output"))
    return 0


def status(parsed: Parsed) -> int:
    """Show the versions of all machines as their processes report them."""
    from kubewright.lifecycle.upgrade.status import STATUS

    request = UpgradeOptions(section="node", kubeconfig=inputs.absolute(inputs.given_text(parsed, "kubeconfig")))
    result = engine.run(STATUS, request, operations.this_machine(), reporter=KubeadmText())
    found, form = result.context.found, parsed.text("output")
    if form != "text":
        write_result(found.as_map(), form=form)
        return 0
    rows = [
        ("NODE", "COMPONENT", "VERSION", "SOURCE"),
        *((one.node, one.component, one.version or one.problem, one.source) for one in found.versions),
    ]
    sys.stdout.write(f"Version of the cluster's configuration: {one_line(found.stored) or 'unknown'}\n\n{output.kubeadm_table(rows)}\n")
    steps = found.next() or ["nothing: all machines have the version of the cluster's configuration"] * bool(found.stored)
    sys.stdout.write("".join(f"Next: {as_called(one_line(step))}\n" for step in steps))
    return 0


def recover(parsed: Parsed) -> int:
    """Complete the replacement of files that a killed operation left half done, and report them."""
    from kubewright.lifecycle.recovery import RECOVER

    changes = [change for change in engine.run(RECOVER, None, operations.this_machine(), reporter=KubeadmText()).changes if change]
    shown = "".join(f"{change.action.value} {change.target}\n" for change in changes)
    write_output([change.as_map() for change in changes], shown, form=parsed.text("output"))
    return 0


def text(found: UpgradePlan) -> str:
    """Return the plan as kubeadm prints it."""
    states = [("API GROUP", "CURRENT VERSION", "PREFERRED VERSION", "MANUAL UPGRADE REQUIRED")]
    states += [(one["group"], one["currentVersion"] or "-", one["preferredVersion"] or "-", "no") for one in found.states()]
    heading = (
        "\nVersions of component configurations; what is marked with yes has to be converted by hand, or reset to the defaults, before:\n\n"
    )
    return "".join(_upgrade(one) for one in found.upgrades) + heading + output.kubeadm_table(states) + _RULE


def _upgrade(found: AvailableUpgrade) -> str:
    current, needed = found.tool
    version = Version.parse(found.version)
    early = "--allow-release-candidate-upgrades" if version.pre.startswith("rc") else "--allow-experimental-upgrades" if version.pre else ""
    command = " ".join(filter(None, (as_called("kubewright upgrade apply"), found.version, early)))
    note = f"Note: this needs version {needed} of this program: upgrade it first.\n\n" if current != needed else ""
    return (
        f"Components to upgrade by hand on each node, after `{as_called('kubewright upgrade apply')}` has upgraded the control plane:\n"
        f"{_table(found, kubelets=True)}\n"
        f"Upgrade to the latest {found.description}:\n\n"
        f"{_table(found, kubelets=False)}\n"
        f"This command upgrades to it:\n\n\t{command}\n\n{note}{_RULE}"
    )


def _table(found: AvailableUpgrade, *, kubelets: bool) -> str:
    rows = [(row.name, row.node, row.current, row.new) for row in found.rows(kubelets=kubelets)]
    return output.kubeadm_table([_HEADINGS, *rows])


def _say(reporter: Reporter, topic: str, *texts: str) -> None:
    for text in texts:
        reporter.emit(Line(topic=topic, text=text))


def _print_configuration(value: object) -> None:
    sys.stdout.write("[upgrade/config] The cluster's configuration:\n" + "".join(f"\t{line}\n" for line in yaml.dump(value).splitlines()))


def _client(parsed: Parsed) -> KubeClient:
    path = parsed.text("kubeconfig") if "kubeconfig" in parsed.given else str(Layout().kubeconfig("admin"))
    return cluster_access.client(cluster_access.of_user(str(PurePosixPath(inputs.absolute(path)))))


def _argument(parsed: Parsed) -> str:
    """Return the given version; several count as none, as in kubeadm."""
    given = parsed.strings("version")
    return given[0] if len(given) == 1 else ""


def _checked(version: str) -> str:
    try:
        return str(Version.parse(version))
    except ValueError as error:
        raise UsageError(str(error), remedy="use a version like v1.36.3") from error
