"""The `config` commands except those of images: print, validate, migrate (kubeadm v1.36: cmd/config.go, util/config/common.go); explain and diff."""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from kubewright.apis.findings import closest
from kubewright.apis.kubeadm import codec
from kubewright.apis.kubeadm.arguments import of_control_plane, of_node
from kubewright.apis.kubeadm.whole_files import WholeFile, load_whole
from kubewright.apis.machine import Detected, Layout
from kubewright.base.errors import DocumentError, HostError, KubewrightError, UsageError, ValidationError
from kubewright.base.masking import mask
from kubewright.base.messages import quoted
from kubewright.base.records import asdict
from kubewright.cli.handlers import machine
from kubewright.cli.parsing.inputs import read_documents
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import documents_text, table, write_documents, write_output, write_result

if TYPE_CHECKING:
    from kubewright.apis.kubeadm.explanations import Explanation


_NEW_FILE_MODE = 0o644
DIFFERS = 1
"""The exit code if there are differences, as in `diff`; errors have 2 or more."""


def print_init(parsed: Parsed) -> int:
    """Print example documents for `init`, and those of requested components."""
    kinds = parsed.strings("component-configs")
    for kind in kinds:
        if kind not in codec.COMPONENTS:
            raise UsageError(
                f"--component-configs: {quoted(kind)} is not a component kind", remedy=f"choose one of {', '.join(codec.COMPONENTS)}"
            )
    return _print(codec.init_examples(kinds), parsed)


def print_join(parsed: Parsed) -> int:
    """Print an example document for `join`."""
    return _print([codec.join_example(machine.detected().host_name)], parsed)


def print_reset(parsed: Parsed) -> int:
    """Print an example document for `reset`."""
    return _print([codec.reset_example()], parsed)


def print_upgrade(parsed: Parsed) -> int:
    """Print an example document for the upgrade commands."""
    return _print([codec.upgrade_example()], parsed)


def validate(parsed: Parsed) -> int:
    """Check every document of a file. With json and yaml, the problems are the result, not an error."""
    path, form, look = _mandatory(parsed, "config"), parsed.text("output"), functools.cache(machine.detected)
    try:
        found = load_whole(read_documents(path), detected=look, exists=_exists, allow_deprecated=parsed.flag("allow-deprecated-api"))
        warnings = [*found.warnings, *_about_arguments(found, look)]
    except (DocumentError, ValidationError) as error:
        if form == "text":
            raise
        return _judged(form, error=error)
    if form == "text":
        warn(warnings)
        sys.stdout.write("ok\n")
        return 0
    return _judged(form, warnings=warnings)


def _judged(form: str, *, error: KubewrightError | None = None, warnings: Sequence[str] = ()) -> int:
    from kubewright.cli.printers.reporters import masked

    found = {"valid": error is None, "warnings": [*warnings], "error": error.as_map() if error else None}
    write_result(masked(found), form=form)
    return 1 if error else 0


def _about_arguments(found: WholeFile, machine: Callable[[], Detected]) -> list[str]:
    """Return the warnings about arguments for components."""
    mine = list(of_control_plane(found.configuration)) if found.configuration else []
    joining = list(of_node(found.join.node_registration)) if found.join else []
    if not (mine or joining):
        return []
    from kubewright.manifests.extra_arguments import Surroundings, warnings

    layout = Layout()
    if found.configuration:
        cluster = found.configuration.cluster
        layout = layout.at(pki=cluster.certificates_dir, etcd_data=cluster.etcd.local.data_dir if cluster.etcd.local else None)
    around = Surroundings(configuration=found.configuration, layout=layout, look=machine, exists=_exists)
    return warnings([*mine, *joining], around)


def migrate(parsed: Parsed) -> int:
    """Rewrite a file as v1beta4, with all computed defaults."""
    documents = read_documents(_mandatory(parsed, "old-config"))
    found = load_whole(documents, detected=machine.detected, exists=_exists, detect_runtime=True, allow_deprecated=True)
    warn(found.warnings)
    target = parsed.text("new-config")
    if target:
        _write(Path(target), documents_text([*found.documents()], form=parsed.text("output")))
    else:
        write_documents([*found.documents()], form=parsed.text("output"))
    return 0


