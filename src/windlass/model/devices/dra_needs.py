"""Device needs of a pod's claims, and the assignment of allocated devices to requests.

Requests are *independent* if each selects one exact kind, no two of the kinds overlap
and no constraint ties their devices together. They are counted need by need, like other
devices. All others become one joint need, with a combined search for its devices
(:mod:`windlass.engine.devices.dra_allocator`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice
from typing import NamedTuple

import msgspec

from windlass.api import views
from windlass.api.devices.request import GPU, WHOLE
from windlass.api.views.claims import ALL, DeviceConstraint
from windlass.engine.devices.dra_allocator import MAX_RESULTS, HeldDevice, OfferedDevice, allocate
from windlass.model.devices import consumable_capacity
from windlass.model.devices.dra_devices import DRIVER, DeviceInventory, DeviceKind, MatchedDevices, subject_of
from windlass.model.devices.resource_slices import value_of
from windlass.spi.devices import (
    ConsumedCounters,
    DeviceNeed,
    DeviceOption,
    DeviceRule,
    JointDeviceNeed,
    kind_key,
)
from windlass.spi.objects import Device

Source = tuple[tuple[views.ClaimRequest, ...], tuple[DeviceConstraint, ...]]
"""Requests and constraints of one claim."""
Slot = tuple[str, int]
"""Resource of a device and its index on the node."""


class GivenDevice(NamedTuple):
    """Device allocated to a pod, and the consumed capacities if it is shared."""

    resource: str
    index: int  # type: ignore[override]
    draws: ConsumedCounters = ()


class RequestOption(NamedTuple):
    """Result of serving one alternative of a request.

    ``why``: reason why it cannot be served; "" otherwise.
    ``most``: maximum number of devices that it can take of one node.
    ``milli``: size of the largest of them, in thousandths of a device.
    ``parts``: for shared devices, by UUID, the capacities that each would have to give.
    """

    need: DeviceNeed | None
    why: str = ""
    matched: MatchedDevices = MatchedDevices()
    every: bool = False
    most: int = 0
    milli: int = WHOLE
    parts: tuple[tuple[str, ConsumedCounters], ...] = ()

    @property
    def independent(self) -> bool:
        """True if its devices are independent: not listed by name, and without shared counters."""
        return not any(device.selected_only or device.draws for device in self.matched.listed)


class AllocationResult(NamedTuple):
    """Device for a request, as an allocation names it."""

    claim: int
    option: views.DeviceRequest
    card: Slot


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """Needs of a pod's claims.

    ``options``: by claim and request, the alternatives that some node could serve.
    ``problems``: claim, request and the reason why it cannot be served. The request is
        "" if the reason concerns the whole claim.
    """

    needs: tuple[DeviceNeed, ...] = ()
    charges: tuple[tuple[str, int], ...] = ()
    problems: tuple[tuple[int, str, str], ...] = ()
    options: tuple[tuple[tuple[views.DeviceRequest, ...], ...], ...] = ()
    joint: JointDeviceNeed | None = None


@dataclass(slots=True)
class _Draft:
    """Alternatives that some node could serve, by claim and request, each with its result."""

    options: list[list[list[tuple[views.DeviceRequest, RequestOption]]]] = field(default_factory=list)
    problems: list[tuple[int, str, str]] = field(default_factory=list)

    def every(self) -> Iterator[list[tuple[views.DeviceRequest, RequestOption]]]:
        for requests in self.options:
            yield from requests


class ClaimNeeds:
    """Cached needs of claims. The cache is valid until classes or devices change."""

    def __init__(self, inventory: DeviceInventory, classes: Mapping[str, views.DeviceClass]) -> None:
        self._inventory = inventory
        self._classes = classes
        self._served: dict[views.DeviceRequest, RequestOption] = {}
        self._plans: dict[tuple[Source, ...], ClaimPlan] = {}

    def forget(self) -> None:
        self._served.clear()
        self._plans.clear()

    def plan(self, sources: tuple[Source, ...]) -> ClaimPlan:
        """Return the plan for the claims of one pod that it carries itself."""
        plan = self._plans.get(sources)
        if plan is None:
            plan = self._plans[sources] = self._plan(sources)
        return plan

    def results(
        self, plan: ClaimPlan, allocated: Sequence[GivenDevice], devices: Sequence[Device]
    ) -> list[AllocationResult] | None:
        """Return the request that each allocated device serves; ``None`` if they no longer fit.

        ``allocated``: devices of the pod.
        ``devices``: all devices of the node.
        """
        if plan.joint is None:
            slots = iter(allocated)
            counts = iter(need.count for need in plan.needs)
            return [
                AllocationResult(claim, option, (slot.resource, slot.index))
                for claim, requests in enumerate(plan.options)
                for (option,) in requests
                for slot in islice(slots, next(counts))
            ]
        devices = sorted(devices, key=lambda device: (device.late, device.resource, device.index))
        places = {(device.resource, device.index): at for at, device in enumerate(devices)}
        if any(slot[:2] not in places for slot in allocated):
            return None
        offers = [OfferedDevice(device, device.uuid, free=True) for device in devices]
        held = [HeldDevice(places[slot[:2]], slot.draws) for slot in allocated]
        picks = allocate(plan.joint, offers, {}, held)
        if picks is None:
            return None
        return [
            AllocationResult(
                pick.claim,
                plan.options[pick.claim][pick.request][pick.option],
                (devices[pick.position].resource, devices[pick.position].index),
            )
            for pick in picks
        ]

    # ------------------------------------------------------------------ one alternative of a request

    def serve(self, option: views.DeviceRequest) -> RequestOption:
        key = msgspec.structs.replace(option, name="")
        served = self._served.get(key)
        if served is None:
            served = self._served[key] = self._serve(option)
        return served

    def _serve(self, option: views.DeviceRequest) -> RequestOption:
        known = self._classes.get(option.device_class)
        if known is None and option.device_class != DRIVER:
            return RequestOption(
                None, f"DeviceClass {option.device_class} does not exist: create it, or name another"
            )
        own = known.selectors if known is not None else (f"device.driver == '{DRIVER}'",)
        matched, taints, why = self._inventory.matching((*own, *option.selectors), option)
        if why:
            return RequestOption(None, why)
        if not matched:
            return RequestOption(None, _nothing(option, taints))
        numbers = self._inventory.per_node(matched)
        every = option.mode == ALL
        if every:
            count = next(iter(numbers)) if len(numbers) == 1 else 1
        elif option.count > max(numbers):
            return RequestOption(None, f"no node has {option.count} such devices")
        else:
            count = option.count
        if count > MAX_RESULTS:
            return RequestOption(None, f"a claim holds at most {MAX_RESULTS} devices, not {count}")
        need, why = self._inventory.need(matched, count)
        if need is None:
            return RequestOption(None, why)
        parts = {
            device.uuid: device.draws_of(consumable_capacity.consumed(option.capacity, device.capacity) or ())
            for device in matched.listed
            if device.shared
        }
        milli = max(
            (device.milli_with(parts.get(device.uuid, ())) for device in matched.listed), default=WHOLE
        )
        most = max(numbers) if every else count
        shared = tuple(sorted(parts.items()))
        return RequestOption(need, "", matched, every and len(numbers) > 1, most, milli, shared)

    # ------------------------------------------------------------------ all claims of a pod

    def _plan(self, sources: tuple[Source, ...]) -> ClaimPlan:
        draft = _Draft()
        for claim, (requests, _) in enumerate(sources):
            draft.options.append([])
            for request in requests:
                all_of = [(option, self.serve(option)) for option in request.options]
                possible = [(option, served) for option, served in all_of if served.need is not None]
                invalid = [option for option in request.options if option.mode != ALL and option.count < 1]
                if invalid:
                    why = "; ".join(
                        f"{option.name} has count {option.count}, which must be at least 1"
                        for option in invalid
                    )
                    draft.problems.append((claim, request.name, why))
                elif not possible:
                    reasons = dict.fromkeys(served.why for _, served in all_of)
                    draft.problems.append((claim, request.name, "; ".join(reasons)))
                draft.options[-1].append(possible)
        if draft.problems:
            return ClaimPlan(problems=tuple(draft.problems))
        charges: dict[str, int] = {}
        for options in draft.every():
            for name, units in _charges(options).items():
                charges[name] = charges.get(name, 0) + units
        options = tuple(
            tuple(tuple(option for option, _ in request) for request in claim) for claim in draft.options
        )
        charged = tuple(sorted(charges.items()))
        if not any(constraints for _, constraints in sources) and _are_independent(draft):
            needs = tuple(
                need for alternatives in draft.every() if (need := alternatives[0][1].need) is not None
            )
            return ClaimPlan(needs, charged, options=options)
        rules = tuple(
            self._rule(draft, claim, constraint)
            for claim, (_, constraints) in enumerate(sources)
            for constraint in constraints
        )
        if draft.problems:
            return ClaimPlan(problems=tuple(draft.problems))
        joint = JointDeviceNeed(
            tuple(tuple(_options(alternatives) for alternatives in claim) for claim in draft.options), rules
        )
        return ClaimPlan((_joint_need(joint),), charged, options=options, joint=joint)

    def _rule(self, draft: _Draft, claim: int, constraint: DeviceConstraint) -> DeviceRule:
        """Return a constraint as a rule, with the attribute values of all its possible devices."""
        concerned: list[tuple[int, int]] = []
        values: dict[str, str] = {}
        for request, options in enumerate(draft.options[claim]):
            for number, (option, served) in enumerate(options):
                names = (option.name, option.name.partition("/")[0])
                if constraint.requests and not any(name in constraint.requests for name in names):
                    continue
                concerned.append((request, number))
                values |= _values(served.matched, constraint.attribute)
        if concerned and not values:
            field_name = "distinctAttribute" if constraint.distinct else "matchAttribute"
            draft.problems.append(
                (
                    claim,
                    "",
                    f"constraint {field_name}: no device that could serve it has {constraint.attribute}",
                )
            )
        return DeviceRule(
            claim, tuple(concerned), constraint.distinct, constraint.attribute, tuple(sorted(values.items()))
        )


def charged_in(resource: str) -> str:
    """Return the resource that a queue is charged in for devices of ``resource`` ("": several)."""
    return GPU if resource in ("", GPU) or resource.startswith(DRIVER) else resource


def _nothing(option: views.DeviceRequest, taints: Sequence[views.DeviceTaint]) -> str:
    if taints:
        shown = ", ".join(f"{taint.key}={taint.value}:{taint.effect}" for taint in taints[:3])
        which = "on every node some of the" if option.mode == ALL else "all"
        return (
            f"{which} devices of class {option.device_class} that meet the selectors are tainted ({shown}), "
            "which the request does not tolerate"
        )
    return (
        f"no device of the cluster is of class {option.device_class} and meets the selectors (kubelets give "
        "devices that a driver lists in ResourceSlices)"
    )


def _charges(options: Sequence[tuple[views.DeviceRequest, RequestOption]]) -> dict[str, int]:
    """Return the largest charge of the alternatives, as placement selects one of them later."""
    charges: dict[str, int] = {}
    for option, served in options:
        if served.need is None or option.admin:
            continue
        resources = {device.resource for device in served.matched.listed} or {served.need.resource}
        for name in sorted({charged_in(resource) for resource in resources}):
            charges[name] = max(charges.get(name, 0), served.most * served.milli)
    return charges


def _are_independent(draft: _Draft) -> bool:
    """Return whether each request can be served on its own, whatever serves the others."""
    every = list(draft.every())
    if any(len(options) != 1 for options in every):
        return False
    first = [options[0] for options in every]
    if any(option.admin or served.every or not served.independent for option, served in first):
        return False
    if any(served.need is not None and not served.need.resource for _, served in first):
        return False
    return all(
        left.matched == right.matched or not left.matched.meets(right.matched)
        for (_, left), (_, right) in combinations(first, 2)
    )


def _options(options: Sequence[tuple[views.DeviceRequest, RequestOption]]) -> tuple[DeviceOption, ...]:
    return tuple(
        DeviceOption(served.need, every=option.mode == ALL, admin=option.admin, parts=served.parts)
        for option, served in options
        if served.need is not None
    )


def _joint_need(joint: JointDeviceNeed) -> DeviceNeed:
    """Return the joint need, with the minimum number of devices.

    Requests that are not shared use different devices. All shared requests may use the
    same one.
    """
    requests = [options for claim in joint.claims for options in claim]
    least = sum(
        min(
            0 if option.admin or option.parts else 1 if option.every else option.need.count
            for option in options
        )
        for options in requests
    )
    shared = any(not option.admin and option.parts for options in requests for option in options)
    return DeviceNeed("", max(least, int(shared)), milli=WHOLE, joint=joint)


def _values(matched: MatchedDevices, attribute: str) -> dict[str, str]:
    values = {_kind_key(kind): value_of(subject_of(kind), attribute) for kind in matched.kinds}
    values |= {device.uuid: value_of(device.subject, attribute) for device in matched.listed}
    return {name: value for name, value in values.items() if value is not None}


def _kind_key(kind: DeviceKind) -> str:
    return kind_key(kind.resource, kind.model, kind.memory_mib, kind.compute)
