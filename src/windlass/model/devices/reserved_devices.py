"""Whole devices of a device plugin that pods share: reservations and their users.

A kubelet does not know device shares. So a device is shared only while a *reservation*
holds it: a pod in :data:`NAMESPACE` that requests one whole device and reports which
one it got (:mod:`windlass.scheduler.commit.device_reservations` creates and deletes
them). Device ``i`` of a node, as Windlass counts, *is* the device of the reservation
for ``i``. Pods that share it learn its name at binding
(``windlass.dev/visible-devices``). Other schedulers see a pod with a whole device.

A reservation holds the device but no share of it, so the device can be shared and
cannot be allocated whole. KAI's reservation pods are counted too: their device belongs
to KAI. The pods that share it carry its group as a label and hold nothing in addition.

All of this is derived from the objects. The module is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.devices import assignment_annotations, request_parser
from windlass.api.devices.assignment_annotations import DeviceAssignment
from windlass.api.devices.request import GPU, WHOLE
from windlass.api.errors import FieldError
from windlass.engine.decision import Bind, DeviceShare
from windlass.spi.devices import DeviceMode, DeviceNeed
from windlass.spi.objects import Device, Expression, Needs, NodeTerm

NAMESPACE = assignment_annotations.RESERVATIONS
"""Namespace of reservations. Only the scheduler should be allowed to create pods here."""
NAMESPACE_KAI = assignment_annotations.RESERVATIONS_KAI
BY_PLUGIN = "engine.windlass.dev/node-devices-by-plugin"
"""Engine label of nodes on which a device plugin allocates whole devices only."""
CDI_PREFIX = "k8s.device-plugin.nvidia.com/gpu="
"""Prefix of a device name if the device plugin uses CDI names."""
_MULTI_KAI = f"{names.GPU_GROUP_KAI}/"
_FIELD = f"metadata.annotations['{names.VISIBLE_DEVICES}']"
Slot = tuple[str, int]
"""Node and index of a device on it."""


def reserved_index(pod: views.Pod) -> int | None:
    """Return the device index that a reservation holds; ``None`` for every other pod."""
    if pod.namespace != NAMESPACE:
        return None
    text = pod.annotations.get(names.RESERVES, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 5 else None


def reservation_annotations(index: int) -> dict[str, str]:
    """Return the annotations of a reservation: a share of 0, as the device is open for sharing."""
    return {names.RESERVES: str(index)} | assignment_annotations.to_annotations([DeviceAssignment(index, 0)])


def reservation_needs(needs: Needs) -> Needs:
    """Return the needs of a reservation: its request without the device."""
    request = tuple((name, units) for name, units in needs.request if name != GPU)
    return replace(needs, request=request, devices=(DeviceNeed(GPU),))


def without_devices(needs: Needs) -> Needs:
    """Return the needs of a pod on devices that KAI's reservations hold: no devices of its own."""
    return replace(needs, devices=(), by_card=tuple(sorted({*needs.by_card, GPU})))


def on_share_nodes(needs: Needs) -> Needs:
    """Return the needs, restricted to nodes that allocate device shares."""
    absent = Expression(BY_PLUGIN, "DoesNotExist")
    terms = (NodeTerm(),) if needs.node_terms is None else needs.node_terms
    return replace(needs, node_terms=tuple(NodeTerm((*t.labels, absent), t.fields) for t in terms))


def indices(parts: Iterable[DeviceShare | DeviceAssignment], pod: views.Pod) -> tuple[int, ...]:
    """Return the plain devices of a pod that the kubelet does not allocate to it by itself."""
    requested = GPU in pod.shape.request
    shared = (
        part.index
        for part in parts
        if not part.profile
        and (part.milli < WHOLE or not requested)
        and (isinstance(part, DeviceAssignment) or part.resource == GPU)
    )
    return tuple(sorted(set(shared)))


