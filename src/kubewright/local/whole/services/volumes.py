"""Volumes on the machines' disks: the provisioner of the default StorageClass.

A claim gets a directory on the machine that the scheduler has chosen for its first pod, and a PersistentVolume of type
`local` that only pods on this machine can use. The directory outlives pods, and the machine's power; it is deleted with
the claim if the class says so. The protocol is that of external provisioners (kubernetes v1.36:
pkg/controller/volume/persistentvolume/pv_controller.go).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.base.errors import AlreadyExists, NotFound
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object, annotation_of, identity_of, metadata
from kubewright.kube.daemons.controller import NotNow, SharedInformer, Workers
from kubewright.kube.daemons.queueing import ItemBackoff, WorkQueue
from kubewright.kube.daemons.recorder import EventRecorder
from kubewright.kube.resources import named
from kubewright.machines.machine import Machine

_log = logging.getLogger(__name__)

CLASS_NAME: Final = "standard"
PROVISIONER: Final = "kubewright.io/machine-disk"
DIRECTORY: Final = PurePosixPath("/var/lib/kubewright/volumes")
"""On a machine's disk; each volume is a directory below it."""
CLAIM: Final = named("PersistentVolumeClaim")
VOLUME: Final = named("PersistentVolume")
CLASS: Final = named("StorageClass")
_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"
_PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
_ASKED: Final = ("volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner")
"""Annotations with which kube-controller-manager asks a provisioner for a volume; the second one is the older name."""
_CHOSEN: Final = "volume.kubernetes.io/selected-node"
"""The scheduler's annotation, for classes with WaitForFirstConsumer."""
_WITHIN: Final = 60.0
"""Seconds for a command that makes a directory in a machine; removing one may take longer."""


def storage_class() -> Object:
    """Return the StorageClass of a cluster of machines."""
    return {
        "apiVersion": CLASS.api_version,
        "kind": CLASS.kind,
        "metadata": {"name": CLASS_NAME, "annotations": {_DEFAULT: "true"}},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def is_wanted(claim: Object) -> bool:
    """Return whether a claim waits for a volume of ours, and a machine has been chosen for it."""
    if claim.get("spec", {}).get("volumeName") or metadata(claim).get("deletionTimestamp") or not annotation_of(claim, _CHOSEN):
        return False
    return any(annotation_of(claim, name) == PROVISIONER for name in _ASKED)


def is_released(volume: Object) -> bool:
    """Return whether a volume of ours must be deleted: its claim is gone, and its reclaim policy is Delete."""
    spec, name = volume.get("spec", {}), identity_of(volume)[0]
    return (
        annotation_of(volume, _PROVISIONED_BY) == PROVISIONER
        and spec.get("persistentVolumeReclaimPolicy") == "Delete"
        and (volume.get("status") or {}).get("phase") == "Released"
        and (spec.get("local") or {}).get("path") == str(DIRECTORY / name)
    )


def volume_for(claim: Object, storage: Object) -> Object:
    """Return the PersistentVolume for a claim, with the settings of its StorageClass."""
    spec, name = claim["spec"], f"pvc-{metadata(claim)['uid']}"
    machine = annotation_of(claim, _CHOSEN)
    affinity = {"key": "kubernetes.io/hostname", "operator": "In", "values": [machine]}
    return {
        "apiVersion": VOLUME.api_version,
        "kind": VOLUME.kind,
        "metadata": {"name": name, "annotations": {_PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "volumeMode": "Filesystem",
            "storageClassName": identity_of(storage)[0],
            "persistentVolumeReclaimPolicy": storage.get("reclaimPolicy", "Delete"),
            "mountOptions": storage.get("mountOptions") or [],
            "local": {"path": str(DIRECTORY / name)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [affinity]}]}},
            "claimRef": {
                "apiVersion": CLAIM.api_version,
                "kind": CLAIM.kind,
                "namespace": metadata(claim)["namespace"],
                "name": metadata(claim)["name"],
                "uid": metadata(claim)["uid"],
            },
        },
    }


