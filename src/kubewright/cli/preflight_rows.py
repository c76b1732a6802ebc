"""The rows of `preflight`: the checks of init and join alone. Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli import init_rows, join_rows
from kubewright.cli.commands import summary
from kubewright.cli.model import ALL_FORMATS, Command

_INIT = (
    "apiserver-advertise-address apiserver-bind-port cert-dir config cri-socket ignore-preflight-errors image-repository kubernetes-version"
    " node-name pod-network-cidr service-cidr"
)
_JOIN = (
    "apiserver-advertise-address apiserver-bind-port config control-plane cri-socket discovery-file discovery-token"
    " discovery-token-ca-cert-hash discovery-token-unsafe-skip-ca-verification ignore-preflight-errors node-name tls-bootstrap-token token"
)
_FLAGS = {command.path: {flag.name: flag for flag in command.flags} for command in (init_rows.ROWS[0], join_rows.ROWS[0])}
_DESCRIPTION = (
    "Looks only. Every check is made, all at the same time, and each failure says how to mend it. Exits 4 if any stops the command."
)

ROWS = (
    Command("preflight", summary("preflight")),
    Command(
        "preflight init",
        "Check whether this machine can become the first control plane of a cluster",
        handler="kubewright.cli.preflight:init",
        flags=(*(_FLAGS["init"][name] for name in _INIT.split()), ALL_FORMATS),
        description=_DESCRIPTION,
        examples=("preflight init --config kubeadm.yaml", "preflight init --ignore-preflight-errors Swap -o json"),
    ),
    Command(
        "preflight join",
        "Check whether this machine can join a cluster; the cluster is not asked",
        handler="kubewright.cli.preflight:join",
        argument=join_rows.ROWS[0].argument,
        flags=(*(_FLAGS["join"][name] for name in _JOIN.split()), ALL_FORMATS),
        description=_DESCRIPTION,
        examples=("preflight join --config join.yaml"),
    ),
)
