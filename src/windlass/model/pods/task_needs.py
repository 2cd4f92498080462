"""Translation of a pod shape to :class:`~windlass.spi.objects.Needs`.

Pods with equal needs share one object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import msgspec

from windlass.api import annotations as names
from windlass.api.errors import FieldError
from windlass.api.views import Pod, PodShape
from windlass.api.views.podshape import NodeSelectorTerm
from windlass.api.views.podshape import TolerationWire as WireToleration
from windlass.model.devices.device_needs import ClusterDeviceFacts, DeviceRequestContext, charges_of
from windlass.model.nodes.numa import need_of
from windlass.model.pods.label_vocabulary import Vocabulary, selects_namespaces
from windlass.model.pods.pod_affinity import LABEL_OPERATORS, PodRelations, expressions
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import (
    Dialect,
    Expression,
    HostPort,
    Needs,
    NodeGroups,
    NodeTerm,
    RolePreferences,
    Scoring,
    Toleration,
    VolumeNeed,
    WeightedNodeTerm,
)

_NODE_OPERATORS = (*LABEL_OPERATORS, "Gt", "Lt")
_EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class TranslatedPod:
    """Needs of a pod. ``problems``: contradictory fields, which ``needs`` lacks."""

    needs: Needs
    problems: tuple[FieldError, ...] = ()


@dataclass(frozen=True, slots=True)
class Extras:
    """Needs of a pod in addition to its spec: by its claims, its queue and its annotations."""

    volumes: tuple[VolumeNeed, ...] = ()
    node_groups: NodeGroups | None = None
    revocable_zone: str = ""
    scoring: Scoring | None = None
    devices: DeviceRequestContext | None = None
    zone_policy: str = ""
    roles: RolePreferences | None = None


def scoring_of(annotations: Mapping[str, str]) -> Scoring | None:
    """Return the resource scoring that a pod requests; unreadable weights count as none."""
    strategy = annotations.get(names.SCORING_STRATEGY, "")
    if not strategy:
        return None
    try:
        weights = msgspec.json.decode(annotations.get(names.SCORING_WEIGHTS, ""), type=dict[str, int])
    except msgspec.MsgspecError:
        weights = {}
    return Scoring(strategy, tuple(sorted(weights.items())))


_Key = tuple[PodShape, str, tuple[tuple[str, str], ...], Dialect, Extras | None, tuple[str, ...]]


_NO_EXTRAS = Extras()
_NO_CONTEXT = DeviceRequestContext()


class NeedsTable:
    """Cache of translated shapes.

    ``namespaces``: labels of each namespace, for namespace selectors.
    """

    def __init__(self, vocabulary: Vocabulary, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self._vocabulary = vocabulary
        self._namespaces = namespaces
        self._version = -1
        self.facts = ClusterDeviceFacts()
        self.zoned = False
        """True if NUMA zones of some node are known. Otherwise NUMA needs are left out."""
        self.images = False
        """True if a policy reads container images. Otherwise images are left out."""
        self.table: dict[_Key, TranslatedPod] = {}

    def learn_devices(self, facts: ClusterDeviceFacts) -> None:
        """Set new facts about the cluster's devices: shares are charged again."""
        self.facts = facts
        self.table.clear()

    def learn_zones(self) -> None:
        """Record that a node has NUMA zones."""
        self.zoned = True
        self.table.clear()

    def namespaces_changed(self) -> None:
        """Forget the entries that depend on labels of namespaces."""
        self.table = {key: entry for key, entry in self.table.items() if not selects_namespaces(key[0])}

    def of(
        self, pod: Pod, dialect: Dialect = Dialect.WINDLASS, extras: Extras | None = None
    ) -> TranslatedPod:
        """Return the needs of a pod, placed by the rules of ``dialect``.

        The vocabulary must have learned its shape.
        """
        vocabulary = self._vocabulary
        if vocabulary.version != self._version:
            self.table.clear()
            self._version = vocabulary.version
        labels: tuple[tuple[str, str], ...] = ()
        if vocabulary.keys:
            own = pod.labels
            labels = tuple((key, own[key]) for key in vocabulary.keys if key in own)
        namespace = pod.namespace if vocabulary.active else ""
        images = _named(pod.images) if self.images else ()
        key = (pod.shape, namespace, labels, dialect, extras, images)
        entry = self.table.get(key)
        if entry is None:
            entry = _translate(pod.shape, namespace, labels, self._namespaces)
            extras = extras or _NO_EXTRAS
            charges = charges_of(pod.shape, extras.devices or _NO_CONTEXT, self.facts)
            needs = replace(
                entry.needs,
                request=tuple(sorted(charges.request.items())),
                devices=charges.devices,
                node_terms=_pinned(entry.needs.node_terms, extras.devices),
                by_card=charges.by_card,
                dialect=dialect,
                volumes=extras.volumes,
                node_groups=extras.node_groups,
                revocable_zone=extras.revocable_zone,
                scoring=extras.scoring,
                roles=extras.roles,
                zones=need_of(pod.shape, extras.zone_policy, _parted(charges.devices))
                if self.zoned or extras.zone_policy
                else None,
                images=images,
            )
            entry = self.table[key] = TranslatedPod(needs, (*entry.problems, *charges.problems))
        return entry

    def retain(self, shapes: set[int]) -> None:
        """Drop entries of shapes (by ``id``) that no pod has any more."""
        self.table = {key: entry for key, entry in self.table.items() if id(key[0]) in shapes}

    def reset(self) -> None:
        """Forget everything except whether images are included, for another engine."""
        self.facts, self.zoned, self._version = ClusterDeviceFacts(), False, -1
        self.table.clear()


