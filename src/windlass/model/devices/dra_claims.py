"""Claims of dynamic resource allocation (DRA): device needs and writes at binding.

Devices are those that ResourceSlices list. On a node without slices they are the
devices that the node reports itself, under driver ``gpu.nvidia.com`` and with that
driver's attribute names. Selectors are evaluated once per kind of device
(:mod:`windlass.api.devices.cel`). :mod:`windlass.model.devices.dra_needs` computes the
needs of requests. A field that is not supported is reported as an error at that field,
never ignored.

A claim of a template belongs to one pod. A claim that several pods name is carried by
the oldest of them: that pod alone needs the devices, and the others need its node. They
wait until it is bound. Members of its own gang start with it
(:mod:`windlass.model.groups.claim_sharing`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, Protocol
from uuid import NAMESPACE_OID, uuid5

import msgspec

from windlass.api import views
from windlass.api.devices.assignment_annotations import DEVICES
from windlass.api.devices.request import WHOLE
from windlass.api.errors import FieldError
from windlass.api.views.claims import FINALIZER
from windlass.api.views.podshape import ClaimReference
from windlass.engine.decision import Bind
from windlass.kits.dicts import put_if_changed
from windlass.kits.timestamps import rfc3339
from windlass.model.devices import consumable_capacity
from windlass.model.devices.device_needs import ClaimedDevices
from windlass.model.devices.dra_devices import NO_ALLOCATIONS, DeviceInventory, UnownedAllocations
from windlass.model.devices.dra_needs import ClaimNeeds, GivenDevice, Slot, Source, charged_in
from windlass.spi.devices import ConsumedCounters, DeviceNeed
from windlass.spi.objects import Device

MAX_CONSUMERS = 256
"""Maximum number of pods in ``status.reservedFor`` of a claim.

``ResourceClaimReservedForMaxSize`` of Kubernetes.
"""
_RELEASED: Mapping[str, None] = {"allocation": None, "reservedFor": None}
Json = dict[str, Any]
Item = views.DeviceClaim | views.ClaimTemplate | views.DeviceClass | views.ResourceSlice


@dataclass(slots=True)
class _Found:
    """Claims of a pod while they are collected."""

    sources: list[tuple[str, Source]] = field(default_factory=list)
    """Field of the pod that names a claim which it carries, and the claim's requests."""
    problems: list[FieldError] = field(default_factory=list)
    pinned: str = ""


class DraAllocation(NamedTuple):
    """Device that a claim (by key) holds.

    ``share``: ID of the share of a device that consumes ``draws``; "" for a whole
        device.
    """

    claim: str
    resource: str
    index: int  # type: ignore[override]
    share: str = ""
    draws: ConsumedCounters = ()


class ClaimsChanged(Exception):
    """The devices chosen for a pod's claims can no longer be written."""


class AssumedClaims(Protocol):
    """Decided bind that its pod does not show yet."""

    @property
    def uid(self) -> str: ...

    @property
    def node(self) -> str: ...


