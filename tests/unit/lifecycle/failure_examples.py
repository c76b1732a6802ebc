"""The output of real programs that failed, for each row of the tables of hints: the latest lines of one run, from the journal or the log.

From the kubelet v1.36.3 under systemd v252, etcd v3.6.8 and kube-apiserver v1.36.3;
`tests/machines/test_faults_checks.py` and `tests/controlplane/test_component_failures.py` make them write the same
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_EXITED: Final = (
    "kubelet.service: Main process exited, code=exited, status=1/FAILURE",
    "kubelet.service: Failed with result 'exit-code'.",
)
_NOT_STARTED: Final = ("kubelet.service: Main process exited, code=exited, status=203/EXEC", _EXITED[1])
_STARTED: Final = "Started kubelet.service - kubelet."


def _failed(error: str) -> tuple[str, ...]:
    return (_STARTED, f'E1123 21:15:45.100998     352 run.go:72] "command failed" err="{error}"', *_EXITED)


KUBELET: Final[Mapping[str, tuple[str, ...]]] = {
    "failed to parse kubelet flag": _failed("failed to parse kubelet flag: unknown flag: --nonsense"),
    "not run on a host using cgroup v1": _failed(
        "failed to validate kubelet configuration, error: kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is"
        " unsupported and will be removed in a future release, path: &TypeMeta{Kind:,APIVersion:,}"
    ),
    "failed to validate kubelet configuration": _failed(
        "failed to validate kubelet configuration, error: invalid configuration: maxPods (--max-pods) -1 must not be a negative number,"
        " path: &TypeMeta{Kind:,APIVersion:,}"
    ),
    "failed to load kubelet config file": _failed(
        "failed to load kubelet config file, path: /var/lib/kubelet/config.yaml, error: failed to load Kubelet config file"
        " /var/lib/kubelet/config.yaml, error failed to decode: yaml: line 7: did not find expected node content"
    ),
    "running with swap on": _failed(
        "failed to run Kubelet: running with swap on is not supported, please disable swap or set --fail-swap-on flag to false"
    ),
    "exec format error": (
        _STARTED,
        "kubelet.service: Failed to execute /usr/bin/kubelet: Exec format error",
        "kubelet.service: Failed at step EXEC spawning /usr/bin/kubelet: Exec format error",
        *_NOT_STARTED,
    ),
    "failed at step exec": (
        "kubelet.service: Failed to locate executable /usr/bin/kubelet: No such file or directory",
        _STARTED,
        "kubelet.service: Failed at step EXEC spawning /usr/bin/kubelet: No such file or directory",
        *_NOT_STARTED,
    ),
    "validate service connection": _failed(
        'failed to run Kubelet: validate service connection: validate CRI v1 runtime API for endpoint \\"unix:///run/containerd/containerd.sock'
        '\\": rpc error: code = Unavailable desc = connection error: desc = \\"transport: Error while dialing: dial unix'
        ' /run/containerd/containerd.sock: connect: no such file or directory\\"'
    ),
    "address already in use": (
        _STARTED,
        'E1123 21:15:48.078972     506 server.go:209] "Failed to listen and serve" err="listen tcp 0.0.0.0:10250: bind: address already in use"',
        *_EXITED,
    ),
    "no space left on device": _failed(
        "failed to run Kubelet: create ResourceClaim cache: GetOrCreate() on checkpoint state: failed to store checkpoint dra_manager_state:"
        " could not save checkpoint dra_manager_state: write /var/lib/kubelet/.2398971169: no space left on device"
    ),
    "read-only file system": _failed(
        "failed to run Kubelet: create ResourceClaim cache: GetOrCreate() on checkpoint state: failed to store checkpoint dra_manager_state:"
        " could not save checkpoint dra_manager_state: open /var/lib/kubelet/.4045470658: read-only file system"
    ),
}
"""By the text of the row."""


def _etcd(error: str) -> tuple[str, ...]:
    return (
        '{"level":"info","ts":"2026-11-23T21:19:28.618735Z","caller":"embed/etcd.go:428","msg":"closed etcd server","name":"default"}',
        f'{{"level":"fatal","ts":"2026-11-23T21:19:28.619278Z","caller":"etcdmain/etcd.go:183","msg":"discovery failed","error":"{error}"}}',
    )


_USAGE: Final = ("Usage:", "", "  etcd [flags]", "    Start an etcd server.")
COMPONENT: Final[Mapping[str, tuple[str, ...]]] = {
    "no space left on device": (
        '{"level":"panic","ts":"2026-11-23T21:19:28Z","caller":"x","msg":"failed to create WAL","error":"no space left on device"}',
        "panic: failed to create WAL",
        "",
        "goroutine 1 [running]:",
    ),
    "read-only file system": _etcd("cannot access data directory: mkdir /var/lib/etcd: read-only file system"),
    "address already in use": _etcd("listen tcp 127.0.0.1:2379: bind: address already in use"),
    "unknown flag": ("Error: unknown flag: --nonsense",),
    "flag provided but not defined": ("flag provided but not defined: -nonsense", *_USAGE),
    "invalid argument": ('Error: invalid argument "x" for "-v, --v" flag: strconv.ParseUint: parsing "x": invalid syntax',),
    "invalid value": ('invalid value "x" for flag -heartbeat-interval: parse error', *_USAGE),
    "permission denied": _etcd("cannot access data directory: open /var/lib/etcd/.touch: permission denied"),
}
"""By the text of the row."""
