"""Resources that pods hold on each node, as the API server shows them.

The engine never over-commits by its own decisions. But the API server accepts any
binding, so two schedulers that decide at the same time can overfill a node. The order
of the watch is the same for all schedulers: the pod with a binding that arrives when
its node is already full is the excess one. So all schedulers agree on it.

:mod:`windlass.model.devices.usage` computes the resources of a pod. Devices are
evaluated on request: annotations of other schedulers refer to the node's registered
devices, which may arrive after the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windlass.api import views
from windlass.api.quantities import from_units
from windlass.model.devices import node_devices
from windlass.model.devices.dra_claims import DraClaims
from windlass.model.devices.usage import PODS, FreeOnNode, names_devices, resources_held


class NodeUsage:
    """Sums of requests per node, and the pods that have devices.

    Terminating pods still count, finished ones do not. ``claims``: known device claims.
    """

    def __init__(self, claims: DraClaims | None = None) -> None:
        self._claims = claims
        self._used: dict[str, dict[str, int]] = {}
        self._with_devices: dict[str, dict[str, views.Pod]] = {}
        """Node → uid → pod."""

    def change(self, old: views.Pod | None, new: views.Pod | None) -> None:
        """Record the change of one pod from ``old`` to ``new`` (``None``: absent)."""
        before, after = _holds(old), _holds(new)
        if before is not None and after is not None and _same(before, after):
            held = self._with_devices.get(after.node_name)
            if held is not None and after.uid in held:
                held[after.uid] = after  # replace the older view
            return
        if before is not None:
            self._book(before, -1)
        if after is not None:
            self._book(after, 1)

    def held(self) -> Mapping[str, Mapping[str, int]]:
        """Return the used resources of each node in engine units, without device shares."""
        return self._used

    def with_devices(self, node: str) -> Iterable[views.Pod]:
        """Return the pods on a node with devices that an annotation or a claim may name."""
        return self._with_devices.get(node, {}).values()

    def free(self, node: views.NodeObject, extra: Iterable[views.Pod] = ()) -> FreeOnNode:
        """Return the free resources of a node, as a copy.

        ``extra``: pods that are counted in addition.
        """
        held = self._with_devices.get(node.name, {})
        free = FreeOnNode(node, self._used.get(node.name, {}), held.values(), self._claims)
        for pod in extra:
            free.take(pod)
        return free

    def overflow(self, pod: views.Pod, node: views.NodeObject | None) -> str | None:
        """Return why the recorded ``pod`` exceeds its node's capacity; ``None`` if it does not.

        An unknown node has no limits.
        """
        if node is None:
            return None
        free = self.free(node)
        allocatable, used = node_devices.amounts_of(node), self._used.get(node.name, {})
        amounts = [name for name in (*resources_held(pod), PODS) if name != PODS or PODS in allocatable]
        problem = _excess(node.name, amounts, allocatable, used)
        for crowded in free.crowded(pod, taken=True) if not problem else ():
            device, _, why = crowded.partition(") ")
            return f"{device}) of node {node.name} {why}" if why else f"node {node.name}: {crowded}"
        if not problem:  # shared devices count as used
            held = {name: units - free.left[name] for name, units in allocatable.items()}
            problem = _excess(node.name, amounts, allocatable, held)
        return problem or None

    def _book(self, pod: views.Pod, sign: int) -> None:
        used = self._used.setdefault(pod.node_name, {})
        for name, units in resources_held(pod).items():
            used[name] = used.get(name, 0) + sign * units
        used[PODS] = used.get(PODS, 0) + sign
        if names_devices(pod):
            held = self._with_devices.setdefault(pod.node_name, {})
            if sign > 0:
                held[pod.uid] = pod
            else:
                del held[pod.uid]
                if not held:
                    del self._with_devices[pod.node_name]
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
