"""The fields of kubeadm.k8s.io/v1beta4 JoinConfiguration, ResetConfiguration and UpgradeConfiguration, as tables (spec/kubeadm.md 3.5, 3.6)."""

from __future__ import annotations

from typing import Final

from kubewright.apis.kubeadm import node_types as types
from kubewright.apis.kubeadm.fields import LOCAL_API_ENDPOINT, NODE_REGISTRATION, TIMEOUTS
from kubewright.apis.scalars import FLAG, INT64, SECRET, TEXT
from kubewright.apis.schema import Field, List, Only, Pointer, Struct

_TEXTS: Final = List(TEXT)
_SWITCH: Final = Pointer(FLAG)

BOOTSTRAP_TOKEN_DISCOVERY: Final = Struct(
    types.BootstrapTokenDiscovery,
    (
        Field("token", SECRET, keep=True),
        Field("apiServerEndpoint", TEXT),
        Field("caCertHashes", _TEXTS, "ca_cert_hashes"),
        Field("unsafeSkipCAVerification", FLAG, "unsafe_skip_ca_verification"),
    ),
)
FILE_DISCOVERY: Final = Struct(types.FileDiscovery, (Field("kubeConfigPath", TEXT, keep=True),))
DISCOVERY_FIELDS: Final = (
    Field("bootstrapToken", Pointer(BOOTSTRAP_TOKEN_DISCOVERY)),
    Field("file", Pointer(FILE_DISCOVERY)),
    Field("tlsBootstrapToken", SECRET),
)
DISCOVERY: Final = Struct(types.Discovery, DISCOVERY_FIELDS)
JOIN_CONTROL_PLANE: Final = Struct(
    types.JoinControlPlane,
    (Field("localAPIEndpoint", LOCAL_API_ENDPOINT, "local_api_endpoint"), Field("certificateKey", SECRET)),
)
JOIN: Final = Struct(
    types.JoinConfiguration,
    (
        Field("dryRun", FLAG),
        Field("nodeRegistration", NODE_REGISTRATION),
        Field("caCertPath", TEXT),
        Field("discovery", DISCOVERY, keep=True),
        Field("controlPlane", Pointer(JOIN_CONTROL_PLANE)),
        Field("skipPhases", _TEXTS),
        Field("patches", Only(Field("directory", TEXT)), "patches_directory"),
        Field("timeouts", TIMEOUTS),
    ),
)

RESET: Final = Struct(
    types.ResetConfiguration,
    (
        Field("cleanupTmpDir", FLAG),
        Field("certificatesDir", TEXT),
        Field("criSocket", TEXT),
        Field("dryRun", FLAG),
        Field("force", FLAG),
        Field("ignorePreflightErrors", _TEXTS),
        Field("skipPhases", _TEXTS),
        Field("unmountFlags", _TEXTS),
        Field("timeouts", TIMEOUTS),
    ),
)

_PATCHES: Final = Pointer(Struct(types.Patches, (Field("directory", TEXT),)))
_EVERYWHERE: Final = (
    Field("dryRun", _SWITCH),
    Field("etcdUpgrade", _SWITCH),
    Field("ignorePreflightErrors", _TEXTS),
)
_VERSION: Final = (
    Field("kubernetesVersion", TEXT),
    Field("allowExperimentalUpgrades", _SWITCH),
    Field("allowRCUpgrades", _SWITCH, "allow_rc_upgrades"),
    Field("printConfig", _SWITCH),
)
_PHASES: Final = (
    Field("certificateRenewal", _SWITCH),
    Field("patches", _PATCHES),
    Field("skipPhases", _TEXTS),
    Field("imagePullPolicy", TEXT),
    Field("imagePullSerial", _SWITCH),
)
UPGRADE: Final = Struct(
    types.UpgradeConfiguration,
    (
        Field("apply", Struct(types.UpgradeApply, (*_VERSION, *_EVERYWHERE, *_PHASES, Field("forceUpgrade", _SWITCH)))),
        Field("diff", Struct(types.UpgradeDiff, (Field("kubernetesVersion", TEXT), Field("contextLines", INT64)))),
        Field("node", Struct(types.UpgradeNode, (*_EVERYWHERE, *_PHASES))),
        Field("plan", Struct(types.UpgradePlan, (*_VERSION, *_EVERYWHERE))),
        Field("timeouts", TIMEOUTS),
    ),
)
