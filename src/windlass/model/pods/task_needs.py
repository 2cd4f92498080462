"""Pod shape → :class:`~windlass.spi.objects.Needs`, one object for all pods that need the same."""

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
    """``problems`` are the fields that contradict themselves; ``needs`` then lacks them."""

    needs: Needs
    problems: tuple[FieldError, ...] = ()


@dataclass(frozen=True, slots=True)
class Extras:
    """What a pod needs beside what its spec says: by its claims, its queue, its annotations."""

    volumes: tuple[VolumeNeed, ...] = ()
    node_groups: NodeGroups | None = None
    revocable_zone: str = ""
    scoring: Scoring | None = None
    cards: DeviceRequestContext | None = None
    zone_policy: str = ""
    roles: RolePreferences | None = None


def scoring_of(annotations: Mapping[str, str]) -> Scoring | None:
    """How a pod wants to be scored by resources; weights that cannot be read are none."""
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
    """Translates shapes once. ``namespaces`` are the labels of each namespace, for namespace selectors."""

    def __init__(self, vocabulary: Vocabulary, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self._vocabulary = vocabulary
        self._namespaces = namespaces
        self._version = -1
        self.facts = ClusterDeviceFacts()
        self.zoned = False
        """True if NUMA zones of any node are known: else nobody's needs of them are told."""
        self.images = False
        """True if a policy looks at container images: else nobody's are told."""
        self.table: dict[_Key, TranslatedPod] = {}

    def learn_devices(self, facts: ClusterDeviceFacts) -> None:
        """What is known of the cluster's devices has changed: parts of them are charged anew."""
        self.facts = facts
        self.table.clear()

    def learn_zones(self) -> None:
        """A node with NUMA zones has come."""
        self.zoned = True
        self.table.clear()

    def namespaces_changed(self) -> None:
        """Forget what depended on the labels of namespaces."""
        self.table = {key: entry for key, entry in self.table.items() if not selects_namespaces(key[0])}

    def of(
        self, pod: Pod, dialect: Dialect = Dialect.WINDLASS, extras: Extras | None = None
    ) -> TranslatedPod:
        """The needs of a pod, placed by the rules of ``dialect``. ``vocabulary`` must have learned its shape."""
        vocabulary = self._vocabulary
        if vocabulary.version != self._version:
            self.table.clear()
            self._version = vocabulary.version
        labels: tuple[tuple[str, str], ...] = ()
        if vocabulary.keys:
            found = pod.labels
            labels = tuple((key, found[key]) for key in vocabulary.keys if key in found)
        namespace = pod.namespace if vocabulary.active else ""
        images = _named(pod.images) if self.images else ()
        key = (pod.shape, namespace, labels, dialect, extras, images)
        entry = self.table.get(key)
        if entry is None:
            entry = _translate(pod.shape, namespace, labels, self._namespaces)
            extras = extras or _NO_EXTRAS
            parts = charges_of(pod.shape, extras.cards or _NO_CONTEXT, self.facts)
            needs = replace(
                entry.needs,
                request=tuple(sorted(parts.request.items())),
                devices=parts.devices,
                node_terms=_pinned(entry.needs.node_terms, extras.cards),
                by_card=parts.by_card,
                dialect=dialect,
                volumes=extras.volumes,
                node_groups=extras.node_groups,
                revocable_zone=extras.revocable_zone,
                scoring=extras.scoring,
                roles=extras.roles,
                zones=need_of(pod.shape, extras.zone_policy, _parted(parts.devices))
                if self.zoned or extras.zone_policy
                else None,
                images=images,
            )
            entry = self.table[key] = TranslatedPod(needs, (*entry.problems, *parts.problems))
        return entry

    def retain(self, shapes: set[int]) -> None:
        """Drop entries of shapes (by ``id``) that no pod has any more."""
        self.table = {key: entry for key, entry in self.table.items() if id(key[0]) in shapes}

    def reset(self) -> None:
        """Forget everything but whether images are told, for another engine."""
        self.facts, self.zoned, self._version = ClusterDeviceFacts(), False, -1
        self.table.clear()


@lru_cache(maxsize=4096)
def _named(images: tuple[str, ...]) -> tuple[str, ...]:
    """Images by the names that nodes list them under: without tag or digest ``latest`` is meant."""
    return tuple(sorted(i if i.rfind(":") > i.rfind("/") else f"{i}:latest" for i in images))


def _parted(devices: tuple[DeviceNeed, ...]) -> frozenset[str]:
    """The resources of whose devices parts are asked for: a kubelet gives none of them from zones."""
    return frozenset(need.resource for need in devices if not need.whole)


def _translate(
    shape: PodShape,
    namespace: str,
    labels: tuple[tuple[str, str], ...],
    namespaces: Mapping[str, Mapping[str, str]],
) -> TranslatedPod:
    problems: list[FieldError] = []
    terms, preferred = _node_affinity(shape, problems)
    relations = PodRelations(dict(labels), namespaces, problems)
    near = shape.affinity.pod_affinity if shape.affinity is not None else None
    far = shape.affinity.pod_anti_affinity if shape.affinity is not None else None
    needs = Needs(
        node_selector=tuple(sorted(shape.node_selector.items())),
        node_terms=terms,
        preferred_nodes=preferred,
        tolerations=_tolerations(shape.tolerations, problems),
        affinity=relations.required(near, "podAffinity"),
        anti_affinity=relations.required(far, "podAntiAffinity"),
        preferred_affinity=relations.preferred(near, "podAffinity"),
        preferred_anti_affinity=relations.preferred(far, "podAntiAffinity"),
        spread=relations.spread(shape.spread),
        host_ports=tuple(HostPort(*port) for port in shape.host_ports),
        labels=labels,
        namespace=namespace,
    )
    return TranslatedPod(needs, tuple(problems))


def _pinned(
    terms: tuple[NodeTerm, ...] | None, cards: DeviceRequestContext | None
) -> tuple[NodeTerm, ...] | None:
    """The pod's own terms, on the one node where a claim that it shares is."""
    if cards is None or not cards.pinned:
        return terms
    here = Expression("metadata.name", "In", (cards.pinned,))
    return tuple(NodeTerm(term.labels, (*term.fields, here)) for term in (terms or (NodeTerm(),)))


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
    found = []
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
            found.append(Toleration(t.key, operator, t.value, t.effect))
    return tuple(found)
