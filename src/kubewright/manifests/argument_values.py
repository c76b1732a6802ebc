"""Checks of the values of a user's arguments, as far as the components' sources define them: modes, plug-ins, ranges, dependent flags.

Sources, of v1.36.3: kube-apiserver's pkg/kubeapiserver/options/authorization.go and plugins.go, apiserver's
pkg/server/options/admission.go, kube-controller-manager's cmd/kube-controller-manager/app/core.go, and kubeadm's
cmd/kubeadm/app/phases/controlplane/manifests.go, which warns of authorization modes only.
tests/compat/test_component_flags.py compares the lists with the real components.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from kubewright.apis import formats
from kubewright.apis.kubeadm.types import Arg
from kubewright.base.messages import did_you_mean, quoted
from kubewright.base.records import dataclass

NOT_STARTED: Final = "and does not start with it"

MODE: Final = "authorization-mode"
_OPEN: Final = "AlwaysAllow"
MODES: Final = (_OPEN, "AlwaysDeny", "ABAC", "Webhook", "RBAC", "Node")
DEFAULT_MODES: Final = ("Node", "RBAC")
_NEEDED: Final = {"ABAC": "authorization-policy-file", "Webhook": "authorization-webhook-config-file"}
"""The flag that a mode requires, and that has no effect without it."""
_CONFIG: Final = "authorization-config"

ENABLED: Final = "enable-admission-plugins"
DISABLED: Final = "disable-admission-plugins"
_PLUGINS: Final = """
    AlwaysAdmit AlwaysDeny AlwaysPullImages CertificateApproval CertificateSigning CertificateSubjectRestriction ClusterTrustBundleAttest
    DefaultIngressClass DefaultStorageClass DefaultTolerationSeconds DenyServiceExternalIPs EventRateLimit ExtendedResourceToleration
    ImagePolicyWebhook LimitPodHardAntiAffinityTopology LimitRanger MutatingAdmissionPolicy MutatingAdmissionWebhook NamespaceAutoProvision
    NamespaceExists NamespaceLifecycle NodeDeclaredFeatureValidator NodeRestriction OwnerReferencesPermissionEnforcement
    PersistentVolumeClaimResize PodNodeSelector PodSecurity PodTolerationRestriction PodTopologyLabels Priority ResourceQuota RuntimeClass
    ServiceAccount StorageObjectInUseProtection TaintNodesByCondition ValidatingAdmissionPolicy ValidatingAdmissionWebhook
"""
PLUGINS: Final = frozenset(_PLUGINS.split())
"""Admission plug-ins that every release has."""
NEWER_PLUGINS: Final = {
    "1.36": frozenset({"JobValidation", "PodGroupProtection", "PodGroupWorkloadExists", "PodResizeValidator"}),
    "1.37": frozenset({"PodGroupProtection", "PodResizeValidator"}),
}


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The arguments of one component in one minor release, by name; each may occur several times."""

    component: str
    line: str
    values: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, component: str, line: str, given: Iterable[Arg]) -> Arguments:
        """Sort arguments by their names, in which `_` means `-`, as in component-base."""
        values: dict[str, list[str]] = {}
        for one in given:
            values.setdefault(one.name.replace("_", "-"), []).append(one.value)
        return cls(component=component, line=line, values=values)

    def has(self, name: str) -> bool:
        """Return whether a flag has a value that is not empty."""
        return any(self.values.get(name, ()))

    def listed(self, name: str) -> list[str]:
        """Return the entries of a flag that takes a list: those of all its occurrences, without empty ones."""
        return [entry for value in self.values.get(name, ()) for entry in value.split(",") if entry]


def problems(given: Arguments) -> Iterator[str]:
    """Return the problems of a component's arguments."""
    for (component, name), check in _CHECKS.items():
        if component == given.component and name in given.values:
            yield from check(given, name)


def _modes(given: Arguments, name: str) -> Iterator[str]:
    modes = given.listed(name)
    if given.has(_CONFIG):
        yield f"{given.component} takes --{_CONFIG} or --{MODE}, not both, and does not start with both"
        return
    if not modes:
        yield f"--{MODE} is empty, which {given.component} treats as AlwaysAllow{_consequence([_OPEN])}"
        return
    yield from _unknown(given, name, MODES, "authorization mode")
    for mode in sorted({mode for mode in modes if modes.count(mode) > 1}):
        yield f"{given.component} accepts each --{MODE} once, not {mode} {modes.count(mode)} times, {NOT_STARTED}"
    for mode, flag in _NEEDED.items():
        if mode in modes and not given.has(flag):
            yield f"{given.component} needs --{flag} for the mode {mode}, and does not start without it"
    known = [mode for mode in modes if mode in MODES]
    if known and tuple(known) != DEFAULT_MODES:
        yield f"the default of --{MODE} is {','.join(DEFAULT_MODES)}; {','.join(known)} is used{_consequence(known)}"


def _consequence(modes: Sequence[str]) -> str:
    """Return the consequences of these modes for a cluster, as the end of a sentence."""
    if _OPEN in modes:
        return ": everyone may do everything"
    missing = [mode for mode in DEFAULT_MODES if mode not in modes]
    return (
        f": without {' and '.join(missing)}, the permissions that init grants to nodes and administrators have no effect" if missing else ""
    )


def _needs_mode(mode: str) -> Callable[[Arguments, str], Iterator[str]]:
    def check(given: Arguments, name: str) -> Iterator[str]:
        if given.has(name) and mode not in given.listed(MODE) and not given.has(_CONFIG):
            yield f"{given.component} accepts --{name} only with the mode {mode}, {NOT_STARTED}; add it to --{MODE}"

    return check


def _plugins(given: Arguments, name: str) -> Iterator[str]:
    yield from _unknown(given, name, PLUGINS | NEWER_PLUGINS.get(given.line, frozenset()), "admission plug-in")
    if name == DISABLED:
        both = [plugin for plugin in given.listed(ENABLED) if plugin in given.listed(DISABLED)]
        if both:
            yield f"{', '.join(both)} cannot be enabled and disabled: {given.component} does not start with it"


def _unknown(given: Arguments, name: str, known: Iterable[str], what: str) -> Iterator[str]:
    choices = sorted(known)
    for entry in given.listed(name):
        if entry not in choices:
            meant = did_you_mean(entry, choices)
            yield f"{given.component} {given.line} has no {what} {quoted(entry)} {NOT_STARTED} (--{name}){meant}"


def _ranges(given: Arguments, name: str) -> Iterator[str]:
    text = given.values[name][-1]
    try:
        found = formats.subnets(text.strip())
    except ValueError as error:
        yield f"--{name}: {error}; {given.component} needs one CIDR such as 10.244.0.0/16, or one of each family"
        return
    families = [formats.subnet_family(one) for one in found]
    if len(set(families)) != len(families):
        yield f"--{name}: {text} has several ranges of one family; {given.component} needs one CIDR, or one of each family"


_CHECKS: Final[Mapping[tuple[str, str], Callable[[Arguments, str], Iterator[str]]]] = {
    ("kube-apiserver", MODE): _modes,
    **{("kube-apiserver", flag): _needs_mode(mode) for mode, flag in _NEEDED.items()},
    ("kube-apiserver", ENABLED): _plugins,
    ("kube-apiserver", DISABLED): _plugins,
    ("kube-apiserver", "service-cluster-ip-range"): _ranges,
    ("kube-controller-manager", "cluster-cidr"): _ranges,
    ("kube-controller-manager", "service-cluster-ip-range"): _ranges,
}
"""The checks by component and flag."""
