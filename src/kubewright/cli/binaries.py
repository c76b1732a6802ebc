"""The `binaries` commands."""

from __future__ import annotations

import os
import sys

from kubewright import binaries
from kubewright.base.errors import CheckFailed
from kubewright.base.versions import supported
from kubewright.binaries import Sources
from kubewright.cli.output import table, write_result
from kubewright.cli.parser import Parsed
from kubewright.cli.reporting import progress


def sources(parsed: Parsed) -> Sources:
    """Return the sources that the flags and the environment allow."""
    return binaries.sources_from(os.environ, directory=parsed.text("binaries-dir") or None)


def list_binaries(parsed: Parsed) -> int:
    """List every program: where it is and where it came from."""
    version = str(supported(parsed.text("kubernetes-version")))
    rows = [row.as_map() for row in binaries.listing(version=version, sources=sources(parsed))]
    if parsed.text("output") == "text":
        columns = [(key, key.upper()) for key in ("name", "version", "present", "source", "size", "path", "reason")]
        sys.stdout.write(table(rows, columns=columns))
    else:
        write_result({"binaries": rows}, form=parsed.text("output"))
    return 0


def fetch(parsed: Parsed) -> int:
    """Get programs into the cache, and print where they are."""
    version = str(supported(parsed.text("kubernetes-version")))
    form = parsed.text("output")
    with progress("getting binaries", form=form) as reporter:
        found = binaries.ensure(parsed.strings("program") or binaries.DEFAULT, version=version, sources=sources(parsed), reporter=reporter)
    rows = [binary.as_map() for binary in found.values()]
    if form == "text":
        sys.stdout.write(table(rows, columns=[(key, key.upper()) for key in ("name", "version", "source", "path")]))
    else:
        write_result({"binaries": rows}, form=form)
    return 0


def verify(parsed: Parsed) -> int:
    """Hash programs again. Raises CheckFailed if one is not what was recorded."""
    version = str(supported(parsed.text("kubernetes-version")))
    found = binaries.verify(parsed.strings("program"), version=version, sources=sources(parsed))
    rows: list[dict[str, object]] = [{"name": one.binary.name, "ok": not one.fault, "detail": one.fault} for one in found]
    if parsed.text("output") == "text":
        sys.stdout.write(table(rows, columns=[("name", "NAME"), ("ok", "OK"), ("detail", "DETAIL")]))
    else:
        write_result({"binaries": rows}, form=parsed.text("output"))
    bad = [one.binary.name for one in found if one.fault]
    if bad:
        raise CheckFailed(
            f"{', '.join(bad)} changed since it was got",
            remedy="remove it from the cache and fetch it again with `kubewright binaries fetch`",
        )
    return 0
