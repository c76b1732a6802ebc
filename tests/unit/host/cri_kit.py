"""A fake container runtime: a gRPC server at a socket, with the answers that a test sets."""

# ruff: noqa: N802 - methods are named as the interface's calls

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc

from kubewright.host.cri import api_pb2 as api

CALLS = {
    f"/runtime.v1.{service}/{name}": (name, getattr(api, f"{name}Request"))
    for service, names in {
        "RuntimeService": (
            *("Version", "Status", "RuntimeConfig", "UpdateRuntimeConfig", "ListPodSandbox", "StopPodSandbox", "RemovePodSandbox"),
            *("ListContainers", "ContainerStatus"),
        ),
        "ImageService": ("ImageFsInfo", "ImageStatus", "ListImages", "PullImage", "RemoveImage"),
    }.items()
    for name in names
}


class FakeRuntime(grpc.GenericRpcHandler):
    """Has images and sandboxes. `fails` maps a call, or a call and its image or sandbox, to the errors of its next attempts."""

    def __init__(self, **images: str) -> None:
        self.images = images
        self.registry: dict[str, str] = {}
        self.sandboxes: dict[str, tuple[str, str, bool]] = {}
        self.containers: list[api.Container] = []
        self.logs: dict[str, str] = {}
        self.ends: dict[str, api.ContainerStatus] = {}
        self.conditions = [("RuntimeReady", True), ("NetworkReady", False)]
        self.info: dict[str, str] = {}
        self.handlers: list[str] = []
        self.driver: str | None = "CGROUPFS"
        self.fails: dict[str, list[tuple[str, str]]] = {}
        self.told: Counter[str] = Counter()

    def service(self, handler_call_details):
        found = CALLS.get(handler_call_details.method)
        if found is None:
            return None
        name, request = found

        def answer(message, context):
            about = message.image.image if hasattr(message, "image") else getattr(message, "pod_sandbox_id", "")
            key = f"{name} {about}".strip()
            self.told[key] += 1
            errors = self.fails.get(key) or self.fails.get(name)
            if errors:
                code, said = errors.pop(0)
                context.abort(getattr(grpc.StatusCode, code), said)
            return getattr(self, name)(message)

        return grpc.unary_unary_rpc_method_handler(
            answer, request_deserializer=request.FromString, response_serializer=lambda message: message.SerializeToString()
        )

    def Version(self, _):
        return api.VersionResponse(version="0.1.0", runtime_name="fake", runtime_version="1.2.3", runtime_api_version="v1")

    def Status(self, request):
        status = api.RuntimeStatus(conditions=[api.RuntimeCondition(type=kind, status=on, reason="r") for kind, on in self.conditions])
        handlers = [api.RuntimeHandler(name=name, features=api.RuntimeHandlerFeatures(user_namespaces=True)) for name in self.handlers]
        features = api.RuntimeFeatures(supplemental_groups_policy=True) if self.handlers else None
        info = self.info if request.verbose else {}
        return api.StatusResponse(status=status, info=info, runtime_handlers=handlers, features=features)

    def RuntimeConfig(self, _):
        if self.driver is None:
            return api.RuntimeConfigResponse()
        return api.RuntimeConfigResponse(linux=api.LinuxRuntimeConfiguration(cgroup_driver=self.driver))

    def UpdateRuntimeConfig(self, request):
        self.pod_range = request.runtime_config.network_config.pod_cidr
        return api.UpdateRuntimeConfigResponse()

    def ImageFsInfo(self, _):
        usage = api.FilesystemUsage(fs_id=api.FilesystemIdentifier(mountpoint="/var/lib/images"))
        return api.ImageFsInfoResponse(image_filesystems=[usage])

    def ImageStatus(self, request):
        found = self.images.get(request.image.image)
        return api.ImageStatusResponse(image=api.Image(id=found, size=1) if found else None)

    def ListImages(self, _):
        return api.ListImagesResponse(images=[api.Image(id=one, repo_tags=[name], size=7) for name, one in self.images.items()])

    def PullImage(self, request):
        name = request.image.image
        self.images[name] = self.registry.get(name, f"sha256:{name}")
        return api.PullImageResponse(image_ref=self.images[name])

    def RemoveImage(self, request):
        self.images.pop(request.image.image, None)
        return api.RemoveImageResponse()

    def ListPodSandbox(self, _):
        return api.ListPodSandboxResponse(items=[
            api.PodSandbox(id=one, metadata=api.PodSandboxMetadata(name=name, namespace=space), state=0 if ready else 1)
            for one, (space, name, ready) in self.sandboxes.items()
        ])  # fmt: skip

    def StopPodSandbox(self, request):
        if request.pod_sandbox_id in self.sandboxes:
            space, name, _ = self.sandboxes[request.pod_sandbox_id]
            self.sandboxes[request.pod_sandbox_id] = (space, name, False)
        return api.StopPodSandboxResponse()

    def RemovePodSandbox(self, request):
        assert not self.sandboxes.get(request.pod_sandbox_id, ("", "", False))[2]
        self.sandboxes.pop(request.pod_sandbox_id, None)
        return api.RemovePodSandboxResponse()

    def ListContainers(self, request):
        self.asked: Any = dict(request.filter.label_selector)
        return api.ListContainersResponse(containers=self.containers)

    def ContainerStatus(self, request):
        identifier = request.container_id
        return api.ContainerStatusResponse(status=self.ends.get(identifier) or api.ContainerStatus(log_path=self.logs.get(identifier, "")))


@contextmanager
def serving(runtime: FakeRuntime, path: Path) -> Iterator[str]:
    """Let a runtime serve at a socket; yields its address."""
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((runtime,))
    assert server.add_insecure_port(f"unix:{quote(str(path))}")
    server.start()
    try:
        yield f"unix://{path}"
    finally:
        server.stop(None).wait(10)
