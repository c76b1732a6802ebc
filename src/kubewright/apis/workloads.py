"""Pod, Deployment and DaemonSet as in Go: the fields of all their structs, and how a strategic merge patch merges their lists.

The table is taken from k8s.io/api v0.36 (core/v1, apps/v1) and the ObjectMeta of k8s.io/apimachinery.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from kubewright.apis.findings import Place
from kubewright.apis.scalars import INT32, SCALARS, Kind
from kubewright.apis.schema import Field, Plain, kind_of
from kubewright.base.records import dataclass

_TABLE: Final = """
AWSElasticBlockStoreVolumeSource: volumeID:text! fsType:text partition:int32 readOnly:flag
Affinity: nodeAffinity:?NodeAffinity podAffinity:?PodAffinity podAntiAffinity:?PodAntiAffinity
AppArmorProfile: type:text! localhostProfile:?text
AzureDiskVolumeSource: diskName:text! diskURI:text! cachingMode:?text fsType:?text readOnly:?flag kind:?text
AzureFileVolumeSource: secretName:text! shareName:text! readOnly:flag
CSIVolumeSource: driver:text! readOnly:?flag fsType:?text volumeAttributes:{}text nodePublishSecretRef:?LocalObjectReference
Capabilities: add:[]text drop:[]text
CephFSVolumeSource: monitors:[]text! path:text user:text secretFile:text secretRef:?LocalObjectReference readOnly:flag
CinderVolumeSource: volumeID:text! fsType:text readOnly:flag secretRef:?LocalObjectReference
ClusterTrustBundleProjection: name:?text signerName:?text labelSelector:?LabelSelector optional:?flag path:text!
ConfigMapEnvSource: name:text optional:?flag
ConfigMapKeySelector: name:text key:text! optional:?flag
ConfigMapProjection: name:text items:[]KeyToPath optional:?flag
ConfigMapVolumeSource: name:text items:[]KeyToPath defaultMode:?int32 optional:?flag
Container: name:text! image:text command:[]text args:[]text workingDir:text ports:[]ContainerPort@containerPort envFrom:[]EnvFromSource
  env:[]EnvVar@name resources:ResourceRequirements resizePolicy:[]ContainerResizePolicy restartPolicy:?text
  restartPolicyRules:[]ContainerRestartRule volumeMounts:[]VolumeMount@mountPath volumeDevices:[]VolumeDevice@devicePath
  livenessProbe:?Probe readinessProbe:?Probe startupProbe:?Probe lifecycle:?Lifecycle terminationMessagePath:text
  terminationMessagePolicy:text imagePullPolicy:text securityContext:?SecurityContext stdin:flag stdinOnce:flag tty:flag
ContainerExtendedResourceRequest: containerName:text! resourceName:text! requestName:text!
ContainerPort: name:text hostPort:int32 containerPort:int32! protocol:text hostIP:text
ContainerResizePolicy: resourceName:text! restartPolicy:text!
ContainerRestartRule: action:text exitCodes:?ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes: operator:text values:[]int32
ContainerState: waiting:?ContainerStateWaiting running:?ContainerStateRunning terminated:?ContainerStateTerminated
ContainerStateRunning: startedAt:moment
ContainerStateTerminated: exitCode:int32! signal:int32 reason:text message:text startedAt:moment finishedAt:moment containerID:text
ContainerStateWaiting: reason:text message:text
ContainerStatus: name:text! state:ContainerState lastState:ContainerState ready:flag! restartCount:int32! image:text! imageID:text!
  containerID:text started:?flag allocatedResources:{}amount resources:?ResourceRequirements volumeMounts:[]VolumeMountStatus@mountPath
  user:?ContainerUser allocatedResourcesStatus:[]ResourceStatus@name stopSignal:?text
