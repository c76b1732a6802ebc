"""`agent install` as an operation: systemd runs the agent from now on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.agent.configuration.options import AgentOptions, require_kubeconfig
from kubewright.base.change import Change
from kubewright.base.errors import CheckFailed
from kubewright.base.records import dataclass
from kubewright.host.desired import File, Service
from kubewright.lifecycle.operation import Bound, Operation, Prepared
from kubewright.manifests import units
from kubewright.workflow.phases import Phase, Phases

if TYPE_CHECKING:
    from kubewright.lifecycle.machine import TargetMachine

SERVICE: Final = "kubewright-agent"
UNIT: Final = PurePosixPath(f"/etc/systemd/system/{SERVICE}.service")
KUBELET: Final = "kubelet"
_UNIT: Final = """\
# Installed by `kubewright agent install`. `kubewright agent leave` removes it.
[Unit]
Description=kubewright agent: this machine as a node of Kubernetes, without a kubelet
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
ExecStart={program} {arguments}
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=10
WatchdogSec=60
LimitCORE=0

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True, kw_only=True)
class InstallOptions:
    """One call of `agent install`. `command` is the service's command, `options` are the agent's, `notes` are remarks about them."""

    command: Sequence[str]
    options: AgentOptions
    notes: Sequence[str] = ()
    only: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class InstallContext:
    """One run."""

    bound: Bound
    command: Sequence[str]


def unit(command: Sequence[str]) -> str:
    """Return the unit that runs a command. Raises HostError for a program path that a unit cannot name."""
    return _UNIT.format(program=units.program(PurePosixPath(command[0])), arguments=units.arguments(*command[1:]))


def prepare(request: InstallOptions, machine: TargetMachine) -> Prepared[Sequence[str]]:
    """Require a kubeconfig: without one, the agent would exit again and again. Raises DocumentError."""
    here = machine.at(machine.layout)
    require_kubeconfig(request.options, here)
    return Prepared(configuration=request.command, host=here, warnings=request.notes, only=request.only)


def check(ctx: InstallContext) -> Iterable[Change]:
    """Require that no kubelet runs: a machine has only one node. Raises CheckFailed."""
    kubelet = ctx.bound.host.service(KUBELET)
    if kubelet is not None and kubelet.running:
        raise CheckFailed(
            "a kubelet runs on this machine",
            remedy="stop and disable it first: `systemctl disable --now kubelet`; its pods keep running",
        )
    return ()


def install(ctx: InstallContext) -> Iterator[Change]:
    """Write the unit, enable it and start it; a service whose unit has changed is restarted."""
    file = File(path=UNIT, content=unit(ctx.command).encode(), mode=0o644)
    yield ctx.bound.host.ensure(Service(name=SERVICE, enabled=True, units=(file,)))


PHASES: Final[Phases[InstallContext]] = Phases(
    Phase("preflight", "Check that no kubelet runs", run=check),
    Phase("service", "Write, enable and start the service", run=install),
)

INSTALL: Final = Operation(
    name="agent install",
    phases=PHASES,
    configure=prepare,
    context=lambda _, command, bound: InstallContext(bound=bound, command=command),
)
