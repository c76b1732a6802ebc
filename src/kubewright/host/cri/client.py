"""The calls of the CRI that kubewright makes, one method each. The only module that uses gRPC.

Each call has a time limit of two seconds, as in kubeadm, except for pulling an image, which has none. Safe to use from
several threads.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from typing import Final, TypeVar
from urllib.parse import quote

import grpc
from google.protobuf.message import Message

from kubewright.base.deadlines import left
from kubewright.base.errors import HostError
from kubewright.base.records import replace
from kubewright.host.cri import api_pb2 as api
from kubewright.host.cri import failures
from kubewright.host.cri.failures import Refusal
from kubewright.host.seam import RuntimeVersion
from kubewright.host.states import Condition, Container, ContainerState, Image, RuntimeHandler, RuntimeStatus, Sandbox

CALL_TIMEOUT: Final = 2.0
ENDING: Final = 15.0
"""The factor of the limit for stopping a pod: ending its processes and network takes time on a busy machine."""
STARTING: Final = 5.0
"""The factor of the limit for the status, which is requested first: a runtime that has just been started answers late on a slow machine."""
_SHORT: Final = 13
"""The length of pod IDs in messages, as in those of crictl.

A whole identifier looks like a certificate key and would be masked.
"""
_RUNTIME: Final = "/runtime.v1.RuntimeService/"
_IMAGES: Final = "/runtime.v1.ImageService/"
_LARGEST_ANSWER: Final = 16 * 1024 * 1024
"""In bytes, as in the kubelet's client (k8s.io/cri-client): lists of a busy machine exceed gRPC's default of 4 MiB."""

_NANOSECONDS: Final = 1_000_000_000
_POD_NAME: Final = "io.kubernetes.pod.name"
_POD_NAMESPACE: Final = "io.kubernetes.pod.namespace"
_POD_UID: Final = "io.kubernetes.pod.uid"
"""Labels that the kubelet gives every container (pkg/kubelet/types/labels.go)."""

_OPTIONS: Final = (
    ("grpc.default_authority", "localhost"),  # containerd's HTTP/2 rejects the socket's path, gRPC's default, as a host name
    ("grpc.max_receive_message_length", _LARGEST_ANSWER),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),  # only the caller knows what may be retried
    ("grpc.initial_reconnect_backoff_ms", 100),  # find a restarted runtime soon, as the kubelet's client does
    ("grpc.max_reconnect_backoff_ms", 3000),
    ("grpc.use_local_subchannel_pool", 1),  # do not inherit the back-off of an earlier connection
)

A = TypeVar("A", bound=Message)


class Client:
    """A connection to one runtime, established at the first call. `endpoint` is `unix://` and a path.

    All methods raise RuntimeUnavailable if no runtime answers, and HostError if the runtime refuses; so does the
    constructor for a path that is too long for a socket.
    """

    def __init__(self, endpoint: str, *, timeout: float = CALL_TIMEOUT) -> None:
        self._endpoint = endpoint
        self._path = endpoint.removeprefix("unix://")
        self._timeout = timeout
        if len(os.fsencode(self._path)) > failures.LONGEST_PATH:
            raise failures.unreachable(endpoint, self._path, errno.ENAMETOOLONG)
        self._channel = grpc.insecure_channel(f"unix:{quote(self._path)}", options=_OPTIONS)

    def close(self) -> None:
        """Close the connection; calls of other threads end with it."""
        self._channel.close()

    def version(self) -> RuntimeVersion:
        """Return name and version of the runtime."""
        found = self._call(f"{_RUNTIME}Version", api.VersionRequest(), api.VersionResponse, doing="report its version")
        return RuntimeVersion(name=found.runtime_name, version=found.runtime_version)

    def status(self) -> RuntimeStatus:
        """Return the status of the runtime, without its configuration, which would make the answer ten times as long."""
        return _status(self._call(f"{_RUNTIME}Status", api.StatusRequest(), api.StatusResponse, doing="report its status", longer=STARTING))

    def sandbox_image(self) -> str:
        """Return the image of the pods' sandbox containers, '' if the runtime's configuration does not name it.

        Source: kubeadm v1.36: util/runtime/runtime.go.
        """
        found = self._call(f"{_RUNTIME}Status", api.StatusRequest(verbose=True), api.StatusResponse, doing="report its configuration")
        try:
            image = json.loads(found.info.get("config", ""))["sandboxImage"]
        except (ValueError, KeyError, TypeError):
            return ""
        return image if isinstance(image, str) else ""

    def give_pod_range(self, cidrs: str) -> None:
        """Pass the address ranges of pods, separated by commas, to the runtime."""
        request = api.UpdateRuntimeConfigRequest(runtime_config=api.RuntimeConfig(network_config=api.NetworkConfig(pod_cidr=cidrs)))
        self._call(f"{_RUNTIME}UpdateRuntimeConfig", request, api.UpdateRuntimeConfigResponse, doing="accept the range of pod addresses")

    def image_directories(self) -> list[str]:
        """Return the directories that contain images, with that of the runtime's snapshots first."""
        found = self._call(
            f"{_IMAGES}ImageFsInfo", api.ImageFsInfoRequest(), api.ImageFsInfoResponse, doing="report the location of its images"
        )
        return [one.fs_id.mountpoint for one in found.image_filesystems if one.fs_id.mountpoint]

    def cgroup_driver(self) -> str | None:
        """Return `systemd` or `cgroupfs`; None for a runtime that lacks the call (containerd before 2.0) or does not report it."""
        try:
            found = self._call(
                f"{_RUNTIME}RuntimeConfig", api.RuntimeConfigRequest(), api.RuntimeConfigResponse, doing="report its settings"
            )
        except HostError as error:
            if _code(error.__cause__) == "UNIMPLEMENTED":
                return None
            raise
        return api.CgroupDriver.Name(found.linux.cgroup_driver).lower() if found.HasField("linux") else None

    def image(self, name: str) -> Image | None:
        """Return an image, or None if the runtime does not have it."""
        request = api.ImageStatusRequest(image=api.ImageSpec(image=name))
        found = self._call(f"{_IMAGES}ImageStatus", request, api.ImageStatusResponse, doing=f"look for the image {name}")
        return _image(found.image) if found.HasField("image") and found.image.id else None

    def images(self) -> list[Image]:
        """Return all images with their identifiers."""
        found = self._call(f"{_IMAGES}ListImages", api.ListImagesRequest(), api.ListImagesResponse, doing="list its images")
        return sorted(map(_image, found.images), key=lambda image: image.id)

    def pull(self, name: str) -> None:
        """Pull an image from its registry, even if the runtime has it. There is no time limit."""
        request = api.PullImageRequest(image=api.ImageSpec(image=name))
        self._call(f"{_IMAGES}PullImage", request, api.PullImageResponse, doing=f"pull the image {name}", image=name)

    def remove_image(self, name: str) -> None:
        """Remove an image; one that does not exist is not an error."""
        request = api.RemoveImageRequest(image=api.ImageSpec(image=name))
        self._call(f"{_IMAGES}RemoveImage", request, api.RemoveImageResponse, doing=f"remove the image {name}")

    def sandboxes(self) -> list[Sandbox]:
        """Return all sandboxes, by namespace and name."""
        found = self._call(f"{_RUNTIME}ListPodSandbox", api.ListPodSandboxRequest(), api.ListPodSandboxResponse, doing="list its pods")
        return sorted(map(_sandbox, found.items), key=lambda sandbox: (sandbox.namespace, sandbox.name, sandbox.id))

    def stop_sandbox(self, identifier: str) -> None:
        """Stop a sandbox with everything in it; one that is stopped or gone is not an error."""
        request = api.StopPodSandboxRequest(pod_sandbox_id=identifier)
        self._call(
            f"{_RUNTIME}StopPodSandbox", request, api.StopPodSandboxResponse, doing=f"stop the pod {identifier[:_SHORT]}", longer=ENDING
        )

    def remove_sandbox(self, identifier: str) -> None:
        """Remove a stopped sandbox with everything in it; one that is gone is not an error."""
        request = api.RemovePodSandboxRequest(pod_sandbox_id=identifier)
        self._call(
            f"{_RUNTIME}RemovePodSandbox",
            request,
            api.RemovePodSandboxResponse,
            doing=f"remove the pod {identifier[:_SHORT]}",
            longer=ENDING,
        )

    def containers(self, labels: Mapping[str, str]) -> list[Container]:
        """Return the containers with these labels, running or not, the latest first.

        Only `ended` returns how one ended.
        """
        request = api.ListContainersRequest(filter=api.ContainerFilter(label_selector=labels))
        found = self._call(f"{_RUNTIME}ListContainers", request, api.ListContainersResponse, doing="list its containers")
        return sorted(map(_container, found.containers), key=lambda one: (-one.created, one.id))

    def ended(self, container: Container) -> Container:
        """Return a container with its exit code and reason."""
        status = self._status(container.id)
        return replace(container, code=status.exit_code, reason=status.reason, ended=status.finished_at / _NANOSECONDS)

    def log_path(self, container: str) -> str:
        """Return the path of a container's log, empty if it has none."""
        return self._status(container).log_path

    def _status(self, container: str) -> api.ContainerStatus:
        request = api.ContainerStatusRequest(container_id=container)
        found = self._call(f"{_RUNTIME}ContainerStatus", request, api.ContainerStatusResponse, doing=f"find the container {container}")
        return found.status

    def _call(self, path: str, request: Message, answer: type[A], *, doing: str, image: str = "", longer: float = 1.0) -> A:
        """Make one call.

        `image` is the image that is pulled: errors are then the registry's, and only a deadline limits the time.
        """
        timeout = None if image else self._timeout * longer
        try:
            timeout = left(timeout)
            method = self._channel.unary_unary(path, request_serializer=_bytes, response_deserializer=answer.FromString)
            return method(request, timeout=timeout)
        except grpc.RpcError as error:
            raise self._explained(Refusal(doing=doing, code=_code(error) or "", said=_said(error), seconds=timeout), image=image) from error
        except TimeoutError as error:
            raise self._explained(Refusal(doing=doing, code="DEADLINE_EXCEEDED"), image=image) from error
        except ValueError as error:  # the channel was closed by another thread
            raise self._explained(Refusal(doing=doing, code="CANCELLED"), image=image) from error

    def _explained(self, refusal: Refusal, *, image: str) -> HostError:
        if refusal.code == "UNAVAILABLE" and (number := failures.probe(self._path)) is not None:
            return failures.unreachable(self._endpoint, self._path, number)
        found = failures.refused(refusal, endpoint=self._endpoint)
        return failures.not_pulled(image, refusal.said) if image and type(found) is HostError else found


