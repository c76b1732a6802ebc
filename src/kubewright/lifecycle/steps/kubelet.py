"""The phases `kubelet-start`, `kubelet-finalize` and `mark-control-plane`: the kubelet of this machine, and its Node.

Mirrors kubeadm v1.36: phases/kubelet, phases/markcontrolplane.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from kubewright.apis.kubeadm.types import NodeRegistration
from kubewright.apis.kubeconfig import CertificateFiles, kubeconfig_document, parse, require_usable
from kubewright.apis.machine import Layout, url
from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.base.errors import APIError, HostError, NotFound
from kubewright.base.events import Line, Reporter, Waited, Warned
from kubewright.host.decisions import decide_file, service_verbs
from kubewright.host.desired import Directory, File, Service
from kubewright.host.seam import Host
from kubewright.host.states import ServiceState
from kubewright.kube.api import KubeAPI
from kubewright.kube.objects import NodeMarks, ensure_node_marks
from kubewright.kube.resources import NODE
from kubewright.lifecycle.diagnosis import observation
from kubewright.lifecycle.steps import kubelet_service
from kubewright.lifecycle.steps.announcing import announced
from kubewright.manifests import kubelet, objects

if TYPE_CHECKING:
    from kubewright.lifecycle.steps.health import ComponentWaiter

SERVICE = "kubelet"
FILE_MODE = 0o644
PRIVATE = 0o700
FIX: Final = "fix what the kubelet reports (`journalctl -xeu kubelet` has all of it), then run the same command again"
"""The remedy of a wait for the kubelet if the diagnosis has none."""
LOOK: Final = 0.05
"""Seconds between two checks of the kubelet."""
_HEALTH_ADDRESS: Final = "127.0.0.1"
_HEALTH_PORT: Final = 10248
_START: Final = "kubelet-start"
_MARK: Final = "mark-control-plane"


def start(
    files: Mapping[PurePosixPath, str],
    *,
    host: Host,
    layout: Layout,
    stand_ins: tuple[File, ...],
    reporter: Reporter,
    credentials: tuple[PurePosixPath, ...] = (),
) -> Iterable[Change]:
    """Write the kubelet's files, install its unit if no package has, and start or restart it.

    A running kubelet is restarted if it has not read the present files: one of them has changed, now or in a run that was
    killed before the restart. It is also restarted if it has failed to start a static pod: it would pause for minutes
    before it tries again, although the cause may be fixed.

    Starting is best effort, as in kubeadm: without a service manager, that is only reported. `credentials` are files that
    the caller has written for the kubelet. `stand_ins` are files that a running kubelet would create, for plans, in which
    none is started.
    """
    yield host.ensure(Directory(path=layout.kubelet, mode=PRIVATE))
    changed = False
    for path, content in files.items():
        change = host.ensure(File(path=path, content=content.encode(), mode=FILE_MODE))
        reporter.emit(Line(topic=_START, text=f'{"Wrote" if change else "Using existing"} "{path}"'))
        changed = changed or bool(change)
        yield change
    found = host.service(SERVICE)
    units = missing_units(host, layout, found)
    if found is None and not units:
        reporter.emit(Line(topic=_START, text="No service manager that knows the kubelet was found: start it manually"))
        return
    restart = changed or _is_stuck(host, found, (*files, *credentials))
    wanted = Service(name=SERVICE, restart=restart, enabled=True if units else None, units=units, stand_ins=stand_ins)
    due = service_verbs(found, wanted, units=[decide_file(host.state(unit.path), host.read(unit.path), unit) for unit in units])
    reporter.emit(Line(topic=_START, text="Starting the kubelet" if due else "The kubelet is already running"))
    try:
        yield host.ensure(wanted)
    except HostError as error:
        reporter.emit(Warned(text=f"{error}: run `systemctl restart {SERVICE}`"))


def _is_stuck(host: Host, kubelet: ServiceState | None, files: Iterable[PurePosixPath]) -> bool:
    """Return whether a running kubelet has started before one of its files was written, or failed to start a static pod."""
    if kubelet is None or not kubelet.running:
        return False
    states = [host.state(path) for path in files]
    has_old_files = bool(kubelet.since) and any(state is not None and state.modified > kubelet.since for state in states)
    return has_old_files or bool(observation.failed(host, since=kubelet.since))


def missing_units(host: Host, layout: Layout, found: ServiceState | None) -> tuple[File, ...]:
    """Return the kubelet's unit and drop-in if systemd is running and no package has installed a unit; otherwise nothing."""
    theirs = kubelet_service.is_of_others(host, found)
    program = None if theirs or not host.facts.systemd else host.programs.path(SERVICE)
    if program is None:
        return ()
    return tuple(File(path=path, content=text.encode(), mode=FILE_MODE) for path, text in kubelet.unit_files(program, layout).items())