class DraClaims:
    """Claims, templates, classes and device slices of the cluster, and the pods that use them.

    ``assumed``: pods (by key) with a bind that is decided and not yet shown. They use
        their claims.
    ``generated``: true if a controller creates the claims of templates, so that a pod
        waits for them (live clusters).
    """

    def __init__(self, assumed: Mapping[str, AssumedClaims]) -> None:
        self._assumed = assumed
        self.generated = False
        self.claims: dict[str, views.DeviceClaim] = {}
        self.templates: dict[str, views.ClaimTemplate] = {}
        self.classes: dict[str, views.DeviceClass] = {}
        self.inventory = DeviceInventory()
        self._needs = ClaimNeeds(self.inventory, self.classes)
        self.users: dict[str, dict[str, None]] = {}
        """Claim (by key) → the pods that name it."""
        self._owners: dict[str, dict[str, None]] = {}
        """Claim that was created for a pod (by key) → that pod."""
        self._allocated: dict[str, dict[str, None]] = {}
        """Node → the claims (by key) that are allocated there."""

    # ------------------------------------------------------------------ objects

    def upsert(self, item: Item) -> bool:
        """Store an object. Return whether a relevant field changed."""
        self._forget(item)
        match item:
            case views.ResourceSlice():
                return self.inventory.upsert(item)
            case views.DeviceClass():
                return put_if_changed(self.classes, item.name, item)
            case views.ClaimTemplate():
                return put_if_changed(self.templates, item.key, item)
            case views.DeviceClaim():
                self._leave_nodes(item)
                for node in item.nodes:
                    self._allocated.setdefault(node, {})[item.key] = None
                return put_if_changed(self.claims, item.key, item)

    def _forget(self, item: Item) -> None:
        if isinstance(item, views.ResourceSlice | views.DeviceClass):
            self._needs.forget()

    def remove(self, item: Item) -> bool:
        self._forget(item)
        match item:
            case views.ResourceSlice():
                return self.inventory.remove(item.name)
            case views.DeviceClass():
                return self.classes.pop(item.name, None) is not None
            case views.ClaimTemplate():
                return self.templates.pop(item.key, None) is not None
            case views.DeviceClaim():
                self._leave_nodes(item)
                return self.claims.pop(item.key, None) is not None

    def _leave_nodes(self, item: views.DeviceClaim) -> None:
        before = self.claims.get(item.key)
        for node in before.nodes if before is not None else ():
            _without(self._allocated, node, item.key)

    def use(self, pod: views.Pod) -> None:
        """Record that the pod names its claims."""
        for reference in pod.shape.claims:
            if reference.claim:
                self.users.setdefault(f"{pod.namespace}/{reference.claim}", {})[pod.key] = None
        for _, name in pod.claim_names:
            self._owners.setdefault(f"{pod.namespace}/{name}", {})[pod.key] = None

    def claims_of(self, pod: views.Pod) -> Iterator[views.DeviceClaim]:
        """Yield the existing claims of the pod."""
        for reference in pod.shape.claims:
            claim = self._own_claim(pod, reference)
            if claim is not None:
                yield claim

    def nodes_of(self, pod: views.Pod) -> Iterator[str]:
        """Yield the nodes on which claims of the pod are allocated."""
        for claim in self.claims_of(pod):
            yield from claim.nodes

    def unowned(self, node: str, pods: Mapping[str, views.Pod]) -> UnownedAllocations:
        """Return the devices of a node that claims hold although no running pod uses them.

        A claim outlives its pods until its controller has released it.
        """
        results = list[views.DeviceResult]()
        for key in self._allocated.get(node, ()):
            if all(pods[user].finished for user in self.users_of(key) if user in pods):
                results += self.claims[key].results
        devices = frozenset(
            (result.driver, result.pool, result.device) for result in results if not result.share
        )
        return UnownedAllocations(devices, tuple(result for result in results if result.share))

    def conflicting_claims(
        self,
        claim: views.DeviceClaim,
        node: str,
        devices: Json,
        pods: Mapping[str, views.Pod],
        manages: Callable[[views.Pod], bool],
    ) -> Iterator[views.DeviceClaim]:
        """Yield other claims that still hold devices of a node which are about to be allocated.

        Such claims were allocated for a binding that failed, or by a scheduler that
        died before binding.

        ``devices``: ``allocation.devices`` that is about to be written.
        ``manages``: whether this scheduler places a pod.

        Raises :class:`ClaimsChanged` if a pod that is bound, or that another scheduler
        is about to bind, holds one of the devices by now.
        """
        allocated = {_name(result) for result in devices["results"] if not result.get("adminAccess")}
        for key in self._allocated.get(node, ()):
            other = self.claims[key]
            held = {
                (result.driver, result.pool, result.device) for result in other.results if not result.share
            }
            if key == claim.key or allocated.isdisjoint(held):
                continue
            for user in (pods[user] for user in self.users_of(key) if user in pods):
                if self._placed(user) or not manages(user):
                    names = ", ".join(sorted(device for _, _, device in allocated & held))
                    raise ClaimsChanged(f"claim {key} of pod {user.key} holds {names} on {node} by now")
            yield other

    def users_of(self, claim: str) -> Iterator[str]:
        """Yield the pods that name a claim (by key), and the pod that it was created for."""
        yield from self.users.get(claim, ())
        yield from self._owners.get(claim, ())

    def leave(self, pod: views.Pod) -> None:
        """Forget a deleted pod."""
        for reference in pod.shape.claims:
            _without(self.users, f"{pod.namespace}/{reference.claim}", pod.key)
        for _, name in pod.claim_names:
            _without(self._owners, f"{pod.namespace}/{name}", pod.key)

    # ------------------------------------------------------------------ needs of a pod

    def needs_of(
        self, pod: views.Pod, pods: Mapping[str, views.Pod], mates: Container[str] = ()
    ) -> tuple[ClaimedDevices, str]:
        """Return the device needs of a pod's claims, and the node that a claim pins it to (or "").

        For a bound pod, the needs are the devices that its claims hold, whichever
        scheduler allocated them. ``mates``: pods that start together with it, on one
        node.
        """
        held = self.held(pod, pods) if pod.node_name else ()
        if held or (pod.node_name and self._is_admin_only(pod)):
            return self._held(pod, held), ""
        collected = _Found()
        for position, reference in enumerate(pod.shape.claims):
            place = f"spec.resourceClaims[{position}]"
            carrier = self._carrier(pod, reference, pods)
            if carrier is not None and carrier.key != pod.key:
                if carrier.node_name or carrier.key not in mates:
                    self._share(collected, place, reference, carrier)
                elif (users := len(self.users[f"{pod.namespace}/{reference.claim}"])) > MAX_CONSUMERS:
                    message = (
                        f"{users} pods name ResourceClaim {reference.claim}, which serves {MAX_CONSUMERS}"
                    )
                    collected.problems.append(FieldError.forbidden(place, message))
                continue
            source = self._source(collected, place, pod, reference)
            if source is not None:
                collected.sources.append((place, source))
        plan = self._needs.plan(tuple(source for _, source in collected.sources))
        for claim, request, why in plan.problems:
            place = collected.sources[claim][0] + (f" (request {request})" if request else "")
            collected.problems.append(FieldError.forbidden(place, why))
        return ClaimedDevices(plan.needs, plan.charges, tuple(collected.problems)), collected.pinned

    def allocations_of(self, pod: views.Pod) -> Iterator[DraAllocation]:
        """Yield the devices that the pod's claims hold, whichever scheduler allocated them.

        Devices that no slice lists are left out.
        """
        for reference in pod.shape.claims:
            claim = self._own_claim(pod, reference)
            for result in claim.results if claim is not None else ():
                place = self.inventory.place_of(pod.node_name, result.driver, result.pool, result.device)
                if claim is None or place is None:
                    continue
                listed = self.inventory.listed_at(pod.node_name, *place)
                draws = listed.draws_of(result.consumed) if result.share and listed is not None else ()
                yield DraAllocation(claim.key, *place, result.share, draws)

    def held(self, pod: views.Pod, pods: Mapping[str, views.Pod]) -> tuple[GivenDevice, ...]:
        """Return the devices allocated for the pod, in the order of its needs (:meth:`needs_of`).

        Devices of claims that another pod carries are left out.
        """
        shared = {
            f"{pod.namespace}/{reference.claim}"
            for reference in pod.shape.claims
            if (carrier := self._carrier(pod, reference, pods)) is not None and carrier.key != pod.key
        }
        devices = (
            GivenDevice(device.resource, device.index, device.draws)
            for device in self.allocations_of(pod)
            if device.claim not in shared
        )
        return tuple(sorted(devices, key=lambda device: (device.resource, bool(device.draws), device)))

    def _is_admin_only(self, pod: views.Pod) -> bool:
        """Return whether the pod's claims are allocated and hold no device (admin access only)."""
        claims = [self._own_claim(pod, reference) for reference in pod.shape.claims]
        return bool(claims) and all(
            claim is not None and claim.allocated and not claim.results for claim in claims
        )

    def _held(self, pod: views.Pod, devices: Sequence[GivenDevice]) -> ClaimedDevices:
        """Return the needs of a bound pod.

        Whole devices are counted per resource. Shares of devices are listed one by one
        and charged by their size.
        """
        charges: dict[str, int] = {}
        for device in devices:
            charge = charged_in(device.resource)
            charges[charge] = charges.get(charge, 0) + self.inventory.milli_of(pod.node_name, *device)
        needs = [
            DeviceNeed(resource, 1 if draws else len(list(same)), milli=WHOLE, draws=draws)
            for (resource, draws, _), same in groupby(
                enumerate(devices),
                lambda item: (item[1].resource, item[1].draws, item[0] if item[1].draws else -1),
            )
        ]
        return ClaimedDevices(tuple(needs), tuple(sorted(charges.items())))

    def carried_annotations(
        self, key: str, pods: Mapping[str, views.Pod], decided: Callable[[str], dict[str, str]]
    ) -> dict[str, str]:
        """Return the device annotation of the pod that carries a claim which this pod shares.

        ``decided``: annotations of a pod that is about to be bound.
        """
        pod = pods.get(key)
        for reference in pod.shape.claims if pod is not None else ():
            carrier = self._carrier(pod, reference, pods) if pod is not None else None
            if carrier is None or carrier.key == key:
                continue
            if DEVICES in carrier.annotations:
                return {DEVICES: carrier.annotations[DEVICES]}
            if annotations := decided(carrier.key):
                return annotations
        return {}

    def sharers(
        self, pod: views.Pod, pods: Mapping[str, views.Pod], among: Callable[[views.Pod], bool]
    ) -> tuple[str, dict[str, views.Pod]]:
        """Return the first name of the claims that a pod shares, and all pods that share them.

        Pods are connected directly or through other pods. The pod itself is included.
        ``among``: whether another pod counts.
        """
        sharers, names, queue = {pod.key: pod}, set[str](), [pod]
        while queue:
            for reference in queue.pop().shape.claims:
                if not reference.claim or reference.claim in names:
                    continue
                names.add(reference.claim)
                for key in self.users.get(f"{pod.namespace}/{reference.claim}", ()):
                    mate = pods.get(key) if key not in sharers else None
                    if mate is not None and among(mate):
                        sharers[key] = mate
                        queue.append(mate)
        return min(names, default=""), sharers

    def carrier_of(self, claim: str, pods: Mapping[str, views.Pod]) -> views.Pod | None:
        """Return the pod that carries a claim (by key), among those that name it.

        Bound pods come before pods with a decided bind, and those before pending pods.
        Older pods come before younger ones.
        """
        users = self.users.get(claim, ())
        living = [pods[key] for key in users if key in pods and stays(pods[key])]
        return min(
            living,
            key=lambda pod: (not pod.node_name, not self._placed(pod), pod.created, pod.key),
            default=None,
        )

    def _placed(self, pod: views.Pod) -> bool:
        """Return whether the pod is bound or its bind is decided and not known to have failed."""
        assumed = self._assumed.get(pod.key)
        return bool(pod.node_name) or (assumed is not None and assumed.uid == pod.uid)

    def keeps_in_use(
        self, pod: views.Pod, pods: Mapping[str, views.Pod], outside: Callable[[views.Pod], bool]
    ) -> bool:
        """Return whether devices that a pod carries stay in use when it is removed.

        That is so if bound pods that are not removed with it (``outside``) use them too.
        """
        return bool(pod.node_name) and any(
            stays(other) and bool(other.node_name) and outside(other)
            for reference in pod.shape.claims
            if (carrier := self._carrier(pod, reference, pods)) is not None and carrier.key == pod.key
            for user in self.users[f"{pod.namespace}/{reference.claim}"]
            if (other := pods.get(user)) is not None and other.key != pod.key
        )

    def _carrier(
        self, pod: views.Pod, reference: ClaimReference, pods: Mapping[str, views.Pod]
    ) -> views.Pod | None:
        """Return :meth:`carrier_of`; ``None`` for a claim that belongs to the pod alone."""
        return self.carrier_of(f"{pod.namespace}/{reference.claim}", pods) if reference.claim else None

    def _share(self, collected: _Found, place: str, reference: ClaimReference, carrier: views.Pod) -> None:
        if carrier.node_name:
            if collected.pinned not in ("", carrier.node_name):
                collected.problems.append(
                    FieldError.forbidden(
                        place, f"its claims are on two nodes: {collected.pinned}, {carrier.node_name}"
                    )
                )
            collected.pinned = carrier.node_name
            return
        collected.problems.append(
            FieldError.forbidden(
                place,
                f"ResourceClaim {reference.claim} is not allocated yet: pod {carrier.key} carries it and waits",
            )
        )

    def _source(
        self, collected: _Found, place: str, pod: views.Pod, reference: ClaimReference
    ) -> Source | None:
        """Return the requests and constraints of a claim of the pod; ``None`` if it is not known."""
        if reference.device_class:
            if self.generated and self._own_claim(pod, reference) is None:
                self._missing(collected, place, f"the claim of {reference.name} is being created")
            return _of_class(reference), ()
        if reference.template:
            claim = self._own_claim(pod, reference)
            template = self.templates.get(f"{pod.namespace}/{reference.template}")
            if claim is None and self.generated and not pod.node_name:
                self._missing(
                    collected, place, f"the claim of template {reference.template} is being created"
                )
            source = claim or template
            if source is None:
                self._missing(
                    collected,
                    place,
                    f"ResourceClaimTemplate {pod.namespace}/{reference.template} does not exist",
                )
        else:
            source = self.claims.get(f"{pod.namespace}/{reference.claim}")
            if source is None:
                self._missing(
                    collected, place, f"ResourceClaim {pod.namespace}/{reference.claim} does not exist"
                )
        if source is None:
            return None
        collected.problems.extend(source.problems)
        return source.requests, source.constraints

    def _missing(self, collected: _Found, place: str, why: str) -> None:
        collected.problems.append(FieldError(place, why, "FieldValueNotFound"))

    def _own_claim(self, pod: views.Pod, reference: ClaimReference) -> views.DeviceClaim | None:
        """Return the named claim, or the claim created for the pod from a template or a class."""
        name = dict(pod.claim_names).get(reference.name) or reference.claim
        return self.claims.get(f"{pod.namespace}/{name}") if name else None

    # ------------------------------------------------------------------ writes

    def allocation(
        self,
        pod: views.Pod,
        node: str,
        devices: Sequence[GivenDevice],
        pods: Mapping[str, views.Pod],
    ) -> Iterator[tuple[views.DeviceClaim, Json]]:
        """Yield the claims of a pod that is about to be bound, with ``allocation.devices`` of each.

        The allocation is empty for a claim that another pod carries. ``devices``: the
        pod's devices, in the order of :meth:`needs_of`. Raises :class:`ClaimsChanged` if
        they no longer serve the claims' requests.
        """
        own: list[views.DeviceClaim] = []
        for reference in pod.shape.claims:
            claim = self._own_claim(pod, reference)
            if claim is None:
                continue
            carrier = self._carrier(pod, reference, pods)
            if carrier is not None and carrier.key != pod.key:
                yield claim, {}
            else:
                own.append(claim)
        plan = self._needs.plan(tuple((claim.requests, claim.constraints) for claim in own))
        listed = self.inventory.listed_devices(node) or self.inventory.reported_devices(node)
        resources = {result.resource for result in listed}
        selected = [device for device in devices if device.resource in resources] if listed else list(devices)
        results = self._needs.results(plan, selected, listed)
        if results is None:
            raise ClaimsChanged(f"the devices that were chosen on {node} serve its claims no longer")
        for number, claim in enumerate(own):
            own_results = [result for result in results if result.claim == number]
            config = self._config(claim, list(dict.fromkeys(result.option for result in own_results)))
            written = [
                self._result(result.option, node, result.card, f"{claim.uid}/{claim.resource_version}/{at}")
                for at, result in enumerate(own_results)
            ]
            yield claim, {"results": written, **({"config": config} if config else {})}

    def _result(self, option: views.DeviceRequest, node: str, slot: Slot, name: str) -> Json:
        """Return the allocation result of a device.

        ``name``: unique per result, the source of its share ID.
        """
        driver, pool, device = self.inventory.name_of(node, *slot)
        result: Json = {"request": option.name, "driver": driver, "pool": pool, "device": device}
        if option.admin:
            result["adminAccess"] = True
        listed = self.inventory.listed_at(node, *slot)
        if listed is not None and listed.shared:
            result["shareID"] = str(uuid5(NAMESPACE_OID, name))
            if consumed := dict(consumable_capacity.consumed(option.capacity, listed.capacity) or ()):
                result["consumedCapacity"] = consumed
        if listed is not None and listed.ready:
            result["bindingConditions"] = [*listed.ready]
        if listed is not None and listed.failed:
            result["bindingFailureConditions"] = [*listed.failed]
        tolerated = msgspec.to_builtins(option.tolerations)
        return result | ({"tolerations": [*tolerated]} if tolerated else {})

    def _config(self, claim: views.DeviceClaim, served: Sequence[views.DeviceRequest]) -> list[Json]:
        """Return the configuration for the drivers, as kube-scheduler copies it.

        Each class comes once, with the requests that it serves. Then come the claim's
        entries that concern one of the requests or the selected alternative.
        """
        of_class: dict[str, list[str]] = {}
        for option in served:
            of_class.setdefault(option.device_class, []).append(option.name)
        config: list[Json] = []
        for name, requests in of_class.items():
            known = self.classes.get(name)
            class_config = known.config if known is not None else ()
            config += [{**entry.body, "source": "FromClass", "requests": requests} for entry in class_config]
        names = {name for option in served for name in (option.name, option.name.partition("/")[0])}
        for entry in claim.config:
            if not entry.requests:
                config.append({**entry.body, "source": "FromClaim"})
            elif not names.isdisjoint(entry.requests):
                config.append({**entry.body, "source": "FromClaim", "requests": [*entry.requests]})
        return config

    def listed_devices(self, node: str, unowned: UnownedAllocations = NO_ALLOCATIONS) -> tuple[Device, ...]:
        """Return the devices that slices list for a node.

        ``unowned``: allocations without a running pod (:meth:`unowned`). Their devices are
            unavailable.
        """
        return self.inventory.listed_devices(node, unowned)

    def learn(self, node: str, devices: Iterable[Device]) -> bool:
        """Store the devices that a node reports itself. Return whether their kinds changed."""
        news = self.inventory.learn(node, tuple(devices))
        if news:
            self._needs.forget()
        return news


