"""The contexts of a cluster in its user's kubeconfigs: `local use` adds one, `down` removes it from every file to which it was added.

It follows the rules of `kubectl config` (client-go v0.36: tools/clientcmd/config.go): the first existing file in
$KUBECONFIG is changed, else the last one; the existence of `FILE.lock` excludes others; comments are lost. Unlike
kubectl, this module waits for the lock, replaces the file atomically with mode 0600, and follows a link to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

from kubewright.apis.kubeconfig import documents, parse, resolve_discovery
from kubewright.base import yaml
from kubewright.base.change import Action, Change
from kubewright.base.clock import Clock, SystemClock
from kubewright.base.errors import HostError, KubewrightError, UsageError
from kubewright.base.events import Reporter, SilentReporter, Warned
from kubewright.base.homes import expanded
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass
from kubewright.base.wait import PollingWaiter
from kubewright.host.desired import File
from kubewright.host.filesystem.files import Files
from kubewright.host.locks import Lock
from kubewright.kube.kubeconfigs import default_paths as kubeconfig_places
from kubewright.local import record
from kubewright.local.cluster import status
from kubewright.local.paths import ClusterPaths

LOCK_WITHIN: Final = 5.0
"""Seconds to wait for the lock of a kubeconfig; kubectl holds it for milliseconds."""


@dataclass(frozen=True, kw_only=True)
class UseResult:
    """The result of `local use`: the current context, its file, and how the file changed."""

    kubeconfig: Path
    context: str
    change: Change


def context_name(paths: ClusterPaths) -> str:
    """Return the name of a cluster's context, and of its cluster and user."""
    return f"kubewright-{paths.name}"


def target(environment: Mapping[str, str], *, clusters: Path, given: str = "") -> Path:
    """Return the kubeconfig to change: the given one, else by client-go's rule.

    The kubeconfigs of local clusters themselves, below `clusters`, are skipped: `local env` puts one into $KUBECONFIG.
    If no other file is named, ~/.kube/config is used. Raises UsageError if no home directory is known.
    """
    if given:
        return expanded(given).absolute()
    home = PurePosixPath(environment["HOME"]) if environment.get("HOME") else None
    named = [Path(path).absolute() for path in kubeconfig_places(environment, home=home)]
    users = [path for path in named if not _is_below(path, clusters)]
    candidates = users or [Path(path).absolute() for path in kubeconfig_places({}, home=home)]
    if not candidates:
        raise UsageError("no kubeconfig is known", remedy="set HOME or KUBECONFIG, or pass one with --kubeconfig")
    return next((path for path in candidates if _may_exist(path)), candidates[-1])


def _may_exist(path: Path) -> bool:
    """Return whether a file exists. One that cannot be checked counts as existing, so that reading it reports why (client-go: tools/clientcmd/loader.go)."""
    try:
        return path.exists()
    except PermissionError:
        return True


def _is_below(path: Path, directory: Path) -> bool:
    return path.resolve().is_relative_to(directory.resolve())


def use(paths: ClusterPaths, path: Path, *, reporter: Reporter | None = None, clock: Clock | None = None) -> UseResult:
    """Make a cluster the current context of a kubeconfig. A second run changes nothing.

    Raises UsageError if the cluster does not exist, or an entry of its name belongs to another owner; Locked,
    DocumentError and ValidationError as reading does.
    """
    clock = clock or SystemClock()
    _require_users_own(path, paths)
    status.require(paths)
    with Lock(PurePosixPath(paths.lock), doing=f"local use of cluster {paths.name}", clock=clock):
        addition = _addition(paths, status.require(paths))
        with _locked(path, reporter=reporter or SilentReporter(), clock=clock):
            found = _read(path)
            _require_free(found, addition, path)
            _remember(paths, addition.owner.id, path)  # first: `down` leaves entries that are not recorded
            wanted = documents.added(found, addition)
            action = Action.NONE if wanted == found else Action.UPDATE if path.exists() else Action.CREATE
            if action is not Action.NONE:
                _write(path, wanted)
    change = Change(target=f"context {addition.name} of {path}", action=action)
    return UseResult(kubeconfig=path, context=addition.name, change=change)


def take_out(paths: ClusterPaths, *, reporter: Reporter | None = None) -> list[Path]:
    """Remove a cluster from the kubeconfigs to which `use` added it; returns those that were changed.

    A file that cannot be changed is a warning.
    """
    reporter, changed = reporter or SilentReporter(), []
    owner_id, files = _remembered(paths)
    for path in files:
        try:
            if path.exists() and _remove(path, owner_id, reporter=reporter):
                changed.append(path)
        except KubewrightError as error:
            name = context_name(paths)
            reporter.emit(Warned(text=f"{path} still names the cluster: {error}; `kubectl config delete-context {name}` removes it"))
    return changed


