"""What HAMi's device plug-in and scheduler read on a pod: its devices by UUID, per container, and that it gets them.

The plug-in hands a container the devices that ``hami.io/vgpu-devices-to-allocate`` names for it, init containers first,
and takes each off the list; it finds the pod by the lock on its node (:mod:`windlass.scheduler.commit.hami_node_lock`).
HAMi's scheduler counts ``hami.io/vgpu-devices-allocated``. A whole device has all memory and 100 percent of the
compute, which to HAMi means that nobody else gets in.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.devices import request_parser
from windlass.api.devices.request import GPU, WHOLE
from windlass.api.quantities import QuantityError, parse
from windlass.engine.decision import Bind, DeviceShare
from windlass.model.devices import hami_registration
from windlass.spi.objects import Device

TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
_VENDOR = "NVIDIA"
_PLACE = re.compile(r"spec\.(initContainers|containers)\[(\d+)\]")


def annotations_of(bind: Bind, pod: views.Pod, node: views.NodeObject, now: float) -> dict[str, str]:
    """Annotations of the Binding; none on nodes that are not HAMi's, or for a pod without devices. ``now``: Unix
    seconds. Without :data:`TO_ALLOCATE` where no container asks for devices by the name that the plug-in serves."""
    shares = [share for share in bind.devices if share.resource == GPU]
    cards = {
        card.index: card for card in hami_registration.read(node.annotations.get(names.REGISTER_HAMI, ""))
    }
    if not shares or not all(share.index in cards for share in shares):
        return {}
    asking = _asking(pod)
    moment = str(int(now))
    found = {"hami.io/vgpu-node": node.name, "hami.io/vgpu-time": moment}
    if not any(one.cards for one in asking):
        return found | {names.ALLOCATED_HAMI: _text([shares], cards)}
    text = _text(_shared_out(pod, shares, asking), cards)
    found |= {names.ALLOCATED_HAMI: text, TO_ALLOCATE: text}
    return found | {"hami.io/bind-time": moment, "hami.io/bind-phase": "allocating"}


def _text(containers: Iterable[Sequence[DeviceShare]], cards: Mapping[int, Device]) -> str:
    return "".join(
        "".join(_entry(share, cards[share.index]) for share in shares) + ";" for shares in containers
    )


def _entry(share: DeviceShare, card: Device) -> str:
    whole = share.milli >= WHOLE
    mib = share.memory_mib or (card.memory_mib if whole else 0)
    return f"{card.uuid},{_VENDOR},{mib},{100 if whole else share.milli // 10}:"


class _Asking(NamedTuple):
    """A container that asks the plug-in for so many ``cards``. ``init``: it ends before the others start."""

    name: str
    cards: int
    init: bool


def _asking(pod: views.Pod) -> list[_Asking]:
    """Every container of the pod, init containers first."""
    first = sum(1 for one in pod.shape.containers if one.kind)
    found = [_Asking("", 0, False)] * len(pod.shape.containers)
    for one in pod.shape.devices:
        place = _PLACE.match(one.place)
        amount = dict(one.amounts).get(GPU)
        if place is None or amount is None:
            continue
        at = int(place[2]) + (first if place[1] == "containers" else 0)
        with contextlib.suppress(QuantityError):
            found[at] = _Asking(one.name, int(parse(amount)), one.init)
    return found


def _shared_out(
    pod: views.Pod, shares: Sequence[DeviceShare], asking: Sequence[_Asking]
) -> Iterator[Sequence[DeviceShare]]:
    """The devices of each container. Those that run together have their own; an init container, which ends before,
    uses the first of the others'."""
    asked = request_parser.read(pod.shape.devices, request_parser.annotation_words(pod.annotations))
    left = list(shares)
    own: dict[str, list[DeviceShare]] = {}
    for ask in asked.asks:
        own[ask.container], left = left[: ask.count], left[ask.count :]
    for one in asking:
        if one.init:
            yield shares[: one.cards]
        elif one.name in own:
            yield own[one.name]
        else:
            yield left[: one.cards]
            left = left[one.cards :]
