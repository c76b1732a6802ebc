"""The Lease of a Node: building it and renewing it. Source: kubelet v1.36: component-helpers/apimachinery/lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict

from kubewright.agent.dependencies import Timings
from kubewright.base.clock import Clock, rfc3339_micro
from kubewright.base.errors import APIError, Conflict, NotFound
from kubewright.http.messages import REQUEST_TIMEOUT
from kubewright.kube.answers import asked_to_wait
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.kube.resources import LEASE, NODE

NAMESPACE: Final = "kube-node-lease"


class RenewalTerms(TypedDict):
    """The terms of each renewal.

    The duration is in seconds; the time has exactly six fractional digits, because the API refuses others.
    """

    duration: int
    now: str


def new_lease(node: Mapping[str, Any], *, duration: int, now: str) -> Object:
    """Return the Lease to create."""
    name = node["metadata"]["name"]
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": NAMESPACE, "ownerReferences": [owner_reference(node)]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": duration, "renewTime": now},
    }


def renewed(lease: Mapping[str, Any], node: Mapping[str, Any] | None, *, duration: int, now: str) -> Object:
    """Return the Lease to put in place of `lease`.

    The holder is never corrected. The owner reference is added if it is missing; otherwise `node` may be None.
    `renewTime` never decreases: the node lifecycle controller only counts later times as renewals, and the clock may
    have been set back by hours.
    """
    metadata = dict(lease["metadata"])
    if not metadata.get("ownerReferences") and node is not None:
        metadata["ownerReferences"] = [owner_reference(node)]
    spec = lease.get("spec", {})
    spec = {**spec, "leaseDurationSeconds": duration, "renewTime": max(now, _after(spec.get("renewTime", "")))}
    return {**lease, "metadata": metadata, "spec": spec}


def _after(moment: str) -> str:
    """Return a time plus one microsecond; the earliest time for a text that is not a time.

    Such texts sort like their times.
    """
    try:
        return rfc3339_micro(datetime.fromisoformat(moment) + timedelta(microseconds=1))
    except (ValueError, OverflowError):
        return ""


def has_owner(lease: Mapping[str, Any]) -> bool:
    """Whether the Lease has an owner reference, so that it is deleted with its Node."""
    return bool(lease["metadata"].get("ownerReferences"))


def owner_reference(node: Mapping[str, Any]) -> Object:
    """Return the reference from a Lease to its Node."""
    return {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}


class LeaseController:
    """Renews one Lease, creating it if there is none. In the steady state, a round is one PUT.

    `accepted` is called after each renewal, `missed` with the error after each call that failed for any reason but a
    conflict, `absent` when there is no Node to own a new Lease.
    """

    def __init__(
        self,
        api: Callable[[], AsyncKubeAPI],
        name: str,
        *,
        timings: Timings,
        clock: Clock,
        accepted: Callable[[], None] = lambda: None,
        missed: Callable[[APIError], None] = lambda _: None,
        absent: Callable[[], None] = lambda: None,
    ) -> None:
        self._api = api
        self._name = name
        self._timings = timings
        self._clock = clock
        self._lease: Object | None = None
        self._accepted = accepted
        self._missed = missed
        self._absent = absent
        self.renewed_at: datetime | None = None
        """When the API last accepted a renewal."""

    @property
    def is_held(self) -> bool:
        """Whether there is a Lease that we renew."""
        return self._lease is not None

    async def begin(self, node: Object) -> None:
        """Create the Lease of a Node that was just created, in one attempt and without reading first.

        Rounds repair failures.
        """
        with suppress(APIError):
            self._accept(await self._api().create(new_lease(node, **self._terms())))

    async def round(self) -> None:
        """Renew once: the known Lease without reading it, otherwise after a look-up. Never raises API errors."""
        if self._lease is not None and await self._update(self._lease):
            return
        found, created = await self._look_up()
        if found is not None and not created:
            await self._update(found)

    async def _update(self, found: Object) -> bool:
        """Try to replace the Lease with a renewed one, several times without waiting, unless the API server asks for it.

        A conflict uses up an attempt.
        """
        for _ in range(self._timings.lease_attempts):
            try:
                node = None if has_owner(found) else await self._api().get(NODE, self._name)
                self._accept(await self._api().update(renewed(found, node, **self._terms())))
            except Conflict:
                fresh, created = await self._look_up()
                if fresh is None or created:
                    return created
                found = fresh
            except APIError as error:
                self._missed(error)  # a failed connection is not reused, so there is nothing to close
                await asyncio.sleep(asked_to_wait(error, most=REQUEST_TIMEOUT))
            else:
                return True
        return False

    async def _look_up(self) -> tuple[Object | None, bool]:
        """Return the stored Lease, and whether it was just created.

        None if its Node does not exist: then there is no Lease. Retries for as long as the API does not answer.
        """
        attempt = 0
        while True:
            attempt += 1
            asked = 0.0
            try:
                return await self._api().get(LEASE, self._name, NAMESPACE), False
            except NotFound:
                made = await self._create()
                if made is not None:
                    return made
            except APIError as error:
                self._missed(error)
                asked = asked_to_wait(error, most=REQUEST_TIMEOUT)
            await asyncio.sleep(max(self._timings.lease_backoff(attempt), asked))

    async def _create(self) -> tuple[Object | None, bool] | None:
        """Create the Lease. Returns None if that failed and it has to be looked up again."""
        try:
            node = await self._api().get(NODE, self._name)
        except APIError as error:
            self._lease = None
            if isinstance(error, NotFound):
                self._absent()
            return None, False
        try:
            created = await self._api().create(new_lease(node, **self._terms()))
        except APIError:
            return None
        self._accept(created)
        return created, True

    def _accept(self, stored: Object) -> None:
        self._lease = stored
        self.renewed_at = self._clock.now()
        self._accepted()

    def _terms(self) -> RenewalTerms:
        return RenewalTerms(duration=self._timings.lease_duration, now=rfc3339_micro(self._clock.now()))
