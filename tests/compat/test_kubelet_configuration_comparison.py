"""How `agent run` reads a kubelet's files and flags, compared with the real kubelet.

The kubelet shows its configuration, and then exits because it has no kubeconfig.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from kubewright import binaries
from kubewright.agent.configuration.options import AgentOptions, hard_eviction
from kubewright.base.durations import Duration
from kubewright.base.errors import KubewrightError
from kubewright.base.level import KUBERNETES
from kubewright.cli.handlers.agent import run as agent
from kubewright.cli.parsing import parser
from kubewright.host.filesystem.files import Files

HEAD: Final = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
NO_CLUSTER: Final = "--kubeconfig=/nonexistent/kubelet.conf"
SHOWN: Final = re.compile(r'"KubeletConfiguration" configuration=<\n(.*?)\n >', re.DOTALL)


def _seconds(text: str) -> float:
    return float(Duration.parse(text).seconds)


def _same(value: Any) -> Any:
    return value


def _taints(rows: list[dict[str, str]] | None) -> list[tuple[str, str, str]]:
    return [(row["key"], row.get("value", ""), row["effect"]) for row in rows or ()]


def _field(name: str, empty: Any = None) -> Callable[[AgentOptions], Any]:
    return lambda found: empty if found.kubelet[name] is None else found.kubelet[name]


COMPARED: Final[Mapping[str, tuple[Callable[[Any], Any], Callable[[AgentOptions], Any]]]] = {
    "EnableServer": (_same, lambda found: found.kubelet_api is not None),
    "EvictionHard": (lambda value: value or {}, lambda found: hard_eviction(found.kubelet)),
    "EvictionMinimumReclaim": (_same, _field("evictionMinimumReclaim")),
    "EvictionPressureTransitionPeriod": (_seconds, lambda found: found.observation.hold),
    "EvictionSoft": (_same, _field("evictionSoft")),
    "EvictionSoftGracePeriod": (_same, _field("evictionSoftGracePeriod")),
    "HealthzBindAddress": (_same, lambda found: found.health[0]),
    "HealthzPort": (_same, lambda found: found.health[1]),
    "KubeReserved": (_same, _field("kubeReserved")),
    "MaxPods": (_same, _field("maxPods")),
    "NodeLeaseDurationSeconds": (_same, lambda found: found.timings.lease_duration),
    "NodeStatusMaxImages": (_same, _field("nodeStatusMaxImages", 50)),
    "NodeStatusReportFrequency": (_seconds, lambda found: found.timings.status_report),
    "NodeStatusUpdateFrequency": (_seconds, lambda found: found.timings.status_update),
    "PodsPerCore": (_same, _field("podsPerCore")),
    "Port": (_same, _field("port")),
    "ProviderID": (_same, _field("providerID")),
    "RegisterNode": (_same, lambda found: found.duties.registers),
    "RegisterWithTaints": (_taints, lambda found: _taints(found.kubelet["registerWithTaints"])),
    "ReservedSystemCPUs": (_same, _field("reservedSystemCPUs")),
    "RotateCertificates": (_same, lambda found: found.duties.rotates),
    "RuntimeRequestTimeout": (_seconds, lambda found: found.runtime_timeout),
    "ServerTLSBootstrap": (_same, _field("serverTLSBootstrap")),
    "SystemReserved": (_same, _field("systemReserved")),
}
"""Fields in the kubelet's own format: what its value means, and the agent's value."""

FILES: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "nothing": ("", {}),
    "zeros": ("maxPods: 0\nport: 0\nnodeStatusUpdateFrequency: 0s\nevictionPressureTransitionPeriod: 0s\nhealthzPort: 0\n", {}),
    "update alone": ("nodeStatusUpdateFrequency: 7s\n", {}),
    "update alone in a drop-in": ("", {"1.conf": "nodeStatusUpdateFrequency: 7s\n"}),
    "update in a drop-in for a file with one": ("nodeStatusUpdateFrequency: 7s\n", {"1.conf": "nodeStatusUpdateFrequency: 3s\n"}),
    "a report that is taken away": (
        "nodeStatusUpdateFrequency: 7s\nnodeStatusReportFrequency: 1m\n",
        {"1.conf": "nodeStatusReportFrequency: null\n"},
    ),
    "a threshold beside the defaults": ("", {"1.conf": "evictionHard: {memory.available: 200Mi}\n"}),
    "a threshold that is taken away": (
        "evictionHard: {memory.available: 200Mi, nodefs.available: 5%}\n",
        {"1.conf": "evictionHard: {memory.available: null}\n"},
    ),
    "all thresholds taken away": ("maxPods: 5\n", {"1.conf": "evictionHard: null\nmaxPods: null\n"}),
    "merged thresholds": ("mergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 200Mi}\n", {}),
    "merged too late": ("evictionHard: {memory.available: 200Mi}\n", {"1.conf": "mergeDefaultEvictionSettings: true\n"}),
    "drop-ins in their order": (
        "maxPods: 5\n",
        {
            "10.conf": "maxPods: 6\n",
            "a/05.conf": "maxPods: 7\n",
            "05.conf": "maxPods: 8\n",
            "z.yaml": "maxPods: 9\n",
            ".h.conf": "port: 1\n",
        },
    ),
    "lists are replaced": (
        "registerWithTaints: [{key: a, effect: NoSchedule}]\n",
        {"1.conf": "registerWithTaints: [{key: b, effect: NoExecute}]\n"},
    ),
    "maps are merged": ("systemReserved: {cpu: 100m}\n", {"1.conf": "systemReserved: {memory: 1Gi}\n"}),
    "an unknown field": ("bogus: 1\nmaxPods: 4\n", {"1.conf": "bogus: 2\nMaxPods: 9\n"}),
    "numbers": ("maxPods: 7.0\nport: 010251\nregisterNode: no\n", {}),
}
FLAGS: Final = (
    ("--max-pods=0", "--eviction-pressure-transition-period=0", "--node-status-max-images=0"),
    ("--eviction-hard=memory.available<1Gi", "--eviction-hard=nodefs.available<5%,", "--system-reserved=cpu=0.5,", "--kube-reserved="),
    ("--eviction-hard= memory.available < 1.5Gi",),
    ("--eviction-soft=memory.available<1Gi", "--eviction-soft-grace-period=memory.available=1m30s"),
    ("--eviction-minimum-reclaim=memory.available=10%",),
    ("--register-with-taints=a=b:NoSchedule,c:NoExecute,d=e:NoSchedule-,f=:NoSchedule",),
    ("--register-with-taints=", "--node-labels=", "--provider-id="),
    ("--node-labels=a,b=,c=d", "--register-node=0", "--rotate-certificates=t", "--reserved-cpus=0"),
    ("--register-with-taints=a=b:NoSchedule", "--register-with-taints=c:NoExecute", "--node-ip=10.0.0.1", "--node-ip=10.0.0.2"),
)
"""Each tried with a file that sets nothing."""
REFUSED: Final = (
    *(
        ("--register-with-taints=a:NoSchedule,a=b:NoSchedule",),
        ("--register-with-taints=a:Foo",),
        ("--register-with-taints=a=b=c:NoSchedule",),
    ),
    *(("--node-labels=a=b=c",), ("--node-labels=kubernetes.io/foo=x",), ("--node-labels=node-role.kubernetes.io/worker=",)),
    *(("--node-labels=A/b=c",), ("--eviction-hard=memory.available>1Gi",), ("--system-reserved=cpu",), ("--reserved-cpus=0,",)),
    *(("--port=0",), ("--max-pods=-1",), ("--node-status-update-frequency=5",), ("--config-dir=/nonexistent",), ("--config=/nonexistent",)),
)
REFUSED_FILES: Final = (
    ("maxPods: '7'\n", {}),
    ("registerNode: 'false'\n", {}),
    ("", {"1.conf": "maxPods: x\n"}),
)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any] | None]:
    found = binaries.locate(("kubelet",), version=KUBERNETES, sources=binaries.sources_from(os.environ)).found
    if "kubelet" not in found:
        pytest.skip("no kubelet: run `kubewright binaries fetch kubelet`, or set KUBEWRIGHT_BINARIES_DIR")
    program, place = found["kubelet"].path, tmp_path_factory.mktemp("kubelet")

    def read(*flags: str) -> dict[str, Any] | None:
        """Return its configuration, None if it accepts none."""
        argv = [str(program), "--v=5", f"--cert-dir={place}", f"--root-dir={place}", NO_CLUSTER, *flags]
        said = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=600).stderr
        shown = SHOWN.search(said)
        assert shown is None or "kubeconfig: stat /nonexistent/" in said, said[-500:]
        return dict(json.loads(shown[1])) if shown else None

    return read


def ours(*flags: str) -> AgentOptions | None:
    parsed = parser.parse(["agent", "run", NO_CLUSTER, *flags], program="kubewright")
    return agent.options_of(parsed, agent.configuration_of(parsed, Files()), host_name="one")


def written(place: Path, config: str, drop_ins: Mapping[str, str]) -> list[str]:
    """Write the files; returns the flags that name them."""
    (place / "config.yaml").write_text(f"{HEAD}failCgroupV1: false\n{config}")
    for name, text in drop_ins.items():
        path = place / "conf.d" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD + text)
    return [f"--config={place / 'config.yaml'}", *([f"--config-dir={place / 'conf.d'}"] if drop_ins else [])]


def differences(theirs: dict[str, Any] | None, found: AgentOptions | None) -> dict[str, Any]:
    assert theirs is not None
    assert found is not None
    rows = {name: (meaning(theirs[name]), mine(found)) for name, (meaning, mine) in COMPARED.items()}
    return {name: pair for name, pair in rows.items() if pair[0] != pair[1]}


@pytest.mark.parametrize("case", FILES)
def test_configuration_files_have_the_effect_that_they_have_in_the_kubelet(case: str, real: Callable[..., Any], tmp_path: Path) -> None:
    flags = written(tmp_path, *FILES[case])
    assert differences(real(*flags), ours(*flags)) == {}


@pytest.mark.parametrize("given", FLAGS, ids=" ".join)
def test_flags_have_the_effect_that_they_have_in_the_kubelet(given: tuple[str, ...], real: Callable[..., Any], tmp_path: Path) -> None:
    flags = [*written(tmp_path, "", {}), *given]
    assert differences(real(*flags), ours(*flags)) == {}


def test_settings_that_the_kubelet_refuses_are_refused(real: Callable[..., Any], tmp_path: Path) -> None:
    cases = [[*(written(tmp_path, "", {}) if "--config=" not in given[0] else []), *given] for given in REFUSED]
    for number, (config, drop_ins) in enumerate(REFUSED_FILES):
        (tmp_path / str(number)).mkdir()
        cases.append(written(tmp_path / str(number), config, drop_ins))
    assert [flags for flags in cases if real(*flags) is not None] == []
    for flags in cases:
        with pytest.raises(KubewrightError):
            ours(*flags)
    assert len(cases) == len(REFUSED) + len(REFUSED_FILES)
