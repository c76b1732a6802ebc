"""The mark in the environment of all processes of a cluster, by which they are found without their daemon."""

from __future__ import annotations

from typing import Final

from kubewright.base.records import dataclass

CLUSTER: Final = "KUBEWRIGHT_CLUSTER"
CLUSTER_ID: Final = "KUBEWRIGHT_CLUSTER_ID"


@dataclass(frozen=True, kw_only=True)
class Mark:
    """The mark of a cluster's processes: its state directory, and the id that it got when it was created."""

    directory: str
    id: str = ""

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of the cluster's processes."""
        return {CLUSTER: self.directory, **({CLUSTER_ID: self.id} if self.id else {})}

    @property
    def shared(self) -> str:
        """The directory that identifies our processes in other mount namespaces; '' if the id is unknown too."""
        return self.directory if self.id else ""
