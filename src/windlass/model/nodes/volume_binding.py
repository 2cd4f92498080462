"""Nodes that a pod's volumes allow, as :class:`VolumeNeed`.

Unbound claims are ignored in two cases:

* No component provides storage: there is no class and no volume with a claim. That is
  so in single-node mode, in which the node agent creates a directory for each claim.
* No claim is known at all, as the cluster does not permit reading them.

Neither applies once the server is known to serve classes and claims
(:attr:`VolumeIndex.served`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api import selectors, views
from windlass.api.quantities import from_units
from windlass.api.views.podshape import LabelSelector, RequirementWire
from windlass.api.views.storage import SELECTED_NODE
from windlass.kits.dicts import put_if_changed
from windlass.spi.label_match import labels_match
from windlass.spi.objects import Expression, Node, NodeTerm, VolumeNeed, VolumeOption

ZONES = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
NO_PROVISIONER = "kubernetes.io/no-provisioner"
EXCLUSIVE = "ReadWriteOncePod"
LIMIT = "attachable-volumes-csi-"


@dataclass(frozen=True, slots=True)
class StorageWrite:
    """Merge patch of a claim, or of a volume (no ``namespace``), that is sent before a binding."""

    namespace: str
    name: str
    body: Mapping[str, Any]


Item = (
    views.PersistentVolumeClaim
    | views.PersistentVolume
    | views.StorageClass
    | views.CsiNode
    | views.CsiDriver
    | views.StorageCapacity
)


class VolumeIndex:
    """Known storage objects."""

    def __init__(self) -> None:
        self.claims: dict[str, views.PersistentVolumeClaim] = {}
        self.volumes: dict[str, views.PersistentVolume] = {}
        self.classes: dict[str, views.StorageClass] = {}
        self.limits: dict[str, Mapping[str, int]] = {}
        """Node → resource that counts attached volumes → maximum number."""
        self.counting: dict[str, bool] = {}
        """CSI driver → whether it creates a volume only where one of its pools suffices."""
        self.pools: dict[str, views.StorageCapacity] = {}
        self.served = False
        """True if the server serves claims and classes. A missing object then does not exist."""
        self._provides: bool | None = None
        self._open: dict[str, None] = {}
        """Claims that have no volume yet."""
        self._holders: dict[str, dict[str, None]] = {}
        """Volume → the claims that name it."""
        self._assigned: dict[str, str] = {}
        """Volume → the claim that it was assigned to.

        An entry is removed when the volume shows it, or when the claim no longer needs
        it.
        """

    def serve(self) -> None:
        """Set :attr:`served`."""
        self.served, self._provides = True, None

    def upsert(self, item: Item) -> bool:
        """Store an object. Return whether a relevant field changed."""
        self._provides = None
        match item:
            case views.PersistentVolumeClaim():
                if item.volume:
                    self._take_back(item.key, item.volume)
                self._file(item.key, item)
                return put_if_changed(self.claims, item.key, item)
            case views.PersistentVolume():
                if item.claim:
                    self._assigned.pop(item.name, None)
                return put_if_changed(self.volumes, item.name, item)
            case views.StorageClass():
                return put_if_changed(self.classes, item.name, item)
            case views.CsiNode():
                limits = {LIMIT + driver: count for driver, count in item.limits.items()}
                return put_if_changed(self.limits, item.name, limits)
            case views.CsiDriver():
                return put_if_changed(self.counting, item.name, item.counts)
            case views.StorageCapacity():
                before = self.pools.get(item.key)
                return put_if_changed(self.pools, item.key, item) and self._pool_matters(before, item)

    def remove(self, item: Item) -> bool:
        """Remove an object. Return whether it was known."""
        self._provides = None
        match item:
            case views.PersistentVolumeClaim():
                self._take_back(item.key)
                self._file(item.key, None)
                return self.claims.pop(item.key, None) is not None
            case views.PersistentVolume():
                self._assigned.pop(item.name, None)
                return self.volumes.pop(item.name, None) is not None
            case views.StorageClass():
                return self.classes.pop(item.name, None) is not None
            case views.CsiNode():
                return self.limits.pop(item.name, None) is not None
            case views.CsiDriver():
                return self.counting.pop(item.name, None) is not None
            case views.StorageCapacity():
                return self.pools.pop(item.key, None) is not None

    def _file(self, key: str, claim: views.PersistentVolumeClaim | None) -> None:
        """Index a claim as it is now; :attr:`claims` still has its previous state."""
        before = self.claims.get(key)
        self._open.pop(key, None)
        if before is not None and before.volume and (holders := self._holders.get(before.volume)) is not None:
            holders.pop(key, None)
            if not holders:
                del self._holders[before.volume]
        if claim is not None and claim.volume:
            self._holders.setdefault(claim.volume, {})[key] = None
        elif claim is not None:
            self._open[key] = None

    def concerned(self, item: Item) -> Iterable[str] | None:
        """Return the claims (keys) that a change of this object may affect; ``None``: all."""
        if isinstance(item, views.PersistentVolumeClaim):
            return None if len(self.claims) <= 1 else (item.key,)  # the first and the last claim affect all
        if not self.served:
            return None
        holders = self._holders.get(item.name, {}) if isinstance(item, views.PersistentVolume) else {}
        return (*holders, *self._open)

    def needs_of(self, namespace: str, claims: Sequence[str]) -> tuple[VolumeNeed, ...]:
        """Return the needs of a pod's claims, by name."""
        if not self.claims and not self.served:
            return ()
        needs = (self._need(f"{namespace}/{name}") for name in dict.fromkeys(claims))
        return tuple(need for need in needs if need is not None)

    def writes_for(self, namespace: str, claims: Sequence[str], node: Node) -> list[StorageWrite]:
        """Return the writes before a pod with these claims is bound to the node.

        Each claim that waits for its first consumer gets the smallest existing volume
        that the node reaches. Without one, an annotation requests a new volume for that
        node. A volume that was assigned is not assigned to another claim.
        """
        writes = []
        for name in dict.fromkeys(claims):
            claim = self.claims.get(f"{namespace}/{name}")
            if claim is None or claim.volume or claim.deleted:
                continue
            storage_class = self._class_of(claim)
            if storage_class is None or not storage_class.waits:
                continue
            chosen = next(
                (o for o in self._options(claim, storage_class.name) if _reaches(o.terms, node)), None
            )
            if chosen is not None:
                self._assigned[chosen.volume] = claim.key
                reference = {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": namespace,
                    "name": name,
                    "uid": claim.uid,
                }
                writes.append(StorageWrite("", chosen.volume, {"spec": {"claimRef": reference}}))
            elif storage_class.provisioner != NO_PROVISIONER:
                annotations = {SELECTED_NODE: node.name}
                writes.append(StorageWrite(namespace, name, {"metadata": {"annotations": annotations}}))
        return writes

    def _take_back(self, claim: str, has: str = "") -> None:
        """Release the assignments of a claim that is bound to the volume ``has``, or deleted.

        Before that, the claim may still become bound to the volume that it was assigned
        first.
        """
        if self._assigned:
            self._assigned = {name: to for name, to in self._assigned.items() if to != claim or name == has}

    def _need(self, key: str) -> VolumeNeed | None:
        claim, name = self.claims.get(key), key.partition("/")[2]
        if not self._provided() and (claim is None or not claim.volume):
            return None
        if claim is None:
            return VolumeNeed(key, fault=f'persistentvolumeclaim "{name}" not found')
        if claim.deleted:
            return VolumeNeed(key, fault=f'persistentvolumeclaim "{name}" is being deleted')
        exclusive = EXCLUSIVE in claim.access_modes
        if claim.volume:
            return self._bound(claim, exclusive)
        storage_class = self._class_of(claim)
        if storage_class is None or not storage_class.waits:
            return VolumeNeed(key, fault=f"pod has unbound immediate PersistentVolumeClaims: {key}")
        options = tuple(self._options(claim, storage_class.name))
        if storage_class.provisioner == NO_PROVISIONER:
            return VolumeNeed(key, options=options, exclusive=exclusive)
        terms = _provisioned(storage_class, options, self._nodes_with_capacity(storage_class, claim.request))
        size = from_units("storage", claim.request)
        if terms == ():
            return VolumeNeed(
                key, problem=f"no storage pool of class {storage_class.name} has {size} for claim {key}"
            )
        return VolumeNeed(
            key,
            terms=terms,
            exclusive=exclusive,
            limit=LIMIT + storage_class.provisioner,
            identity=key,
            size=size if terms is not None else "",
        )

    def _nodes_with_capacity(
        self, storage_class: views.StorageClass, request: int
    ) -> tuple[NodeTerm, ...] | None:
        """Return the nodes with a storage pool that has capacity for a volume of this size.

        ``None``: all nodes have, or the driver does not publish capacities. As in
            kube-scheduler's volume binder, each claim is checked on its own, and only
            against published capacities.
        """
        if not request or not self.counting.get(storage_class.provisioner):
            return None
        values: dict[str, dict[str, None]] = {}
        terms: list[NodeTerm] = []
        for _, pool in sorted(self.pools.items()):
            if pool.storage_class != storage_class.name or pool.limit < request or pool.nodes is None:
                continue
            labels = _chosen(pool.nodes)
            if not labels:
                return None
            if len(labels) == 1 and labels[0].operator == "In":
                values.setdefault(labels[0].key, {}).update(dict.fromkeys(labels[0].values))
            else:
                terms.append(NodeTerm(labels))
        single = [NodeTerm((Expression(key, "In", tuple(names)),)) for key, names in values.items()]
        return tuple(dict.fromkeys((*single, *terms)))

    def _pool_matters(self, before: views.StorageCapacity | None, pool: views.StorageCapacity) -> bool:
        """Return whether a changed pool can affect a waiting claim. Pools are updated very often."""
        if before is None or (before.nodes, before.storage_class) != (pool.nodes, pool.storage_class):
            return True
        low, high = sorted((before.limit, pool.limit))
        return any(low < claim.request <= high and not claim.volume for claim in self.claims.values())

    def _provided(self) -> bool:
        """Return whether a component creates volumes for claims, or binds them."""
        if self._provides is None:
            self._provides = (
                self.served or bool(self.classes) or any(volume.claim for volume in self.volumes.values())
            )
        return self._provides

    def _bound(self, claim: views.PersistentVolumeClaim, exclusive: bool) -> VolumeNeed | None:
        volume = self.volumes.get(claim.volume)
        if volume is None:
            return VolumeNeed(claim.key, fault=f"volume {claim.volume} of claim {claim.key} does not exist")
        terms = _terms(volume)
        limit = LIMIT + volume.driver if volume.driver else ""
        if terms is None and not exclusive and not limit:
            return None
        identity = f"{volume.driver}^{volume.handle}" if limit else ""
        return VolumeNeed(claim.key, terms=terms, exclusive=exclusive, limit=limit, identity=identity)

    def _class_of(self, claim: views.PersistentVolumeClaim) -> views.StorageClass | None:
        if claim.storage_class is None:
            defaults = sorted(name for name, candidate in self.classes.items() if candidate.default)
            return self.classes[defaults[0]] if defaults else None
        return self.classes.get(claim.storage_class)

    def _options(self, claim: views.PersistentVolumeClaim, storage_class: str) -> Iterator[VolumeOption]:
        """Yield the volumes that could serve the claim, the smallest first."""
        for volume in sorted(self.volumes.values(), key=lambda v: (v.capacity, v.name)):
            if (
                (volume.claim or self._assigned.get(volume.name, "")) in ("", claim.key)
                and not volume.deleted
                and volume.phase in ("", "Available")
                and volume.storage_class == storage_class
                and volume.capacity >= claim.request
                and volume.volume_mode == claim.volume_mode
                and set(claim.access_modes) <= set(volume.access_modes)
                and _selected(claim.selector, volume.labels)
            ):
                yield VolumeOption(volume.name, _terms(volume))


