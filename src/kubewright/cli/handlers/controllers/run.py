"""`controllers run`: a daemon that replaces controllers of kube-controller-manager."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import PurePosixPath
from types import TracebackType
from typing import Final

from kubewright.base import logs
from kubewright.base.clock import SystemClock
from kubewright.base.errors import UsageError
from kubewright.base.randomness import SystemRandom
from kubewright.cli.handlers.controllers import evidence_tools, journals
from kubewright.cli.handlers.controllers.reviewing import policy_location
from kubewright.cli.handlers.daemons import leader_election, serving
from kubewright.cli.handlers.daemons.running import report_status, until_stopped
from kubewright.cli.parsing.flag_documents import FlagDocument
from kubewright.cli.parsing.inputs import absolute, given_duration
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.rows.controllers import RUN_FLAGS, SIGNERS
from kubewright.controllers import options
from kubewright.controllers.manager import Manager
from kubewright.controllers.options import Options
from kubewright.controllers.serving.locations import PolicyLocation
from kubewright.controllers.telemetry import ControllerMetrics
from kubewright.host.filesystem.files import Files
from kubewright.host.notify import Notifier
from kubewright.http.proxies import Proxies
from kubewright.kube.client import AsyncKubeClient
from kubewright.kube.daemons import identities, in_cluster
from kubewright.kube.kubeconfigs import load_access

CONFIG: Final = FlagDocument(
    api_version="controllers.kubewright/v1alpha1", kind="ControllersConfiguration", command="controllers run", flags=RUN_FLAGS
)
_MANAGER: Final = "kubewright-controllers"


def run(parsed: Parsed) -> int:
    """Run the controllers until a signal stops them; then complete the work in progress and release the lease."""
    parsed = CONFIG.with_file(parsed)
    chosen = options_of(parsed)
    logs.configure(max(1, parsed.number("v") or 0))
    from kubewright.http import loop

    return loop.run(lambda: _serve(parsed, chosen))


def options_of(parsed: Parsed) -> Options:
    """Read the flags. Raises UsageError with all values that are invalid for kube-controller-manager too."""
    problems, own = UsageProblems(), {word: _pair(parsed, f"cluster-signing-{word}") for word in SIGNERS}
    with problems:
        _require_cluster(parsed)
    with problems:
        chosen = options.selected(parsed.strings("controllers"))
        policy = policy_location(parsed)
        _require_policy(chosen, policy)
    with problems:
        files = options.authority_files(_pair(parsed, "cluster-signing"), own)
    with problems:
        longest = timedelta(seconds=given_duration(parsed, "cluster-signing-duration").seconds)
    with problems:
        names = {word: parsed.text(f"leader-elect-resource-{word}") for word in ("name", "namespace")}
        election = leader_election.election(parsed, **names)
    with problems:
        rate = _rate(parsed)
    problems.require()
    return Options(
        controllers=chosen,
        files=files,
        longest=longest,
        election=election,
        qps=rate,
        burst=parsed.number("kube-api-burst") or 1,
        node_policy=policy,
    )


def _require_cluster(parsed: Parsed) -> None:
    if not parsed.text("kubeconfig") and not in_cluster.is_in_cluster(os.environ):
        raise UsageError("no cluster is configured", remedy="pass its kubeconfig with --kubeconfig, which is optional only in a pod")


def _require_policy(chosen: frozenset[str], policy: PolicyLocation | None) -> None:
    if options.SERVING_APPROVING in chosen and policy is None:
        raise UsageError("servingapproving needs a policy", remedy="pass a NodeApprovalPolicy with --node-policy")


def _pair(parsed: Parsed, prefix: str) -> tuple[str, str]:
    return tuple(absolute(parsed.text(f"{prefix}-{kind}-file")) for kind in ("cert", "key"))  # type: ignore[return-value]


def _rate(parsed: Parsed) -> float:
    try:
        found = float(parsed.text("kube-api-qps"))
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise UsageError("--kube-api-qps must be a number above zero", remedy="write one like 20 or 0.5")
    return found


async def _serve(parsed: Parsed, chosen: Options) -> int:
    from kubewright.http.metrics import Registry

    files, clock, random = Files(), SystemClock(), SystemRandom()
    named = parsed.text("kubeconfig")
    path = PurePosixPath(absolute(named))
    access = load_access(path, read=files.read) if named else in_cluster.in_cluster_access(os.environ, read=files.read)
    api = AsyncKubeClient(access, field_manager=_MANAGER, proxies=Proxies.from_environment(os.environ))
    registry = Registry()
    identity = leader_election.identity(random)
    manager = Manager(
        api,
        chosen,
        identity=identity,
        read=files.read,
        clock=clock,
        random=random,
        metrics=ControllerMetrics(registry),
        tools=evidence_tools.tools(),
        journal=journals.writer(parsed.text("journal"), files=files),
    )
    notifier = Notifier(os.environ)
    stop_serving = await serving.serve(
        parsed,
        files=files,
        ready=lambda: "" if manager.synced else "the watches have not been answered yet",
        metrics=registry,
        own=None if named else api,
    )

    def status() -> str:
        return "working" if manager.leads else "waiting for the lease"

    async def alongside() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(report_status(notifier, ready=lambda: manager.synced, status=status), name="service manager")
            if named:
                group.create_task(identities.keep_kubeconfig((api,), access, path, read=files.read), name="credentials")
            else:
                group.create_task(in_cluster.keep_token((api,), access, read=files.read), name="credentials")

    try:
        await until_stopped(manager.run, alongside=alongside, stopping=notifier.stopping)
    finally:
        await stop_serving()
        await api.close()
    return 0


class UsageProblems:
    """Collects invalid values, so that all of them are reported together.

    It is a context for each value, as often as needed; call `require` before the values are used.

    problems = UsageProblems()
    with problems:
        rate = rate_of(parsed)
    with problems:
        pair = pair_of(parsed)
    problems.require()
    """

    def __init__(self) -> None:
        self._found: list[UsageError] = []

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> bool:
        if isinstance(error, UsageError):
            self._found.append(error)
            return True
        return False

    def require(self) -> None:
        """Raise UsageError if there were problems: the only one, or one that lists them all."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            rows = [f"{error}; {error.remedy}" if error.remedy else str(error) for error in self._found]
            raise UsageError(f"{len(rows)} values are not valid", detail="\n".join(rows), remedy="correct each of them")