def fault(pod: views.Pod) -> FieldError | None:
    """Return why a pod that requests a device share cannot share a device of a device plugin."""
    parsed = request_parser.read(pod.shape.devices, request_parser.annotation_words(pod.annotations))
    for request in parsed.asks:
        if request.resource != GPU or request.profile:
            continue
        container = request.container or next(iter(pod.containers), "")
        where = f"spec.containers[{container}]"
        if any(name == GPU for name, _ in request.taken):
            return FieldError.forbidden(
                f"{where}.resources.limits[{GPU}]",
                "the nodes' device plugin would allocate a whole GPU to it: request the share by annotation "
                f"({names.DEVICE_MEMORY} or {names.FRACTION_KAI}) and remove this limit",
            )
        if container not in pod.told_cards:
            return FieldError.required(
                f"{where}.env[NVIDIA_VISIBLE_DEVICES]",
                f"the nodes' device plugin allocates whole GPUs; take it from valueFrom.fieldRef.fieldPath {_FIELD}",
            )
    return None


class DeviceReservationIndex:
    """Reservations and their users, by device.

    ``pods``: the reservation of each device.
    ``users``: keys of the pods that may use each device.
    ``stale``: true if something changed.
    ``enabled``: true if devices of plugins are shared only while they are reserved.
    """

    def __init__(self) -> None:
        self.enabled = False
        self.cdi = False
        self.stale = False
        self.pods: dict[Slot, views.Pod] = {}
        self.users: dict[Slot, dict[str, None]] = {}
        self.refusing: dict[str, str] = {}
        """Nodes on which no further device can be reserved at present → the reason."""
        self._uses: dict[str, tuple[Slot, ...]] = {}
        self._groups: dict[str, str] = {}
        """KAI's GPU group → the node of the pod that holds its device."""
        self._in_groups: dict[str, dict[str, None]] = {}
        self._by_plugin: dict[str, None] = {}
        self._elsewhere: dict[str, None] = {}

    # ------------------------------------------------------------------ objects

    def note(self, old: views.Pod | None, new: views.Pod | None) -> Iterable[str]:
        """Record a change of a pod. Return the keys of other pods that have to be translated again."""
        pod = new or old
        assert pod is not None
        if pod.namespace == NAMESPACE:
            self._note_reservation(old, new)
        elif pod.namespace == NAMESPACE_KAI:
            return self._note_kai(old, new)
        elif names.VISIBLE_DEVICES in pod.annotations:
            self._note_user(pod.key, new)
        for group in _groups_of(pod):
            if new is not None and new.node_name:
                self._in_groups.setdefault(group, {})[pod.key] = None
            elif (members := self._in_groups.get(group)) is not None:
                members.pop(pod.key, None)
                if not members:
                    del self._in_groups[group]
        return ()

    def _note_reservation(self, old: views.Pod | None, new: views.Pod | None) -> None:
        for pod in (old, new):
            index = reserved_index(pod) if pod is not None else None
            if pod is None or index is None:
                continue
            slot = (pod.node_name, index)
            if pod is new:
                self.pods[slot] = pod
            elif slot in self.pods and self.pods[slot].uid == pod.uid:
                del self.pods[slot]
            self.stale = True

    def _note_user(self, key: str, pod: views.Pod | None) -> None:
        slots: tuple[Slot, ...] = ()
        if pod is not None and pod.node_name and not pod.finished:
            slots = tuple((pod.node_name, index) for index in indices(_parts(pod), pod))
        before = self._uses.get(key, ())
        if slots == before:
            return
        for slot in before:
            del self.users[slot][key]
            if not self.users[slot]:
                del self.users[slot]
        for slot in slots:
            self.users.setdefault(slot, {})[key] = None
        self._uses.pop(key, None)
        if slots:
            self._uses[key] = slots
        self.stale = True

    def _note_kai(self, old: views.Pod | None, new: views.Pod | None) -> Iterable[str]:
        touched: dict[str, None] = {}
        for pod in (old, new):
            group = pod.labels.get(names.GPU_GROUP_KAI, "") if pod is not None else ""
            if pod is None or not group:
                continue
            if pod is new and pod.node_name and not pod.finished:
                self._groups[group] = pod.node_name
            else:
                self._groups.pop(group, None)
            touched |= self._in_groups.get(group, {})
        return touched

    def note_node(self, name: str, *, plugin: bool, devices: Sequence[Device]) -> bool:
        """Record how a node's devices are allocated.

        Return whether pods that request device shares have to be translated again.
        """
        before = self.strict
        elsewhere = not plugin and any(d.resource == GPU and d.mode is not DeviceMode.WHOLE for d in devices)
        for known, present in ((self._by_plugin, plugin), (self._elsewhere, elsewhere)):
            if present:
                known[name] = None
            else:
                known.pop(name, None)
        return self.enabled and self.strict != before

    # ------------------------------------------------------------------ queries

    @property
    def strict(self) -> bool:
        """True if only devices of device plugins can serve a request for a share."""
        return bool(self._by_plugin) and not self._elsewhere

    def by_plugin(self, node: str) -> bool:
        """Return whether devices of this node are shared only while they are reserved."""
        return self.enabled and node in self._by_plugin

    def on_kai_reservation(self, pod: views.Pod) -> bool:
        """Return whether the pod's devices are those that KAI's reservation pods hold on its node."""
        if not self._groups or not pod.node_name or pod.namespace == NAMESPACE_KAI:
            return False
        groups = _groups_of(pod)
        return bool(groups) and all(self._groups.get(group) == pod.node_name for group in groups)

    def uses(self, key: str) -> bool:
        """Return whether a pod uses a reserved device."""
        return key in self._uses

    def names_reserved_device(self, pod: views.Pod, slot: Slot) -> bool:
        """Return whether a pod's annotation names the device that is reserved now."""
        device_names = pod.annotations.get(names.VISIBLE_DEVICES, "").split(",")
        return self.device_name(slot) in [
            device_name.removeprefix(CDI_PREFIX) for device_name in device_names
        ]

    def slots(self, bind: Bind, pod: views.Pod | None) -> tuple[Slot, ...]:
        """Return the devices that have to be reserved before a bind."""
        if pod is None or not bind.devices or not self.by_plugin(bind.node):
            return ()
        return tuple((bind.node, index) for index in indices(bind.devices, pod))

    def device_name(self, slot: Slot) -> str:
        """Return the name of the reserved device, as its reservation reports it.

        "" if it has not reported yet, or is terminating.
        """
        pod = self.pods.get(slot)
        if pod is None or pod.finished or pod.deleted or pod.report is None:
            return ""
        return pod.report.card

    def annotations_of(self, bind: Bind, pod: views.Pod | None) -> dict[str, str]:
        """Return the annotation that names a pod's devices; none if no device has to be reserved."""
        device_names = [self.device_name(slot) for slot in self.slots(bind, pod)]
        if not device_names or not all(device_names):
            return {}
        prefix = CDI_PREFIX if self.cdi else ""
        return {names.VISIBLE_DEVICES: ",".join(f"{prefix}{device_name}" for device_name in device_names)}

    def allocatable_devices(self, node: str, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        """Return the devices of a node as they can be allocated now.

        If no further device can be reserved, those that are not reserved yet are
        allocated whole only.
        """
        if node not in self.refusing:
            return devices
        return tuple(
            replace(d, mode=DeviceMode.WHOLE)
            if d.resource == GPU and d.mode is DeviceMode.PLAIN and not self.device_name((node, d.index))
            else d
            for d in devices
        )


def _groups_of(pod: views.Pod) -> tuple[str, ...]:
    """Return KAI's GPU groups of the devices that a pod shares; none for most pods."""
    labels = pod.labels
    if not labels or not any(name.startswith(names.GPU_GROUP_KAI) for name in labels):
        return ()
    groups = (v for n, v in labels.items() if n == names.GPU_GROUP_KAI or n.startswith(_MULTI_KAI))
    return tuple(sorted(set(groups)))


def _parts(pod: views.Pod) -> Iterator[DeviceAssignment]:
    try:
        yield from assignment_annotations.from_annotations(pod.annotations)
    except assignment_annotations.AssignmentError:
        return
