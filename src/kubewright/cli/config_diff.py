"""The `config diff` command: a file beside what a cluster keeps; kubeadm has no such command."""

from __future__ import annotations

import sys
from contextlib import closing

from kubewright.base.errors import UsageError
from kubewright.base.masking import mask
from kubewright.cli import cluster_access
from kubewright.cli.output import write_result
from kubewright.cli.parser import Parsed
from kubewright.lifecycle import config_differences, config_sides
from kubewright.lifecycle.configuration import read_documents

DIFFERS = 1
"""The exit code where something differs, as `diff` has it; trouble is 2 or more."""


def diff(parsed: Parsed) -> int:
    """Show what differs between the cluster's configuration and a file's, after both were defaulted."""
    path = parsed.text("config")
    if not path:
        raise UsageError("--config is mandatory", remedy="name a file of kubeadm configuration documents")
    documents = read_documents(path)
    access = cluster_access.of_user(parsed.text("kubeconfig") if "kubeconfig" in parsed.given else "")
    with closing(cluster_access.client(access)) as api:
        stored = config_sides.read_stored(api)
    file, cluster = config_sides.file_side(documents, stored), config_sides.cluster_side(stored)
    found = config_differences.compare(cluster, file)
    sys.stderr.write(mask("".join(f"warning: {warning}\n" for warning in (*cluster.warnings, *file.warnings))))
    form = parsed.text("output")
    if form == "text":
        sys.stdout.write("".join(one.diff for one in found))
    else:
        write_result({"differs": bool(found), "documents": [one.as_map() for one in found]}, form=form)
    return DIFFERS if found else 0
