"""What pods hold on each node by what the API server shows, in the order it shows it.

The engine never over-commits by its own decisions. But the API server takes any binding, so two
schedulers that decide at the same time can fill one node twice. The order of the watch is the same for
everybody: the pod whose binding is seen when its node is already full is the one too many, and all
schedulers agree on that.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.quantities import from_units, is_device
from windlass.model.tasks import devices_of

PODS = "pods"


class Ledger:
    """Sums of requests and holders of device indices per node. Terminating pods still hold, finished do not."""

    def __init__(self) -> None:
        self._used: dict[str, dict[str, int]] = {}
        self._devices: dict[str, dict[tuple[str, int], int]] = {}

    def change(self, old: views.Pod | None, new: views.Pod | None) -> None:
        """Book the change of one pod from ``old`` to ``new`` (None: absent)."""
        before, after = _holds(old), _holds(new)
        if before is not None and after is not None and _same(before, after):
            return
        if before is not None:
            self._book(before, -1)
        if after is not None:
            self._book(after, 1)

    def overflow(self, pod: views.Pod, node: views.Node | None) -> str | None:
        """Why the booked ``pod`` is one too many on its node, or None. An unknown node overflows nothing."""
        if node is None:
            return None
        used = self._used.get(node.name, {})
        for name in (*pod.shape.request, PODS):
            if name == PODS and PODS not in node.allocatable:
                continue
            has, needs = node.allocatable.get(name, 0), used.get(name, 0)
            if needs > has:
                return f"node {node.name} holds {from_units(name, needs)} of {from_units(name, has)} {name}"
        held = self._devices.get(node.name, {})
        for slot in _slots(pod):
            if held.get(slot, 0) > 1:
                return f"device {slot[1]} ({slot[0]}) of node {node.name} is given twice"
        return None

    def _book(self, pod: views.Pod, sign: int) -> None:
        used = self._used.setdefault(pod.node_name, {})
        _add(used, pod.shape.request, sign)
        _add(used, {PODS: 1}, sign)
        slots = _slots(pod)
        if slots:
            held = self._devices.setdefault(pod.node_name, {})
            for slot in slots:
                held[slot] = held.get(slot, 0) + sign
                if not held[slot]:
                    del held[slot]
        if not used.get(PODS):
            self._used.pop(pod.node_name, None)


def _holds(pod: views.Pod | None) -> views.Pod | None:
    return pod if pod is not None and pod.node_name and not pod.finished else None


def _same(before: views.Pod, after: views.Pod) -> bool:
    return (
        before.node_name == after.node_name
        and before.shape is after.shape
        and before.annotations.get(names.DEVICES) == after.annotations.get(names.DEVICES)
    )


def _slots(pod: views.Pod) -> list[tuple[str, int]]:
    """Which devices it was given. With devices of several kinds, an index stands for the first of them."""
    text = pod.annotations.get(names.DEVICES, "")
    if not text:
        return []
    resource = next((name for name in sorted(pod.shape.request) if is_device(name)), "")
    return [(resource, index) for index in devices_of(text)] if resource else []


def _add(sums: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    for name, units in amounts.items():
        sums[name] = sums.get(name, 0) + sign * units
