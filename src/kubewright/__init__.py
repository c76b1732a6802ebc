"""kubewright brings up Kubernetes control planes and joins machines to them.

What is exported here is the public API; docs/guide/library.md has examples. Everything else may change from one release
to the next. Importing this package loads nothing: each name is imported when it is first used (PEP 562).
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kubewright.agent.node import NodeAgent
    from kubewright.agent.pods.provider import PodProvider
    from kubewright.apis.machine import Detected
    from kubewright.base.errors import KubewrightError
    from kubewright.base.yaml import dump as dump_yaml
    from kubewright.kube.client import KubeClient
    from kubewright.kube.resources import Resource
    from kubewright.kube.resources import named as resource
    from kubewright.library import connect, generate_token, load_configuration, node_agent, render_static_pods
    from kubewright.local.cluster.cluster import LocalCluster
    from kubewright.pki.pins import pin
    from kubewright.tokens.strings import BootstrapTokenString
    from kubewright.tokens.strings import parse as parse_token

__version__ = "0.1.0"

__all__ = [
    "BootstrapTokenString",
    "Detected",
    "KubeClient",
    "KubewrightError",
    "LocalCluster",
    "NodeAgent",
    "PodProvider",
    "Resource",
    "__version__",
    "connect",
    "dump_yaml",
    "generate_token",
    "load_configuration",
    "node_agent",
    "parse_token",
    "pin",
    "render_static_pods",
    "resource",
]

_HOMES = {
    "BootstrapTokenString": "kubewright.tokens.strings:BootstrapTokenString",
    "Detected": "kubewright.apis.machine:Detected",
    "KubeClient": "kubewright.kube.client:KubeClient",
    "KubewrightError": "kubewright.base.errors:KubewrightError",
    "LocalCluster": "kubewright.local.cluster.cluster:LocalCluster",
    "NodeAgent": "kubewright.agent.node:NodeAgent",
    "PodProvider": "kubewright.agent.pods.provider:PodProvider",
    "Resource": "kubewright.kube.resources:Resource",
    "connect": "kubewright.library:connect",
    "dump_yaml": "kubewright.base.yaml:dump",
    "generate_token": "kubewright.library:generate_token",
    "load_configuration": "kubewright.library:load_configuration",
    "node_agent": "kubewright.library:node_agent",
    "parse_token": "kubewright.tokens.strings:parse",
    "pin": "kubewright.pki.pins:pin",
    "render_static_pods": "kubewright.library:render_static_pods",
    "resource": "kubewright.kube.resources:named",
}
"""Where each name lives."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module, _, attribute = _HOMES[name].partition(":")
    found: object = getattr(importlib.import_module(module), attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING"})