def _bytes(message: Message) -> bytes:
    return message.SerializeToString()


def _code(error: object) -> str | None:
    return error.code().name if isinstance(error, grpc.Call) else None


def _said(error: object) -> str:
    return (error.details() or "") if isinstance(error, grpc.Call) else str(error)


def _status(found: api.StatusResponse) -> RuntimeStatus:
    return RuntimeStatus(
        conditions=tuple(
            Condition(type=one.type, status=one.status, reason=one.reason, message=one.message) for one in found.status.conditions
        ),
        handlers=tuple(
            RuntimeHandler(
                name=one.name,
                recursive_read_only_mounts=one.features.recursive_read_only_mounts,
                user_namespaces=one.features.user_namespaces,
            )
            for one in found.runtime_handlers
        ),
        supplemental_groups_policy=found.features.supplemental_groups_policy if found.HasField("features") else None,
    )


def _image(found: api.Image) -> Image:
    return Image(id=found.id, tags=tuple(found.repo_tags), digests=tuple(found.repo_digests), size=found.size)


def _sandbox(found: api.PodSandbox) -> Sandbox:
    ready = found.state == api.PodSandboxState.SANDBOX_READY
    return Sandbox(id=found.id, name=found.metadata.name, namespace=found.metadata.namespace, ready=ready)


def _container(found: api.Container) -> Container:
    return Container(
        id=found.id,
        name=found.metadata.name,
        pod=found.labels.get(_POD_NAME, ""),
        namespace=found.labels.get(_POD_NAMESPACE, ""),
        state=_STATES.get(found.state, ContainerState.UNKNOWN),
        pod_uid=found.labels.get(_POD_UID, ""),
        attempt=found.metadata.attempt,
        created=found.created_at / _NANOSECONDS,
    )


_STATES: Final[Mapping[int, ContainerState]] = {
    api.ContainerState.CONTAINER_CREATED: ContainerState.CREATED,
    api.ContainerState.CONTAINER_RUNNING: ContainerState.RUNNING,
    api.ContainerState.CONTAINER_EXITED: ContainerState.EXITED,
}