ContainerUser: linux:?LinuxContainerUser
DaemonSet: apiVersion:text kind:text metadata:ObjectMeta spec:DaemonSetSpec status:DaemonSetStatus
DaemonSetCondition: type:text! status:text! lastTransitionTime:moment reason:text message:text
DaemonSetSpec: selector:?LabelSelector! template:PodTemplateSpec! updateStrategy:DaemonSetUpdateStrategy minReadySeconds:int32
  revisionHistoryLimit:?int32
DaemonSetStatus: currentNumberScheduled:int32! numberMisscheduled:int32! desiredNumberScheduled:int32! numberReady:int32!
  observedGeneration:int64 updatedNumberScheduled:int32 numberAvailable:int32 numberUnavailable:int32 collisionCount:?int32
  conditions:[]DaemonSetCondition@type
DaemonSetUpdateStrategy: type:text rollingUpdate:?RollingUpdateDaemonSet
Deployment: apiVersion:text kind:text metadata:ObjectMeta spec:DeploymentSpec status:DeploymentStatus
DeploymentCondition: type:text! status:text! lastUpdateTime:moment lastTransitionTime:moment reason:text message:text
DeploymentSpec: replicas:?int32 selector:?LabelSelector! template:PodTemplateSpec! strategy:DeploymentStrategy minReadySeconds:int32
  revisionHistoryLimit:?int32 paused:flag progressDeadlineSeconds:?int32
DeploymentStatus: observedGeneration:int64 replicas:int32 updatedReplicas:int32 readyReplicas:int32 availableReplicas:int32
  unavailableReplicas:int32 terminatingReplicas:?int32 conditions:[]DeploymentCondition@type collisionCount:?int32
DeploymentStrategy: type:text rollingUpdate:?RollingUpdateDeployment
DownwardAPIProjection: items:[]DownwardAPIVolumeFile
DownwardAPIVolumeFile: path:text! fieldRef:?ObjectFieldSelector resourceFieldRef:?ResourceFieldSelector mode:?int32
DownwardAPIVolumeSource: items:[]DownwardAPIVolumeFile defaultMode:?int32
EmptyDirVolumeSource: medium:text sizeLimit:?amount
EnvFromSource: prefix:text configMapRef:?ConfigMapEnvSource secretRef:?SecretEnvSource
EnvVar: name:text! value:text valueFrom:?EnvVarSource
EnvVarSource: fieldRef:?ObjectFieldSelector resourceFieldRef:?ResourceFieldSelector configMapKeyRef:?ConfigMapKeySelector
  secretKeyRef:?SecretKeySelector fileKeyRef:?FileKeySelector
EphemeralContainer: name:text! image:text command:[]text args:[]text workingDir:text ports:[]ContainerPort@containerPort
  envFrom:[]EnvFromSource env:[]EnvVar@name resources:ResourceRequirements resizePolicy:[]ContainerResizePolicy restartPolicy:?text
  restartPolicyRules:[]ContainerRestartRule volumeMounts:[]VolumeMount@mountPath volumeDevices:[]VolumeDevice@devicePath
  livenessProbe:?Probe readinessProbe:?Probe startupProbe:?Probe lifecycle:?Lifecycle terminationMessagePath:text
  terminationMessagePolicy:text imagePullPolicy:text securityContext:?SecurityContext stdin:flag stdinOnce:flag tty:flag
  targetContainerName:text
EphemeralVolumeSource: volumeClaimTemplate:?PersistentVolumeClaimTemplate
ExecAction: command:[]text
FCVolumeSource: targetWWNs:[]text lun:?int32 fsType:text readOnly:flag wwids:[]text
FileKeySelector: volumeName:text! path:text! key:text! optional:?flag
FlexVolumeSource: driver:text! fsType:text secretRef:?LocalObjectReference readOnly:flag options:{}text
FlockerVolumeSource: datasetName:text datasetUUID:text
GCEPersistentDiskVolumeSource: pdName:text! fsType:text partition:int32 readOnly:flag
GRPCAction: port:int32! service:?text!
GitRepoVolumeSource: repository:text! revision:text directory:text
GlusterfsVolumeSource: endpoints:text! path:text! readOnly:flag
HTTPGetAction: path:text port:port! host:text scheme:text httpHeaders:[]HTTPHeader
HTTPHeader: name:text! value:text!
HostAlias: ip:text! hostnames:[]text
HostIP: ip:text!
HostPathVolumeSource: path:text! type:?text
ISCSIVolumeSource: targetPortal:text! iqn:text! lun:int32! iscsiInterface:text fsType:text readOnly:flag portals:[]text
  chapAuthDiscovery:flag chapAuthSession:flag secretRef:?LocalObjectReference initiatorName:?text
