"""`config images list` and `pull`: the images of a control plane, and pulling them with the container runtime of this machine."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Final

from kubewright.apis.kubeadm.loading import load_init
from kubewright.apis.kubeadm.overrides import InitOverrides, about_flags
from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.kubeadm.versions import images
from kubewright.base.clock import SystemClock
from kubewright.base.errors import ValidationError
from kubewright.base.events import Line
from kubewright.cli.handlers import config, machine
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.inputs import read_documents
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import OUTPUT_VERSION, printer, write_result
from kubewright.cli.printers.reporters import JsonLines, KubeadmText, logged
from kubewright.host.cri.images_and_sandboxes import Pull, PullPolicy, pull_images
from kubewright.host.cri.runtime import CRIRuntime

TOPIC: Final = "config/images"


def list_images(parsed: Parsed) -> int:
    """List the images of a control plane."""
    printed = printer(parsed)
    wanted = images(_configuration(parsed).cluster)
    if printed is None:
        sys.stdout.write("".join(f"{image}\n" for image in wanted))
    else:
        sys.stdout.write(printed([{"kind": "Images", "apiVersion": OUTPUT_VERSION, "images": wanted}]))
    return 0


def pull(parsed: Parsed) -> int:
    """Pull the images of a control plane."""
    form = parsed.text("output")
    pulled = _pulled(_configuration(parsed, pulls=True), form=form)
    if form != "text":
        write_result({"kind": "Images", "apiVersion": OUTPUT_VERSION, "images": pulled}, form=form)
    return 0


def _pulled(configuration: Configuration, *, form: str) -> list[str]:
    """Pull every image, also existing ones, as kubeadm does; return their names.

    Text lines are written to stdout as the images arrive; for other forms, events are written to stderr. Only
    `imagePullSerial` of the file is used.
    """
    registration = configuration.init.node_registration
    how = Pull(policy=PullPolicy.ALWAYS, serial=registration.image_pull_serial)
    reporter = logged(KubeadmText() if form == "text" else JsonLines())
    wanted = images(configuration.cluster)
    with closing(CRIRuntime(registration.cri_socket)) as runtime:
        runtime.version()  # within two seconds; the pull itself has no limit
        for change in pull_images(wanted, runtime=runtime, how=how, clock=SystemClock(), reporter=reporter):
            reporter.emit(Line(topic=TOPIC, text=f"Pulled {change.target.removeprefix('image ')}"))
    return list(wanted)


def _configuration(parsed: Parsed, *, pulls: bool = False) -> Configuration:
    """Load a file, or the defaults.

    Flags override the file; kubeadm ignores them then. `pulls`: a runtime is detected.
    """
    path = parsed.text("config")
    overrides = inputs.record(parsed, InitOverrides)
    try:
        loaded = load_init(
            read_documents(path) if path else [],
            overrides=overrides,
            detected=machine.detected(),
            strict=False,
            validate_only=not pulls,
            from_file=bool(path),
        )
    except ValidationError as error:
        raise about_flags(error, overrides) from error
    config.warn(loaded.warnings)
    return loaded.configuration
