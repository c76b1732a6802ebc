"""`agent run` and `agent status`: this machine as a node."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.agent import status_file
from kubewright.agent.configuration import options, reading
from kubewright.agent.configuration.flags import FLAGS
from kubewright.agent.configuration.options import AgentOptions, Own
from kubewright.base import logs, yaml
from kubewright.base.durations import Duration
from kubewright.base.errors import DocumentError, KubewrightError
from kubewright.base.messages import one_line
from kubewright.base.yaml import Document
from kubewright.cli.handlers import machine
from kubewright.cli.handlers.daemons.running import report_status, until_stopped
from kubewright.cli.parsing.inputs import absolute
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import write_result
from kubewright.host.notify import Notifier
from kubewright.host.readers import FileReader
from kubewright.host.seam import Host
from kubewright.host.states import Kind

_log = logging.getLogger(__name__)

_DROP_IN: Final = ".conf"
_WIDTH, _GAP = 22, 2
"""The minimum width of the names in `agent status`, and the number of spaces after the longest one."""
_FIELDS: Final = ("client-ca-file", "tls-cert-file", "tls-private-key-file")
PATHS: Final = frozenset({"bootstrap-kubeconfig", "cert-dir", "config", "config-dir", "kubeconfig", "root-dir", *_FIELDS})
"""Flags that name files; relative paths start at the working directory."""


def run(parsed: Parsed) -> int:
    """Run a node until a signal arrives."""
    host = machine.host()
    read = configuration_of(parsed, host)
    chosen = options_of(parsed, read, host_name=host.facts.detected.host_name)
    logs.configure(max(1, parsed.number("v") or 0))
    for note in read.notes:
        _log.warning("%s", note)
    from kubewright.http import loop

    return loop.run(lambda: _serve(parsed, chosen, host))


def configuration_of(parsed: Parsed, files: FileReader) -> reading.AgentConfiguration:
    """Read the files and flags.

    Raises DocumentError for a file that is missing or not a KubeletConfiguration, ValidationError for invalid values.
    """
    flags = {flag.name: parsed[flag.name] for flag in FLAGS if flag.name in parsed.given}
    flags |= {name: absolute(str(flags[name])) for name in _FIELDS if name in flags}
    named, directory = (absolute(parsed.text(name)) for name in ("config", "config-dir"))
    config = _document(PurePosixPath(named), files, flag="config") if named else None
    return reading.read(config, flags, drop_ins=list(_drop_ins(PurePosixPath(directory), files)) if directory else ())


def options_of(parsed: Parsed, configuration: reading.AgentConfiguration, *, host_name: str) -> AgentOptions:
    """Return the configuration together with the flags that are not fields of it."""
    own = Own(
        kubeconfig=absolute(parsed.text("kubeconfig")),
        bootstrap_kubeconfig=absolute(parsed.text("bootstrap-kubeconfig")),
        cert_dir=absolute(parsed.text("cert-dir")),
        root_dir=absolute(parsed.text("root-dir")),
        hostname_override=parsed.text("hostname-override"),
        node_ips=tuple(parsed.text("node-ip").split(",")),
        node_labels=parsed.strings("node-labels"),
        cloud_provider=parsed.text("cloud-provider"),
        certificate_lifetime=_seconds(parsed, "certificate-lifetime"),
        exit_without_certificate=_seconds(parsed, "exit-without-certificate"),
    )
    return options.options_of(configuration, own, host_name=host_name)


def _seconds(parsed: Parsed, name: str) -> float:
    return float(Duration.parse(parsed.text(name) or "0").seconds)


def _drop_ins(directory: PurePosixPath, files: FileReader) -> Iterator[Document]:
    """Read the drop-ins of a directory and its subdirectories, each in the order of names."""
    if files.state(directory) is None:
        raise DocumentError(f"{directory} does not exist", remedy="check --config-dir")
    for path in files.entries(directory):
        found = files.state(path)
        if found is not None and found.kind is Kind.DIRECTORY:
            yield from _drop_ins(path, files)
        elif path.name.endswith(_DROP_IN):
            yield _document(path, files, flag="config-dir")


def _document(path: PurePosixPath, files: FileReader, *, flag: str) -> Document:
    content = files.read(path)
    if content is None:
        raise DocumentError(f"{path} does not exist", remedy=f"check --{flag}")
    return yaml.load_one(content, source=str(path))


async def _serve(parsed: Parsed, chosen: AgentOptions, host: Host) -> int:
    from kubewright.agent.daemon import AgentDaemon

    notifier = Notifier(os.environ)
    daemon = AgentDaemon(chosen, host, environment=os.environ)

    async def alongside() -> None:
        await report_status(notifier, ready=lambda: daemon.agent is not None, status=daemon.summary)

    def reload() -> None:
        """Read the files again; invalid ones are reported, and change nothing."""
        try:
            read = configuration_of(parsed, host)
            daemon.reload(options_of(parsed, read, host_name=host.facts.detected.host_name))
        except KubewrightError as error:
            _log.error("the configuration is not reloaded: %s", error)
        else:
            _log.info("the configuration is reloaded")

    await until_stopped(daemon.run, alongside=alongside, stopping=notifier.stopping, reload=reload)
    return 0


def status(parsed: Parsed) -> int:
    """Print the agent's status file, and whether it is running.

    Exits 1 if it is not, if there never was one, or if its node is not ready.
    """
    host = machine.host()
    found = dict(status_file.read(host, PurePosixPath(absolute(parsed.text("root-dir")))))
    alive = status_file.runs(found, host.processes)
    shown = {**found, "running": alive}
    form = parsed.text("output")
    if form == "text":
        sys.stdout.write("".join(f"{line}\n" for line in status_lines(shown)))
    else:
        write_result(shown, form=form)
    return 0 if alive and found["ready"] else 1


def status_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield a status for people, one line for each value. Missing values are left out."""
    rows = [(name, value) for name, value in _rows(found) if value]
    width = max(_WIDTH, *(len(name) + _GAP for name, _ in rows))
    return (one_line(f"{name:<{width}}{value}") for name, value in rows)


def _rows(found: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    phase = found["phase"] if found["running"] else f"not running; it was {found['phase']}"
    certificate, serving = {**found["certificate"], "waiting": found["waiting"]}, found.get("servingCertificate") or {}
    api = found.get("kubeletAPI")
    yield "node", found["node"]
    yield "agent", f"{phase} (pid {found['pid']}, since {found['started']})"
    yield "trouble", found["trouble"]
    yield "not ready because", found.get("notReady")
    yield "certificate expires", certificate["expires"]
    yield "certificate rotates", certificate["rotates"]
    yield "waiting because", _waits_for(certificate)
    yield "clock", found.get("clock")
    yield "kubelet API", api and (api["trouble"] or f"port {api['port']}, certificate: {api['certificate']}")
    yield "serving until", serving.get("expires")
    yield "serving rotates", serving.get("rotates")
    yield "serving trouble", serving.get("trouble")
    yield "serving waits because", _waits_for(serving)
    yield "status reported", found["statusReported"]
    yield "lease renewed", found["leaseRenewed"]
    for setter, reason in found["failedSetters"].items():
        yield f"cannot determine {setter}", reason
    yield "taints not on the Node", ", ".join(found["missingTaints"])


def _waits_for(certificate: Mapping[str, Any]) -> str:
    waiting = certificate.get("waiting")
    if not waiting:
        return ""
    return f"{waiting.get('explanation') or 'certificate request ' + waiting['request']} (since {waiting['since']})"
