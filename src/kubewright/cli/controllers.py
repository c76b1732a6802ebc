"""`controllers run`: a daemon in kube-controller-manager's place."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Final

from kubewright.base import logs
from kubewright.base.clock import SystemClock
from kubewright.base.durations import Duration
from kubewright.base.errors import CertificateError, UsageError
from kubewright.base.randomness import SystemRandom
from kubewright.cli.controllers_rows import SIGNERS
from kubewright.cli.parser import Parsed
from kubewright.controllers import options
from kubewright.controllers.manager import Manager
from kubewright.controllers.options import Options
from kubewright.host.files import Files
from kubewright.http.proxies import Proxies
from kubewright.kube.client import AsyncKubeClient
from kubewright.kube.electing import Election
from kubewright.kube.kubeconfigs import load_access

_log = logging.getLogger(__name__)

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
_MANAGER: Final = "kubewright-controllers"


def run(parsed: Parsed) -> int:
    """Run the controllers until a signal stops them; then end what is in flight and give the lease back."""
    chosen = options_of(parsed)
    logs.configure(max(1, parsed.number("v") or 0))
    from kubewright.http import loop

    return loop.run(lambda: _serve(parsed, chosen))


def options_of(parsed: Parsed) -> Options:
    """Read the flags. Raises UsageError for values that kube-controller-manager refuses as well."""
    if not parsed.text("kubeconfig"):
        raise UsageError("there is no cluster to work for", remedy="name its kubeconfig with --kubeconfig")
    own = {word: _pair(parsed, f"cluster-signing-{word}") for word in SIGNERS}
    return Options(
        controllers=options.selected(parsed.strings("controllers")),
        files=options.authority_files(_pair(parsed, "cluster-signing"), own),
        longest=timedelta(seconds=_positive(parsed, "cluster-signing-duration").seconds),
        election=_election(parsed) if parsed.flag("leader-elect") else None,
        qps=_rate(parsed),
        burst=parsed.number("kube-api-burst") or 1,
    )


def _pair(parsed: Parsed, prefix: str) -> tuple[str, str]:
    return tuple(_absolute(parsed.text(f"{prefix}-{kind}-file")) for kind in ("cert", "key"))  # type: ignore[return-value]


def _election(parsed: Parsed) -> Election:
    lease, renew, retry = (
        _positive(parsed, f"leader-elect-{name}").seconds for name in ("lease-duration", "renew-deadline", "retry-period")
    )
    if not lease > renew > retry:
        raise UsageError(
            "--leader-elect-lease-duration has to be longer than --leader-elect-renew-deadline, and that longer than --leader-elect-retry-period",
            remedy="leave them out: 15s, 10s and 2s are good values",
        )
    return Election(
        name=parsed.text("leader-elect-resource-name"),
        namespace=parsed.text("leader-elect-resource-namespace"),
        lease=lease,
        renew=renew,
        retry=retry,
    )


def _positive(parsed: Parsed, name: str) -> Duration:
    found = Duration.parse(parsed.text(name))
    if found <= 0:
        raise UsageError(f"--{name} has to be longer than nothing", remedy="write a duration like 90s, 2m or 1h30m")
    return found


def _rate(parsed: Parsed) -> float:
    try:
        found = float(parsed.text("kube-api-qps"))
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise UsageError("--kube-api-qps has to be a number above zero", remedy="write one like 20 or 0.5")
    return found


async def _serve(parsed: Parsed, chosen: Options) -> int:
    files, clock, random = Files(), SystemClock(), SystemRandom()
    access = load_access(PurePosixPath(_absolute(parsed.text("kubeconfig"))), read=files.read)
    api = AsyncKubeClient(access, field_manager=_MANAGER, proxies=Proxies.from_environment(os.environ))
    identity = f"{os.uname().nodename}_{uuid.UUID(bytes=random.token_bytes(16), version=4)}"
    manager = Manager(api, chosen, identity=identity, read=files.read, clock=clock, random=random)
    server = await _health(parsed, files, lambda: "" if manager.synced else "the watches have not been answered yet")
    try:
        await _until_stopped(manager.run)
    finally:
        await server()
        await api.close()
    return 0


async def _health(parsed: Parsed, files: Files, ready: Callable[[], str]) -> Callable[[], Awaitable[None]]:
    """Serve health where a port is given, and return what stops it."""
    from kubewright.controllers import health
    from kubewright.http import tls

    port = parsed.number("secure-port")

    async def nothing() -> None:
        return

    if not port:
        return nothing
    names = [_absolute(parsed.text(name)) for name in ("tls-cert-file", "tls-private-key-file")]
    if any(names) and not all(names):
        raise UsageError("--tls-cert-file and --tls-private-key-file go together", remedy="name both")
    if all(names):
        contents = [files.read(PurePosixPath(name)) for name in names]
        for name, content in zip(names, contents, strict=True):
            if content is None:
                raise CertificateError(f"{name} does not exist", remedy="name the files to serve health with, or leave them out")
        context = tls.server_context(*(content or b"" for content in contents))
    else:
        context = health.own_context(clock=SystemClock(), random=SystemRandom())
    server = await health.serve_health(host=parsed.text("bind-address"), port=port, context=context, ready=ready)
    return server.stop


async def _until_stopped(work: Callable[[], Awaitable[None]]) -> None:
    """Work until a signal comes. What the work raises is raised."""
    running = asyncio.get_running_loop()
    task = asyncio.ensure_future(work())
    stopped = False

    def stop(number: signal.Signals) -> None:
        nonlocal stopped
        stopped = True
        _log.info("stopping, told by %s", number.name)
        task.cancel()

    for number in _STOPPING:
        running.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise


def _absolute(path: str) -> str:
    return os.path.normpath(Path(path).absolute()) if path else ""