def health_server(host: Host) -> str:
    """Return the URL of the server with the kubelet's health endpoint according to its configuration, '' if it has none.

    For a port that is not a number, which a patch may set, it is the default one: such a kubelet does not start.
    """
    path = host.layout.kubelet_config
    content = host.read(path)
    found = yaml.load(content, source=str(path)) if content else None
    config = found if isinstance(found, dict) else {}
    given = config.get("healthzPort")
    port = given if isinstance(given, int) else _HEALTH_PORT
    return url(str(config.get("healthzBindAddress") or _HEALTH_ADDRESS), port, scheme="http") if port else ""


def rotated_certificate(registration: NodeRegistration, layout: Layout) -> PurePosixPath:
    """Return the path of the certificate that the kubelet rotates: in the directory of its last argument `cert-dir`, if any.

    Source: kubeadm v1.36: cmd/phases/init/kubeletfinalize.go.
    """
    current = layout.kubelet_client_current
    given = [argument.value for argument in registration.kubelet_extra_args if argument.name == "cert-dir"]
    return PurePosixPath("/", given[-1], current.name) if given else current


def finalize(current: PurePosixPath, layout: Layout, *, host: Host, reporter: Reporter) -> Iterable[Change]:
    """Make kubelet.conf refer to the certificate that the kubelet rotates, once it has one, instead of the embedded one.

    `current` is the path of that certificate.
    """
    path = layout.kubeconfig("kubelet")
    content = host.read(path)
    if content is None or host.read(current) is None:
        return
    kubeconfig = parse(yaml.load_one(content, source=str(path)))
    found = require_usable(kubeconfig)
    context = kubeconfig.contexts[kubeconfig.current_context]
    document = kubeconfig_document(
        server=found.cluster.server,
        ca_pem=found.cluster.certificate_authority_data,
        cluster_name=context.cluster,
        user=context.user,
        credentials=CertificateFiles(certificate=str(current), key=str(current)),
    )
    change = host.ensure(File(path=path, content=yaml.dump(document).encode(), mode=0o600))
    if change:
        reporter.emit(Line(topic="kubelet-finalize", text=f'"{path}" uses the client certificate that the kubelet rotates'))
    yield change


def with_server(kubeconfig: bytes, server: str) -> bytes | None:
    """Return a kubeconfig with another server and everything else unchanged; None if it already has that server.

    Raises DocumentError and ValidationError for a text that is not a kubeconfig.
    """
    found = yaml.load_one(kubeconfig, source="kubelet.conf")
    parse(found)
    document: Any = found.value
    clusters = [row["cluster"] for row in document.get("clusters") or () if row.get("cluster")]
    if all(cluster.get("server") == server for cluster in clusters):
        return None
    for cluster in clusters:
        cluster["server"] = server
    return yaml.dump(document).encode()


def mark(
    registration: NodeRegistration, *, look: KubeAPI, write: KubeAPI, components: ComponentWaiter, within: float, reporter: Reporter
) -> Iterable[Change | Waited]:
    """Label and taint a machine's Node, once its kubelet has registered it, at most `within` seconds from now.

    Requests of `look` are not retried.
    """
    name = registration.name
    yield components.until(
        lambda: _unregistered(look, name), saying=f"Node {name} to register", blame=(), within=within, every=LOOK, remedy=FIX
    )
    taints = registration.taints or ()
    labels = " ".join(objects.LABELS)
    marks = NodeMarks(name=name, labels=dict.fromkeys(objects.LABELS, ""), taints=taints)
    tainting = f"Marking the Node {name} with the taints [{' '.join(map(kubelet.taint, taints))}]"
    yield from announced(
        write,
        lambda api: [ensure_node_marks(api, marks)],
        say=lambda text: reporter.emit(Line(topic=_MARK, text=text)),
        doing=[f"Marking the Node {name} as a control plane with the labels [{labels}]", *([tainting] if taints else [])],
        kept=f"The Node {name} already has the labels and taints of a control plane",
    )


def _unregistered(api: KubeAPI, name: str) -> str | None:
    try:
        found = api.get(NODE, name)
    except NotFound:
        return "the kubelet has not registered it yet"
    except APIError as error:
        return str(error)
    labels = found.get("metadata", {}).get("labels", {})
    return None if "kubernetes.io/hostname" in labels else "it has no label kubernetes.io/hostname yet"