ImageVolumeSource: reference:text pullPolicy:text
ImageVolumeStatus: imageRef:text
KeyToPath: key:text! path:text! mode:?int32
LabelSelector: matchLabels:{}text matchExpressions:[]LabelSelectorRequirement
LabelSelectorRequirement: key:text! operator:text! values:[]text
Lifecycle: postStart:?LifecycleHandler preStop:?LifecycleHandler stopSignal:?text
LifecycleHandler: exec:?ExecAction httpGet:?HTTPGetAction tcpSocket:?TCPSocketAction sleep:?SleepAction
LinuxContainerUser: uid:int64! gid:int64! supplementalGroups:[]int64
LocalObjectReference: name:text
ManagedFieldsEntry: manager:text operation:text apiVersion:text time:?moment fieldsType:text fieldsV1:?any subresource:text
NFSVolumeSource: server:text! path:text! readOnly:flag
NodeAffinity: requiredDuringSchedulingIgnoredDuringExecution:?NodeSelector
  preferredDuringSchedulingIgnoredDuringExecution:[]PreferredSchedulingTerm
NodeAllocatableResourceClaimStatus: resourceClaimName:text! containers:[]text resources:{}amount!
NodeSelector: nodeSelectorTerms:[]NodeSelectorTerm!
NodeSelectorRequirement: key:text! operator:text! values:[]text
NodeSelectorTerm: matchExpressions:[]NodeSelectorRequirement matchFields:[]NodeSelectorRequirement
ObjectFieldSelector: apiVersion:text fieldPath:text!
ObjectMeta: name:text generateName:text namespace:text selfLink:text uid:text resourceVersion:text generation:int64
  creationTimestamp:moment~ deletionTimestamp:?moment deletionGracePeriodSeconds:?int64 labels:{}text annotations:{}text
  ownerReferences:[]OwnerReference@uid finalizers:[]text@ managedFields:[]ManagedFieldsEntry
OwnerReference: apiVersion:text! kind:text! name:text! uid:text! controller:?flag blockOwnerDeletion:?flag
PersistentVolumeClaimSpec: accessModes:[]text selector:?LabelSelector resources:VolumeResourceRequirements volumeName:text
  storageClassName:?text volumeMode:?text dataSource:?TypedLocalObjectReference dataSourceRef:?TypedObjectReference
  volumeAttributesClassName:?text
PersistentVolumeClaimTemplate: metadata:ObjectMeta spec:PersistentVolumeClaimSpec!
PersistentVolumeClaimVolumeSource: claimName:text! readOnly:flag
PhotonPersistentDiskVolumeSource: pdID:text! fsType:text
Pod: apiVersion:text kind:text metadata:ObjectMeta spec:PodSpec status:PodStatus
PodAffinity: requiredDuringSchedulingIgnoredDuringExecution:[]PodAffinityTerm
  preferredDuringSchedulingIgnoredDuringExecution:[]WeightedPodAffinityTerm
PodAffinityTerm: labelSelector:?LabelSelector namespaces:[]text topologyKey:text! namespaceSelector:?LabelSelector matchLabelKeys:[]text
  mismatchLabelKeys:[]text
PodAntiAffinity: requiredDuringSchedulingIgnoredDuringExecution:[]PodAffinityTerm
  preferredDuringSchedulingIgnoredDuringExecution:[]WeightedPodAffinityTerm