def _provisioned(
    storage_class: views.StorageClass,
    options: Sequence[VolumeOption],
    pool_nodes: tuple[NodeTerm, ...] | None,
) -> tuple[NodeTerm, ...] | None:
    """Return the nodes on which a volume of the class exists or can be created.

    ``pool_nodes``: the nodes with sufficient pool capacity; ``None`` for all.
    """
    if any(option.terms is None for option in options):
        return None
    if pool_nodes is None and not storage_class.topologies:
        return None
    terms = [
        NodeTerm(tuple(Expression(term.key, "In", term.values) for term in topology))
        for topology in storage_class.topologies
    ]
    if pool_nodes is not None:
        terms = (
            [NodeTerm((*a.labels, *b.labels)) for a in terms for b in pool_nodes]
            if terms
            else list(pool_nodes)
        )
    for option in options:
        terms += option.terms or ()
    return tuple(dict.fromkeys(terms))


def _terms(volume: views.PersistentVolume) -> tuple[NodeTerm, ...] | None:
    """Return the nodes that reach a volume, by node affinity and zone labels; ``None`` for all."""
    zones = tuple(
        Expression(key, "In", tuple(sorted(volume.labels[key].split("__"))))
        for key in ZONES
        if key in volume.labels
    )
    if volume.nodes is None:
        return (NodeTerm(zones),) if zones else None
    return tuple(
        NodeTerm((*_expressions(term.match_expressions), *zones), _expressions(term.match_fields))
        for term in volume.nodes.node_selector_terms or ()
    )


def _chosen(selector: LabelSelector) -> tuple[Expression, ...]:
    equal = [Expression(key, "In", (value,)) for key, value in sorted((selector.match_labels or {}).items())]
    return (*equal, *_expressions(selector.match_expressions))


def _expressions(requirements: Sequence[RequirementWire] | None) -> tuple[Expression, ...]:
    return tuple(Expression(r.key, r.operator, r.values or ()) for r in requirements or ())


def _reaches(terms: Sequence[NodeTerm] | None, node: Node) -> bool:
    if terms is None:
        return True
    return any(
        (term.labels or term.fields)
        and labels_match(term.labels, node.labels)
        and labels_match(term.fields, {"metadata.name": node.name})
        for term in terms
    )


def _selected(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return True
    equal = [selectors.Requirement(k, "In", (v,)) for k, v in (selector.match_labels or {}).items()]
    more = [
        selectors.Requirement(e.key, e.operator, e.values or ()) for e in selector.match_expressions or ()
    ]
    return selectors.Selector((*equal, *more)).matches(labels)