def explain(parsed: Parsed) -> int:
    """Explain a field of the configuration kinds; kubeadm has no such command."""
    from kubewright.apis.kubeadm import explanations

    asked = parsed.text("field")
    found = explanations.explain(asked)
    if not found:
        raise UsageError(f"no configuration kind has a field {quoted(asked)}", remedy=_suggestion(asked))
    rows = [{**asdict(one), "children": list(one.children)} for one in found]
    form = parsed.text("output")
    if form != "text":
        write_result(rows, form=form)
    elif len(rows) == 1:
        sys.stdout.write(_explained(found[0]))
    else:
        sys.stdout.write(table(rows, columns=[(name, name.upper()) for name in ("kind", "path", "type", "default", "meaning")]))
    return 0


def _explained(found: Explanation) -> str:
    rows = [("field", found.path), ("kind", found.kind), ("type", found.type), ("default", found.default or "-"), ("since", found.since)]
    rows += [("fields", ", ".join(found.children))] if found.children else []
    return "".join(f"{name}:".ljust(9) + f"{value}\n" for name, value in rows) + f"\n{found.meaning}\n"


def _suggestion(asked: str) -> str:
    from kubewright.apis.kubeadm import explanations

    known = {one.path for kind in explanations.KINDS for one in explanations.every(kind)}
    near = closest(asked, [*sorted(known), *explanations.KINDS]) or closest(asked, sorted({path.rpartition(".")[2] for path in known}))
    return f"did you mean {near}?" if near else f"use a field, or one of {', '.join(explanations.KINDS)}"


def diff(parsed: Parsed) -> int:
    """Show the differences between the cluster's configuration and a file's, after defaulting both.

    Kubeadm has no such command.
    """
    from kubewright.cli.handlers import cluster_access
    from kubewright.cli.parsing import inputs
    from kubewright.lifecycle import config_diff

    documents = read_documents(_mandatory(parsed, "config"))
    access = cluster_access.of_user(inputs.given_text(parsed, "kubeconfig"))
    with closing(cluster_access.client(access)) as api:
        stored = config_diff.read_stored(api)
    file, cluster = config_diff.of_file(documents, stored), config_diff.of_cluster(stored)
    found = config_diff.compare(cluster, file)
    warn([*cluster.warnings, *file.warnings])
    data = {"differs": bool(found), "documents": [one.as_map() for one in found]}
    write_output(data, "".join(one.diff for one in found), form=parsed.text("output"))
    return DIFFERS if found else 0


def _mandatory(parsed: Parsed, name: str) -> str:
    value = parsed.text(name)
    if not value:
        raise UsageError(f"--{name} is mandatory", remedy="pass a file with kubeadm configuration documents")
    return value


def _print(documents: Iterable[Mapping[str, Any]], parsed: Parsed) -> int:
    write_documents([*documents], form=parsed.text("output"))
    return 0


def warn(warnings: Sequence[str]) -> None:
    """Write warnings to stderr."""
    if warnings:
        sys.stderr.write(mask("".join(f"warning: {warning}\n" for warning in warnings)))


def _exists(path: str) -> bool:
    """Return whether a path exists. If that cannot be checked, it counts as existing, as in kubeadm."""
    try:
        return bool(path and Path(path).stat())
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def _write(path: Path, text: str) -> None:
    """Write a file atomically. Anything but a regular file, such as /dev/stdout, is written to directly.

    An existing file keeps its mode.
    """
    resolved = path.resolve()
    try:
        if path.exists() and not path.is_file():
            path.write_text(text)
            return
        if not resolved.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, f"the directory {resolved.parent} does not exist")
        mode = resolved.stat().st_mode & 0o7777 if resolved.exists() else _NEW_FILE_MODE & ~_umask()
    except OSError as error:
        raise HostError(f"{path} cannot be written", detail=error.strerror or "", remedy="choose another file with --new-config") from error
    from kubewright.host.desired import File

    machine.host().ensure(File(path=PurePosixPath(resolved), content=text.encode(), mode=mode))


def _umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found