def machine_of(volume: Object) -> str:
    """Return the machine of a volume of ours, '' if it names none."""
    try:
        (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        return str(term["matchExpressions"][0]["values"][0])
    except (KeyError, IndexError, ValueError, TypeError):
        return ""


class Provisioner:
    """Makes and deletes volumes. `machine` returns one that runs, None for others; `exists` says whether there is such a machine."""

    name = "volumes"

    def __init__(
        self,
        api: AsyncKubeAPI,
        *,
        claims: SharedInformer,
        volumes: SharedInformer,
        machine: Callable[[str], Machine | None],
        exists: Callable[[str], bool],
        events: EventRecorder,
    ) -> None:
        self._api = api
        self._claims = claims
        self._volumes = volumes
        self._machine = machine
        self._exists = exists
        self._events = events
        self._queue: WorkQueue[str] = WorkQueue(ItemBackoff(first=0.1, limit=30.0))

    def look_again(self) -> None:
        """Process everything again: a machine has started or stopped."""
        for objects, kind in ((self._claims.objects, CLAIM.kind), (self._volumes.objects, VOLUME.kind)):
            for obj in list(objects.values()):
                self._heard(kind, obj)

    async def run(self) -> None:
        """Work until cancelled."""
        for informer, kind in ((self._claims, CLAIM.kind), (self._volumes, VOLUME.kind)):
            informer.subscribe(lambda event, kind=kind: self._changed(kind, event))  # type: ignore[misc]
            await informer.wait_synced()
        await Workers(self.name, queue=self._queue, handle=self._handle, count=4).run()

    def _changed(self, kind: str, event: WatchEvent) -> None:
        if event.type is not EventType.DELETED:
            self._heard(kind, event.object)

    def _heard(self, kind: str, obj: Object) -> None:
        if is_wanted(obj) if kind == CLAIM.kind else is_released(obj):
            name, namespace = identity_of(obj)
            self._queue.add(f"{kind} {namespace or ''} {name}")

    async def _handle(self, key: str) -> None:
        kind, namespace, name = key.split(" ")
        if kind == CLAIM.kind:
            claim = self._claims.get(name, namespace)
            if claim is not None and is_wanted(claim):
                await self._provision(claim)
        else:
            volume = self._volumes.get(name)
            if volume is not None and is_released(volume):
                await self._delete(volume)

    async def _provision(self, claim: Object) -> None:
        name, namespace = identity_of(claim)
        if claim["spec"].get("volumeMode") == "Block":
            message = "machines have no block devices; use volumeMode Filesystem"
            self._events.event(claim, kind="Warning", reason="ProvisioningFailed", message=message)
            return
        storage = await self._api.get(CLASS, str(claim["spec"].get("storageClassName")))
        volume = volume_for(claim, storage)
        await self._in_machine(annotation_of(claim, _CHOSEN), "mkdir", "-p", "-m", "0777", volume["spec"]["local"]["path"], within=_WITHIN)
        try:
            await self._api.create(volume)
        except AlreadyExists:  # the claim has not been seen with its volume yet
            return
        where = f"{identity_of(volume)[0]} on machine {machine_of(volume)}"
        self._events.event(claim, kind="Normal", reason="ProvisioningSucceeded", message=f"made volume {where}")
        _log.info("volumes: %s for the claim %s/%s", where, namespace, name)

    async def _delete(self, volume: Object) -> None:
        name, machine = identity_of(volume)[0], machine_of(volume)
        if self._exists(machine):  # otherwise its disk is gone, and the data with it
            await self._in_machine(machine, "rm", "-rf", "--one-file-system", volume["spec"]["local"]["path"], within=10 * _WITHIN)
        try:
            await self._api.delete(VOLUME, name)
        except NotFound:
            return
        _log.info("volumes: %s was deleted", name)

    async def _in_machine(self, name: str, *command: Any, within: float) -> None:
        machine = self._machine(name)
        if machine is None:
            raise NotNow(f"machine {name} does not run", quiet=True)
        await asyncio.to_thread(machine.run, *command, within=within)
