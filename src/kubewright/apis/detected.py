"""What a machine tells about itself. Defaulting is pure: it takes these values instead of looking."""

from __future__ import annotations

from collections.abc import Mapping

from kubewright.base.records import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Detected:
    """Facts of one machine, gathered once by `lifecycle.configuration`.

    `version_labels` maps labels such as `stable-1` to what the release server answered; a label that is missing was not answered.
    """

    host_name: str
    default_ipv4: str | None = None
    default_ipv6: str | None = None
    loopback_global: str | None = None
    """A global address configured on the loopback interface, if any (it replaces a loopback advertise address)."""
    cri_sockets: tuple[str, ...] = ()
    """The known container runtime sockets that exist."""
    systemd_resolved: bool = False
    ca_directories: tuple[str, ...] = ()
    """Those of the host's well-known CA directories that exist (spec/kubeadm.md 6.7)."""
    proxy_environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of our own environment whose name ends in `_proxy`, any case, not empty."""
    version_labels: Mapping[str, str] = field(default_factory=dict)
