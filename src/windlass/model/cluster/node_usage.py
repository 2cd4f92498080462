"""What pods hold on each node by what the API server shows, in the order it shows it.

The engine never over-commits by its own decisions. But the API server takes any binding, so two
schedulers that decide at the same time can fill one node twice. The order of the watch is the same for
everybody: the pod whose binding is seen when its node is already full is the one too many, and all
schedulers agree on that.

What a pod holds is said by :mod:`windlass.model.devices.usage`. Devices are looked at when somebody asks: the words of
other schedulers for them are about the node as it registered them, which may be seen after the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windlass.api import views
from windlass.api.quantities import from_units
from windlass.model.devices import node_devices
from windlass.model.devices.dra_claims import DraClaims
from windlass.model.devices.usage import PODS, FreeOnNode, names_devices, resources_held


class NodeUsage:
    """Sums of requests per node, and the pods that have devices. Terminating pods still hold, finished do not.
    ``claims``: what is known of claims for devices."""

    def __init__(self, claims: DraClaims | None = None) -> None:
        self._claims = claims
        self._used: dict[str, dict[str, int]] = {}
        self._with_cards: dict[str, dict[str, views.Pod]] = {}
        """Node → uid → pod."""

    def change(self, old: views.Pod | None, new: views.Pod | None) -> None:
        """Book the change of one pod from ``old`` to ``new`` (None: absent)."""
        before, after = _holds(old), _holds(new)
        if before is not None and after is not None and _same(before, after):
            held = self._with_cards.get(after.node_name)
            if held is not None and after.uid in held:
                held[after.uid] = after  # the older view is not to be kept
            return
        if before is not None:
            self._book(before, -1)
        if after is not None:
            self._book(after, 1)

    def held(self) -> Mapping[str, Mapping[str, int]]:
        """What is held of each node's amounts, in engine units; parts of devices are not among them."""
        return self._used

    def with_cards(self, node: str) -> Iterable[views.Pod]:
        """Pods there of which somebody may have said which devices they have."""
        return self._with_cards.get(node, {}).values()

    def free(self, node: views.NodeObject, beside: Iterable[views.Pod] = ()) -> FreeOnNode:
        """What is left of a node; a copy. ``beside``: who is counted there, too."""
        held = self._with_cards.get(node.name, {})
        found = FreeOnNode(node, self._used.get(node.name, {}), held.values(), self._claims)
        for pod in beside:
            found.take(pod)
        return found

    def overflow(self, pod: views.Pod, node: views.NodeObject | None) -> str | None:
        """Why the booked ``pod`` is one too many on its node, or None. An unknown node overflows nothing."""
        if node is None:
            return None
        free = self.free(node)
        allocatable, used = node_devices.amounts_of(node), self._used.get(node.name, {})
        amounts = [name for name in (*resources_held(pod), PODS) if name != PODS or PODS in allocatable]
        problem = _excess(node.name, amounts, allocatable, used)
        for crowded in free.crowded(pod, taken=True) if not problem else ():
            device, _, why = crowded.partition(") ")
            return f"{device}) of node {node.name} {why}" if why else f"node {node.name}: {crowded}"
        if not problem:  # devices in parts count as taken
            held = {name: units - free.left[name] for name, units in allocatable.items()}
            problem = _excess(node.name, amounts, allocatable, held)
        return problem or None

    def _book(self, pod: views.Pod, sign: int) -> None:
        used = self._used.setdefault(pod.node_name, {})
        for name, units in resources_held(pod).items():
            used[name] = used.get(name, 0) + sign * units
        used[PODS] = used.get(PODS, 0) + sign
        if names_devices(pod):
            held = self._with_cards.setdefault(pod.node_name, {})
            if sign > 0:
                held[pod.uid] = pod
            else:
                del held[pod.uid]
                if not held:
                    del self._with_cards[pod.node_name]
        if not used.get(PODS):
            self._used.pop(pod.node_name, None)


def _excess(node: str, names: Iterable[str], allocatable: Mapping[str, int], held: Mapping[str, int]) -> str:
    for name in names:
        has, holds = allocatable.get(name, 0), held.get(name, 0)
        if holds > has:
            return f"node {node} holds {from_units(name, holds)} of {from_units(name, has)} {name}"
    return ""


def _holds(pod: views.Pod | None) -> views.Pod | None:
    return pod if pod is not None and pod.node_name and not pod.finished else None


def _same(before: views.Pod, after: views.Pod) -> bool:
    return (
        before.node_name == after.node_name
        and before.shape is after.shape
        and before.annotations == after.annotations
        and before.claim_names == after.claim_names
    )
