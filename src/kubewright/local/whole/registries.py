"""Access of machines' container runtimes to registries: the user's hosts files, and the host's proxies.

Both are files of the host that machines see read-only. The proxies are a drop-in for containerd's unit, because their
URLs may contain passwords: only root can read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

from kubewright.apis import formats
from kubewright.base.errors import UsageError
from kubewright.base.events import Reporter, Warned
from kubewright.base.messages import quoted
from kubewright.host.desired import File
from kubewright.host.filesystem.files import Files
from kubewright.http.proxies import parse_proxy
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord
from kubewright.local.whole import members
from kubewright.machines.network import Network
from kubewright.manifests import units

_DROP_IN: Final = "/etc/systemd/system/containerd.service.d/proxies.conf"
_NAMES: Final = ("HTTP_PROXY", "HTTPS_PROXY")
_EXCEPT: Final = "NO_PROXY"
_LOCAL: Final = ("localhost", "127.0.0.0/8", ".svc", ".cluster.local", ".kubewright.internal")


def shared(paths: ClusterPaths) -> dict[str, Path]:
    """Return the file of proxies, by its path in machines; nothing if there are none."""
    return {_DROP_IN: _file(paths)} if _file(paths).exists() else {}


def require_directory(cluster: ClusterRecord) -> None:
    """Raise UsageError if the user's directory of hosts files no longer exists."""
    if cluster.registry_config and not Path(cluster.registry_config).is_dir():
        raise UsageError(
            f"the registry configuration {quoted(cluster.registry_config)} is not a directory",
            remedy=f"restore it, or pass another one, or '' for none, with `sudo kubewright up --name {cluster.name} --registry-config`",
        )


def write_proxies(paths: ClusterPaths, network: Network, environment: Mapping[str, str], *, reporter: Reporter) -> None:
    """Write the proxies of an environment for machines that start from now on; one without proxies, such as sudo's, changes nothing.

    Raises UsageError for an unsupported kind of proxy.
    """
    variables = proxy_variables(environment, network)
    for name in _NAMES:
        host = urlsplit(variables.get(name, "")).hostname or ""
        if host == "localhost" or ((address := formats.address(host)) is not None and address.is_loopback):
            reporter.emit(Warned(text=f"{name} is a loopback address of this host, which machines cannot reach"))
    if variables:
        lines = "".join(f"Environment={units.variable(name, text)}\n" for name, text in variables.items())
        Files().write(File(path=PurePosixPath(_file(paths)), content=f"[Service]\n{lines}".encode(), mode=0o600))


def proxy_variables(environment: Mapping[str, str], network: Network) -> dict[str, str]:
    """Return the variables for containerd, empty if there are no proxies. NO_PROXY includes the addresses and names of the cluster."""
    given = {name: text for name in (*_NAMES, _EXCEPT) if (text := environment.get(name) or environment.get(name.lower(), ""))}
    variables: dict[str, str] = {name: parse_proxy(given[name], name=name).secret_url() for name in _NAMES if name in given}
    if not variables:
        return {}
    user = [entry.strip() for entry in given.get(_EXCEPT, "").split(",")]
    return {
        **variables,
        _EXCEPT: ",".join(dict.fromkeys(filter(None, (*user, *_LOCAL, *network.pods, *network.services, *network.ranges)))),
    }


def _file(paths: ClusterPaths) -> Path:
    return members.directory(paths) / "proxies.conf"