@dataclass(frozen=True, slots=True)
class ClaimWrite:
    """Merge patch of a ResourceClaim that is sent before a binding.

    It patches the status, at the version in ``body`` if one is given, or ``metadata``.
    """

    namespace: str
    name: str
    body: Mapping[str, object]
    subresource: str = "status"

    @property
    def needs_preparation(self) -> bool:
        """True if a device is allocated that has to be made ready before a pod is bound."""
        status: Any = self.body.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results", ())
        return any("bindingConditions" in result for result in results)


def writes_for(
    claims: DraClaims,
    pod: views.Pod,
    bind: Bind,
    pods: Mapping[str, views.Pod],
    now: float,
    manages: Callable[[views.Pod], bool],
    together: Collection[str] = (),
) -> list[ClaimWrite]:
    """Return the writes for a pod's claims before it is bound.

    They allocate a claim that has no allocation, enter the pod as a user of the
    devices, and add the finalizer that protects an allocated claim from deletion.

    ``now``: Unix seconds. It is written because kube-scheduler sets a missing
        allocation time when it adds a pod, and the server refuses that update.
    ``manages``: whether this scheduler places a pod.
    ``together``: pods that start with this one. The pod that carries a claim enters
        them too.

    Raises :class:`ClaimsChanged`.
    """
    selected = [GivenDevice(share.resource, share.index, share.draws) for share in bind.devices]
    writes = []
    for claim, devices in claims.allocation(pod, bind.node, selected, pods):
        version: dict[str, object] = {"metadata": {"resourceVersion": claim.resource_version}}
        if not devices:
            carrier = claims.carrier_of(claim.key, pods)
            carried = carrier is not None and carrier.key in together
            if pod.uid not in claim.reserved and not carried:
                status: dict[str, object] = {"reservedFor": [*claim.consumers, _consumer(pod)]}
                writes.append(ClaimWrite(claim.namespace, claim.name, {**version, "status": status}))
            continue
        writes += [
            _given_back(other)
            for other in claims.conflicting_claims(claim, bind.node, devices, pods, manages)
        ]
        if claim.allocated:  # for a binding that failed, or by a scheduler that is gone
            writes.append(_given_back(claim))
            version = {}
        field = {"key": "metadata.name", "operator": "In", "values": [bind.node]}
        allocation = {
            "devices": devices,
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            "allocationTimestamp": rfc3339(now),
        }
        mates = [pods[key] for key in together if key != pod.key and key in claims.users.get(claim.key, ())]
        status = {"allocation": allocation, "reservedFor": [_consumer(user) for user in (pod, *mates)]}
        writes.append(ClaimWrite(claim.namespace, claim.name, {**version, "status": status}))
        if FINALIZER not in claim.finalizers:
            finalizing = {"metadata": {"uid": claim.uid, "finalizers": [*claim.finalizers, FINALIZER]}}
            writes.append(ClaimWrite(claim.namespace, claim.name, finalizing, ""))
    return writes


