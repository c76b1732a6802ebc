"""`controllers manifest`: the objects that run the controllers in a cluster, for kubectl and for the directory of static pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubewright.apis.formats import subdomain_problems
from kubewright.apis.machine import Layout
from kubewright.base.errors import UsageError
from kubewright.base.messages import quoted
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import write_documents
from kubewright.controllers import options
from kubewright.manifests import controllers
from kubewright.manifests.rbac import Purpose


def manifest(parsed: Parsed) -> int:
    """Print the documents of one form."""
    form = parsed.text("form")
    render = FORMS.get(form)
    if render is None:
        raise UsageError(f"there is no kind of manifest {quoted(form)}", remedy=f"it is one of {', '.join(FORMS)}")
    options.selected(parsed.strings("controllers"))
    write_documents(render(parsed), form=parsed.text("output"))
    return 0


def _static_pod(parsed: Parsed) -> list[dict[str, Any]]:
    chosen = ",".join(parsed.strings("controllers"))
    return [controllers.machine_static_pod(Layout(), image=_image(parsed), controllers=chosen, purposes=_purposes(parsed))]


def _deployment(parsed: Parsed) -> list[dict[str, Any]]:
    replicas, secret = parsed.number("replicas") or 0, parsed.text("ca-secret")
    if replicas < 1:
        raise UsageError("--replicas must be at least one", remedy="leave it out: the default is two")
    if subdomain_problems(secret):
        raise UsageError(f"--ca-secret: {quoted(secret)} is not the name of a Secret", remedy="write one like kubewright-controllers-ca")
    return controllers.deployment(
        image=_image(parsed),
        replicas=replicas,
        controllers=",".join(parsed.strings("controllers")),
        authority=secret,
        purposes=_purposes(parsed),
    )


def _rbac(parsed: Parsed) -> list[dict[str, Any]]:
    purposes = _purposes(parsed)
    return [*controllers.rights(purposes=purposes), *controllers.stored(purposes)]


def _purposes(parsed: Parsed) -> list[Purpose]:
    """Return the purposes for which the selected controllers need permissions: the approver of serving certificates signs nothing."""
    chosen = options.selected(parsed.strings("controllers"))
    stock = [Purpose.CONTROLLERS] if chosen - {options.SERVING_APPROVING} else []
    return stock + ([Purpose.SERVING_APPROVER] if options.SERVING_APPROVING in chosen else [])


FORMS: Final[Mapping[str, Callable[[Parsed], list[dict[str, Any]]]]] = {"static-pod": _static_pod, "deployment": _deployment, "rbac": _rbac}


def _image(parsed: Parsed) -> str:
    if not parsed.text("image"):
        raise UsageError(
            "kubewright has no published image", remedy="build one (docs/guide/controllers.md), and pass its name with --image"
        )
    return parsed.text("image")