@lru_cache(maxsize=4096)
def _named(images: tuple[str, ...]) -> tuple[str, ...]:
    """Return images by the names that nodes list: a missing tag or digest means ``latest``."""
    return tuple(sorted(i if i.rfind(":") > i.rfind("/") else f"{i}:latest" for i in images))


def _parted(devices: tuple[DeviceNeed, ...]) -> frozenset[str]:
    """Return the resources of requested device shares: a kubelet does not align those."""
    return frozenset(need.resource for need in devices if not need.whole)


def _translate(
    shape: PodShape,
    namespace: str,
    labels: tuple[tuple[str, str], ...],
    namespaces: Mapping[str, Mapping[str, str]],
) -> TranslatedPod:
    problems = list(shape.unknown_claims)
    terms, preferred = _node_affinity(shape, problems)
    relations = PodRelations(dict(labels), namespaces, problems)
    affinity = shape.affinity.pod_affinity if shape.affinity is not None else None
    anti_affinity = shape.affinity.pod_anti_affinity if shape.affinity is not None else None
    needs = Needs(
        node_selector=tuple(sorted(shape.node_selector.items())),
        node_terms=terms,
        preferred_nodes=preferred,
        tolerations=_tolerations(shape.tolerations, problems),
        affinity=relations.required(affinity, "podAffinity"),
        anti_affinity=relations.required(anti_affinity, "podAntiAffinity"),
        preferred_affinity=relations.preferred(affinity, "podAffinity"),
        preferred_anti_affinity=relations.preferred(anti_affinity, "podAntiAffinity"),
        spread=relations.spread(shape.spread),
        host_ports=tuple(HostPort(*port) for port in shape.host_ports),
        labels=labels,
        namespace=namespace,
    )
    return TranslatedPod(needs, tuple(problems))


def _pinned(
    terms: tuple[NodeTerm, ...] | None, devices: DeviceRequestContext | None
) -> tuple[NodeTerm, ...] | None:
    """Return the pod's own terms, restricted to the node of a claim that it shares."""
    if devices is None or not devices.pinned:
        return terms
    node = Expression("metadata.name", "In", (devices.pinned,))
    return tuple(NodeTerm(term.labels, (*term.fields, node)) for term in (terms or (NodeTerm(),)))


def _node_affinity(
    shape: PodShape, problems: list[FieldError]
) -> tuple[tuple[NodeTerm, ...] | None, tuple[WeightedNodeTerm, ...]]:
    node = shape.affinity.node_affinity if shape.affinity is not None else None
    if node is None:
        return None, ()
    base = "spec.affinity.nodeAffinity"
    required: tuple[NodeTerm, ...] | None = None
    if node.required is not None:
        field = f"{base}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        required = tuple(
            _node_term(term, f"{field}[{i}]", problems)
            for i, term in enumerate(node.required.node_selector_terms or ())
            if term.match_expressions or term.match_fields  # an empty term matches no node
        )
    field = f"{base}.preferredDuringSchedulingIgnoredDuringExecution"
    preferred = tuple(
        WeightedNodeTerm(choice.weight, _node_term(choice.preference, f"{field}[{i}].preference", problems))
        for i, choice in enumerate(node.preferred or ())
        if choice.preference.match_expressions or choice.preference.match_fields  # an empty one is a no-op
    )
    return required, preferred


def _node_term(term: NodeSelectorTerm, field: str, problems: list[FieldError]) -> NodeTerm:
    fields = expressions(term.match_fields, f"{field}.matchFields", _NODE_OPERATORS[:2], problems)
    for i, expression in enumerate(fields):
        if expression.key != "metadata.name":
            problems.append(
                FieldError.not_supported(f"{field}.matchFields[{i}].key", expression.key, ("metadata.name",))
            )
    return NodeTerm(
        expressions(term.match_expressions, f"{field}.matchExpressions", _NODE_OPERATORS, problems), fields
    )


def _tolerations(tolerations: Sequence[WireToleration], problems: list[FieldError]) -> tuple[Toleration, ...]:
    result = []
    for i, t in enumerate(tolerations):
        operator = t.operator or "Equal"
        if operator not in ("Equal", "Exists"):
            problems.append(
                FieldError.not_supported(f"spec.tolerations[{i}].operator", operator, ("Equal", "Exists"))
            )
        elif t.effect not in _EFFECTS:
            problems.append(FieldError.not_supported(f"spec.tolerations[{i}].effect", t.effect, _EFFECTS[1:]))
        elif not t.key and operator == "Equal":
            problems.append(
                FieldError.invalid(
                    f"spec.tolerations[{i}].operator", operator, "operator must be Exists when key is empty"
                )
            )
        else:
            result.append(Toleration(t.key, operator, t.value, t.effect))
    return tuple(result)