def _remove(path: Path, owner_id: str, *, reporter: Reporter) -> bool:
    with _locked(path, reporter=reporter, clock=SystemClock()):
        found = _read(path)
        wanted = documents.taken_out(found, owner_id)
        if wanted == found:
            return False
        _write(path, wanted)
        return True


def _addition(paths: ClusterPaths, cluster: record.ClusterRecord) -> documents.Addition:
    """Return the entries from the administrator's kubeconfig, with embedded certificates and key."""
    path = status.kubeconfig(paths, cluster)
    if not path.is_file():
        command = f"{'sudo ' if cluster.is_whole else ''}kubewright up --name {paths.name}"
        raise UsageError(f"cluster {quoted(paths.name)} has no kubeconfig yet", detail=str(path), remedy=f"run `{command}` first")
    document = yaml.load_one(path.read_bytes(), source=str(path))
    resolve_discovery(parse(document), untrusted=True)  # another user may be able to write the file
    config: Any = document.value
    context = next(one["context"] for one in config["contexts"] if one["name"] == config["current-context"])
    return documents.Addition(
        name=context_name(paths),
        cluster=next(one["cluster"] for one in config["clusters"] if one["name"] == context["cluster"]),
        user=next(one["user"] for one in config["users"] if one["name"] == context["user"]),
        owner=documents.Owner(id=cluster.id, directory=str(paths.root)),
    )


def _require_users_own(path: Path, paths: ClusterPaths) -> None:
    """Refuse to change the kubeconfigs of local clusters."""
    if _is_below(path, paths.root.parent):
        raise UsageError(f"{path} belongs to a local cluster itself", remedy="pass a file of your own with --kubeconfig")


def _require_free(config: Mapping[str, Any], addition: documents.Addition, path: Path) -> None:
    """Refuse to replace entries that are not ours or belong to another cluster, unless that was removed."""
    for owner in documents.owners(config, addition.name):
        if owner is None:
            raise UsageError(
                f"{path} has an entry {addition.name} that kubewright did not create",
                remedy="rename or remove it (`kubectl config delete-context`, `delete-cluster`, `delete-user`), or use another --kubeconfig",
            )
        if owner.id != addition.owner.id and owner.directory != addition.owner.directory and _lives(owner):
            raise UsageError(
                f"{addition.name} of {path} is the cluster in {owner.directory}",
                remedy="use another --kubeconfig, or start a cluster with another name",
            )


def _lives(owner: documents.Owner) -> bool:
    try:
        found = record.load(Path(owner.directory) / "cluster.json")
    except HostError:
        return False
    return found is not None and found.id == owner.id


@contextmanager
def _locked(path: Path, *, reporter: Reporter, clock: Clock) -> Iterator[None]:
    """Hold the lock of a kubeconfig under client-go's name.

    Ours ends with our process; one that another program left must be removed manually.
    """
    lock = Lock(PurePosixPath(f"{path}.lock"), doing="local use", clock=clock)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    PollingWaiter(clock=clock, reporter=reporter).until(
        lock.try_acquire,
        within=LOCK_WITHIN,
        saying=f"the lock of {path}",
        remedy=f"if no kubectl is using it, remove {path}.lock, then run the same command again",
    )
    try:
        yield
    finally:
        lock.release(remove=True)


def _read(path: Path) -> dict[str, Any]:
    """Read a kubeconfig; {} if there is none.

    Raises DocumentError and ValidationError: an invalid file is not written either.
    """
    content = Files().read(PurePosixPath(path))
    if content is None:
        return {}
    document = yaml.load_one(content, source=str(path))
    if document.value is None:
        return {}
    parse(document)
    found: Any = document.value
    return dict(found)


def _write(path: Path, config: Mapping[str, Any]) -> None:
    """Replace a kubeconfig atomically; its owner stays the same."""
    real = PurePosixPath(path.resolve())
    before = Files().state(real)
    owner, group = (before.owner, before.group) if before is not None else (None, None)
    Files().write(File(path=real, content=yaml.dump(config).encode(), mode=0o600, owner=owner, group=group))


def _remember(paths: ClusterPaths, owner_id: str, path: Path) -> None:
    known, files = _remembered(paths)
    wanted = sorted({*map(str, files), str(path)})
    if (known, [str(one) for one in files]) != (owner_id, wanted):
        content = json.dumps({"id": owner_id, "files": wanted}, indent=1) + "\n"
        Files().write(File(path=PurePosixPath(paths.contexts), content=content.encode(), mode=0o600))


def _remembered(paths: ClusterPaths) -> tuple[str, list[Path]]:
    try:
        found = json.loads(paths.contexts.read_bytes())
        return str(found["id"]), [Path(str(one)) for one in found["files"]]
    except (OSError, ValueError, KeyError, TypeError):
        return "", []
