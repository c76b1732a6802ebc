"""The fields of kubeadm.k8s.io/v1beta4 InitConfiguration and ClusterConfiguration, as tables (spec/kubeadm.md 3.2 to 3.8).

Names are kubeadm's to the letter; a Go name in capitals (`localAPIEndpoint`, `certSANs`) needs its attribute written out.
"""

from __future__ import annotations

from typing import Final

from kubewright.apis.core import ENV_SOURCE, TAINT
from kubewright.apis.kubeadm import types
from kubewright.apis.scalars import FLAG, INT32, MOMENT, SECRET, SPAN, TEXT, TOKEN
from kubewright.apis.schema import Field, List, Map, Normalised, Only, Pointer, Struct

_TEXTS: Final = List(TEXT)
_PERIOD: Final = Pointer(SPAN)

ARG: Final = Struct(types.Arg, (Field("name", TEXT, keep=True), Field("value", TEXT, keep=True)))
ENV: Final = Struct(
    types.EnvVar,
    (Field("name", TEXT, keep=True), Field("value", TEXT), Field("valueFrom", Pointer(Normalised(ENV_SOURCE)))),
)


class _Arguments(List):
    expected = "a list of name and value (v1beta3 had a map)"


ARGUMENTS: Final = _Arguments(ARG)
HOST_PATH_MOUNT: Final = Struct(
    types.HostPathMount,
    (
        Field("name", TEXT, keep=True),
        Field("hostPath", TEXT, keep=True),
        Field("mountPath", TEXT, keep=True),
        Field("readOnly", FLAG),
        Field("pathType", TEXT),
    ),
)
_COMPONENT: Final = (
    Field("extraArgs", ARGUMENTS),
    Field("extraVolumes", List(HOST_PATH_MOUNT)),
    Field("extraEnvs", List(ENV)),
)
CONTROL_PLANE_COMPONENT: Final = Struct(types.ControlPlaneComponent, _COMPONENT)
API_SERVER: Final = Struct(types.APIServer, (*_COMPONENT, Field("certSANs", _TEXTS, "cert_sans")))

_IMAGE: Final = (Field("imageRepository", TEXT), Field("imageTag", TEXT))
LOCAL_ETCD: Final = Struct(
    types.LocalEtcd,
    (
        *_IMAGE,
        Field("dataDir", TEXT, keep=True),
        Field("extraArgs", ARGUMENTS),
        Field("extraEnvs", List(ENV)),
        Field("serverCertSANs", _TEXTS, "server_cert_sans"),
        Field("peerCertSANs", _TEXTS, "peer_cert_sans"),
    ),
)
EXTERNAL_ETCD: Final = Struct(
    types.ExternalEtcd,
    (
        Field("endpoints", _TEXTS, keep=True),
        Field("httpEndpoints", _TEXTS),
        Field("caFile", TEXT, keep=True),
        Field("certFile", TEXT, keep=True),
        Field("keyFile", TEXT, keep=True),
    ),
)
ETCD: Final = Struct(types.Etcd, (Field("local", Pointer(LOCAL_ETCD)), Field("external", Pointer(EXTERNAL_ETCD))))
NETWORKING: Final = Struct(
    types.Networking,
    (Field("serviceSubnet", TEXT), Field("podSubnet", TEXT), Field("dnsDomain", TEXT)),
)
DNS: Final = Struct(types.DNS, (*_IMAGE, Field("disabled", FLAG)))
CLUSTER: Final = Struct(
    types.ClusterConfiguration,
    (
        Field("etcd", ETCD),
        Field("networking", NETWORKING),
        Field("kubernetesVersion", TEXT),
        Field("controlPlaneEndpoint", TEXT),
        Field("apiServer", API_SERVER),
        Field("controllerManager", CONTROL_PLANE_COMPONENT),
        Field("scheduler", CONTROL_PLANE_COMPONENT),
        Field("dns", DNS),
        Field("proxy", Struct(types.Proxy, (Field("disabled", FLAG),))),
        Field("certificatesDir", TEXT),
        Field("imageRepository", TEXT),
        Field("featureGates", Map(FLAG)),
        Field("clusterName", TEXT),
        Field("encryptionAlgorithm", TEXT),
        Field("certificateValidityPeriod", _PERIOD),
        Field("caCertificateValidityPeriod", _PERIOD),
    ),
)

BOOTSTRAP_TOKEN: Final = Struct(
    types.BootstrapToken,
    (
        Field("token", TOKEN, keep=True),
        Field("description", TEXT),
        Field("ttl", _PERIOD),
        Field("expires", MOMENT),
        Field("usages", _TEXTS),
        Field("groups", _TEXTS),
    ),
)
NODE_REGISTRATION: Final = Struct(
    types.NodeRegistration,
    (
        Field("name", TEXT),
        Field("criSocket", TEXT),
        Field("taints", List(Normalised(TAINT)), keep=True),
        Field("kubeletExtraArgs", ARGUMENTS),
        Field("ignorePreflightErrors", _TEXTS),
        Field("imagePullPolicy", TEXT),
        Field("imagePullSerial", Pointer(FLAG)),
    ),
)
LOCAL_API_ENDPOINT: Final = Struct(
    types.LocalAPIEndpoint,
    (Field("advertiseAddress", TEXT), Field("bindPort", INT32)),
)
TIMEOUTS: Final = Struct(
    types.Timeouts,
    (
        Field("controlPlaneComponentHealthCheck", _PERIOD),
        Field("kubeletHealthCheck", _PERIOD),
        Field("kubernetesAPICall", _PERIOD, "kubernetes_api_call"),
        Field("etcdAPICall", _PERIOD, "etcd_api_call"),
        Field("tlsBootstrap", _PERIOD),
        Field("discovery", _PERIOD),
        Field("upgradeManifests", _PERIOD),
    ),
)
INIT: Final = Struct(
    types.InitConfiguration,
    (
        Field("bootstrapTokens", List(BOOTSTRAP_TOKEN)),
        Field("dryRun", FLAG),
        Field("nodeRegistration", NODE_REGISTRATION),
        Field("localAPIEndpoint", LOCAL_API_ENDPOINT, "local_api_endpoint"),
        Field("certificateKey", SECRET),
        Field("skipPhases", _TEXTS),
        Field("patches", Only(Field("directory", TEXT)), "patches_directory"),
        Field("timeouts", TIMEOUTS),
    ),
)