def _name(result: Json) -> tuple[str, str, str]:
    """Return the identity of an allocated device: driver, pool and name."""
    return result["driver"], result["pool"], result["device"]


def _given_back(claim: views.DeviceClaim) -> ClaimWrite:
    """Return the write that releases a claim, if it is still at the version seen."""
    version = {"resourceVersion": claim.resource_version}
    return ClaimWrite(claim.namespace, claim.name, {"metadata": version, "status": dict(_RELEASED)})


def withdrawals(claims: Iterable[views.DeviceClaim], pods: Collection[str]) -> list[ClaimWrite]:
    """Return the writes that release claims which only these pods (by UID) may use.

    The claims can be allocated again afterwards.
    """
    return [
        ClaimWrite(claim.namespace, claim.name, {"metadata": {"uid": claim.uid}, "status": dict(_RELEASED)})
        for claim in claims
        if claim.allocated and set(claim.reserved) <= set(pods)
    ]


def stays(pod: views.Pod) -> bool:
    """Return whether a pod uses its claims, or will use them."""
    return not pod.finished and bool(pod.node_name or not pod.deleted)


def _consumer(pod: views.Pod) -> Json:
    return {"resource": "pods", "name": pod.name, "uid": pod.uid}


def _of_class(reference: ClaimReference) -> tuple[views.ClaimRequest, ...]:
    """Return the request for one device of a class."""
    option = views.DeviceRequest(reference.name, reference.device_class)
    return (views.ClaimRequest(reference.name, (option,)),)


def _without(users_by_claim: dict[str, dict[str, None]], claim: str, pod: str) -> None:
    """Remove a pod from the users of a claim, and the claim if it has no users left."""
    users = users_by_claim.get(claim, {})
    users.pop(pod, None)
    if not users:
        users_by_claim.pop(claim, None)
