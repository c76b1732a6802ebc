"""`config images pull`: the images of a control plane through the container runtime of this machine."""

from __future__ import annotations

from contextlib import closing
from typing import Final

from kubewright.apis.kubeadm import images
from kubewright.apis.kubeadm.types import Configuration
from kubewright.base.clock import SystemClock
from kubewright.base.events import Line
from kubewright.cli.reporters import JsonLines, KubeadmText, logged
from kubewright.host.cri.runtime import CRIRuntime
from kubewright.host.runtime_tasks import Pull, PullPolicy, pull_images

TOPIC: Final = "config/images"


def pull(configuration: Configuration, *, form: str) -> list[str]:
    """Pull every image, also those that are there, as kubeadm does; return their names.

    Text lines go to stdout as the images come; for other forms events go to stderr. Of the file only `imagePullSerial` counts.
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