PodCertificateProjection: signerName:text keyType:text maxExpirationSeconds:?int32 credentialBundlePath:text keyPath:text
  certificateChainPath:text userAnnotations:{}text
PodCondition: type:text! observedGeneration:int64 status:text! lastProbeTime:moment lastTransitionTime:moment reason:text message:text
PodDNSConfig: nameservers:[]text searches:[]text options:[]PodDNSConfigOption
PodDNSConfigOption: name:text value:?text
PodExtendedResourceClaimStatus: requestMappings:[]ContainerExtendedResourceRequest! resourceClaimName:text!
PodIP: ip:text!
PodOS: name:text!
PodReadinessGate: conditionType:text!
PodResourceClaim: name:text! resourceClaimName:?text resourceClaimTemplateName:?text
PodResourceClaimStatus: name:text! resourceClaimName:?text
PodSchedulingGate: name:text!
PodSchedulingGroup: podGroupName:?text
PodSecurityContext: seLinuxOptions:?SELinuxOptions windowsOptions:?WindowsSecurityContextOptions runAsUser:?int64 runAsGroup:?int64
  runAsNonRoot:?flag supplementalGroups:[]int64 supplementalGroupsPolicy:?text fsGroup:?int64 sysctls:[]Sysctl fsGroupChangePolicy:?text
  seccompProfile:?SeccompProfile appArmorProfile:?AppArmorProfile seLinuxChangePolicy:?text
PodSpec: volumes:[]Volume@name initContainers:[]Container@name containers:[]Container!@name ephemeralContainers:[]EphemeralContainer@name
  restartPolicy:text terminationGracePeriodSeconds:?int64 activeDeadlineSeconds:?int64 dnsPolicy:text nodeSelector:{}text
  serviceAccountName:text serviceAccount:text automountServiceAccountToken:?flag nodeName:text hostNetwork:flag hostPID:flag hostIPC:flag
  shareProcessNamespace:?flag securityContext:?PodSecurityContext imagePullSecrets:[]LocalObjectReference@name hostname:text subdomain:text
  affinity:?Affinity schedulerName:text tolerations:[]Toleration hostAliases:[]HostAlias@ip priorityClassName:text priority:?int32
  dnsConfig:?PodDNSConfig readinessGates:[]PodReadinessGate runtimeClassName:?text enableServiceLinks:?flag preemptionPolicy:?text
  overhead:{}amount topologySpreadConstraints:[]TopologySpreadConstraint@topologyKey setHostnameAsFQDN:?flag os:?PodOS hostUsers:?flag
  schedulingGates:[]PodSchedulingGate@name resourceClaims:[]PodResourceClaim@name resources:?ResourceRequirements hostnameOverride:?text
  schedulingGroup:?PodSchedulingGroup
PodStatus: observedGeneration:int64 phase:text conditions:[]PodCondition@type message:text reason:text nominatedNodeName:text hostIP:text
  hostIPs:[]HostIP@ip podIP:text podIPs:[]PodIP@ip startTime:?moment initContainerStatuses:[]ContainerStatus
  containerStatuses:[]ContainerStatus qosClass:text ephemeralContainerStatuses:[]ContainerStatus resize:text
  resourceClaimStatuses:[]PodResourceClaimStatus@name extendedResourceClaimStatus:?PodExtendedResourceClaimStatus
  allocatedResources:{}amount resources:?ResourceRequirements nodeAllocatableResourceClaimStatuses:[]NodeAllocatableResourceClaimStatus
PodTemplateSpec: metadata:ObjectMeta spec:PodSpec
PortworxVolumeSource: volumeID:text! fsType:text readOnly:flag
PreferredSchedulingTerm: weight:int32! preference:NodeSelectorTerm!
Probe: exec:?ExecAction httpGet:?HTTPGetAction tcpSocket:?TCPSocketAction grpc:?GRPCAction initialDelaySeconds:int32 timeoutSeconds:int32
  periodSeconds:int32 successThreshold:int32 failureThreshold:int32 terminationGracePeriodSeconds:?int64
ProjectedVolumeSource: sources:[]VolumeProjection! defaultMode:?int32
QuobyteVolumeSource: registry:text! volume:text! readOnly:flag user:text group:text tenant:text
RBDVolumeSource: monitors:[]text! image:text! fsType:text pool:text user:text keyring:text secretRef:?LocalObjectReference readOnly:flag
ResourceClaim: name:text! request:text
ResourceFieldSelector: containerName:text resource:text! divisor:amount
ResourceHealth: resourceID:text! health:text message:?text
ResourceRequirements: limits:{}amount requests:{}amount claims:[]ResourceClaim
ResourceStatus: name:text! resources:[]ResourceHealth
RollingUpdateDaemonSet: maxUnavailable:?port maxSurge:?port
RollingUpdateDeployment: maxUnavailable:?port maxSurge:?port
SELinuxOptions: user:text role:text type:text level:text
ScaleIOVolumeSource: gateway:text! system:text! secretRef:?LocalObjectReference! sslEnabled:flag protectionDomain:text storagePool:text
  storageMode:text volumeName:text fsType:text readOnly:flag
SeccompProfile: type:text! localhostProfile:?text
SecretEnvSource: name:text optional:?flag
SecretKeySelector: name:text key:text! optional:?flag
SecretProjection: name:text items:[]KeyToPath optional:?flag
SecretVolumeSource: secretName:text items:[]KeyToPath defaultMode:?int32 optional:?flag
SecurityContext: capabilities:?Capabilities privileged:?flag seLinuxOptions:?SELinuxOptions windowsOptions:?WindowsSecurityContextOptions
  runAsUser:?int64 runAsGroup:?int64 runAsNonRoot:?flag readOnlyRootFilesystem:?flag allowPrivilegeEscalation:?flag procMount:?text
  seccompProfile:?SeccompProfile appArmorProfile:?AppArmorProfile
ServiceAccountTokenProjection: audience:text expirationSeconds:?int64 path:text!
SleepAction: seconds:int64!
StorageOSVolumeSource: volumeName:text volumeNamespace:text fsType:text readOnly:flag secretRef:?LocalObjectReference
Sysctl: name:text! value:text!
TCPSocketAction: port:port! host:text
Toleration: key:text operator:text value:text effect:text tolerationSeconds:?int64
TopologySpreadConstraint: maxSkew:int32! topologyKey:text! whenUnsatisfiable:text! labelSelector:?LabelSelector minDomains:?int32
  nodeAffinityPolicy:?text nodeTaintsPolicy:?text matchLabelKeys:[]text
TypedLocalObjectReference: apiGroup:?text! kind:text! name:text!
TypedObjectReference: apiGroup:?text! kind:text! name:text! namespace:?text
Volume: name:text! hostPath:?HostPathVolumeSource emptyDir:?EmptyDirVolumeSource gcePersistentDisk:?GCEPersistentDiskVolumeSource
  awsElasticBlockStore:?AWSElasticBlockStoreVolumeSource gitRepo:?GitRepoVolumeSource secret:?SecretVolumeSource nfs:?NFSVolumeSource
  iscsi:?ISCSIVolumeSource glusterfs:?GlusterfsVolumeSource persistentVolumeClaim:?PersistentVolumeClaimVolumeSource rbd:?RBDVolumeSource
  flexVolume:?FlexVolumeSource cinder:?CinderVolumeSource cephfs:?CephFSVolumeSource flocker:?FlockerVolumeSource
  downwardAPI:?DownwardAPIVolumeSource fc:?FCVolumeSource azureFile:?AzureFileVolumeSource configMap:?ConfigMapVolumeSource
  vsphereVolume:?VsphereVirtualDiskVolumeSource quobyte:?QuobyteVolumeSource azureDisk:?AzureDiskVolumeSource
  photonPersistentDisk:?PhotonPersistentDiskVolumeSource projected:?ProjectedVolumeSource portworxVolume:?PortworxVolumeSource
  scaleIO:?ScaleIOVolumeSource storageos:?StorageOSVolumeSource csi:?CSIVolumeSource ephemeral:?EphemeralVolumeSource
  image:?ImageVolumeSource
VolumeDevice: name:text! devicePath:text!
VolumeMount: name:text! readOnly:flag recursiveReadOnly:?text mountPath:text! subPath:text mountPropagation:?text subPathExpr:text
VolumeMountStatus: name:text! mountPath:text! readOnly:flag recursiveReadOnly:?text volumeStatus:?VolumeStatus
VolumeProjection: secret:?SecretProjection downwardAPI:?DownwardAPIProjection configMap:?ConfigMapProjection
  serviceAccountToken:?ServiceAccountTokenProjection clusterTrustBundle:?ClusterTrustBundleProjection
  podCertificate:?PodCertificateProjection
VolumeResourceRequirements: limits:{}amount requests:{}amount
VolumeStatus: image:?ImageVolumeStatus
VsphereVirtualDiskVolumeSource: volumePath:text! fsType:text storagePolicyName:text storagePolicyID:text
WeightedPodAffinityTerm: weight:int32! podAffinityTerm:PodAffinityTerm!
WindowsSecurityContextOptions: gmsaCredentialSpecName:?text gmsaCredentialSpec:?text runAsUserName:?text hostProcess:?flag
"""
"""`STRUCT: field:type ...`.

A type is a struct or a scalar, with `?` for a pointer, `[]` for a list, `{}` for a map with text keys.

A following `!` means that the field is written even when empty, `~` that Go omits its zero value although it is a
struct, and `@KEY` that a strategic merge patch merges the list by this key of its elements; without KEY, it is a list
of scalars to be united.
"""


class _Any(Kind):
    """Any value, kept unchanged."""

    def read(self, value: Any, at: Place) -> Any:
        return value


class _Port(Kind):
    """An IntOrString. Go writes 0 for one that is not given."""

    is_struct = True
    expected = "a number or a name"

    def read(self, value: Any, at: Place) -> Any:
        return value if isinstance(value, str) else INT32.read(value, at)

    def zero(self) -> int:
        return 0


_SCALARS: Final[Mapping[str, Kind]] = {**SCALARS, "port": _Port(), "any": _Any()}


@dataclass(frozen=True)
class Member:
    """A field of a struct.

    `merge_key` is None for lists that a strategic merge patch replaces, '' for united lists of scalars.
    """

    name: str
    type: str
    keep: bool = False
    merge_key: str | None = None


@functools.cache
def members(struct: str) -> Mapping[str, Member]:
    """Return the fields of a struct by their names. Raises KeyError for an unknown struct."""
    return {member.name: member for member in map(_member, _texts()[struct])}


@functools.cache
def kind(type: str) -> Kind:
    """Return the kind that decodes and encodes a type such as `Pod` or `[]?Container`."""
    return kind_of(type, _named)


@functools.cache
def _named(type: str) -> Kind:
    if type in _SCALARS:
        return _SCALARS[type]
    return Plain(tuple(Field(one.name, kind(one.type), keep=one.keep) for one in members(type).values()))


def is_struct(type: str) -> bool:
    """Return whether a type, without its pointer, is one of the structs."""
    return type.removeprefix("?") in _texts()


@functools.cache
def _texts() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for line in _TABLE.strip().splitlines():
        words = line.split()
        if not line.startswith(" "):
            name = words.pop(0).removesuffix(":")
            found[name] = []
        found[name] += words
    return {struct: tuple(words) for struct, words in found.items()}


def _member(text: str) -> Member:
    name, _, rest = text.partition(":")
    rest, at, key = rest.partition("@")
    return Member(name, rest.rstrip("!~"), keep=rest.endswith(("!", "!~")), merge_key=key if at else None)
