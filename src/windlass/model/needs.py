"""Pod shape → :class:`~windlass.spi.objects.Needs`, one object for all pods that need the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from windlass.api import selectors
from windlass.api.errors import FieldError
from windlass.api.views import Pod, PodShape
from windlass.api.views.podshape import LabelSelector, NodeSelectorTerm, PodAffinityTerm, Requirement
from windlass.api.views.podshape import Toleration as WireToleration
from windlass.model.vocabulary import Vocabulary, selects_namespaces
from windlass.spi.objects import (
    Dialect,
    Expression,
    HostPort,
    Needs,
    NodeTerm,
    PodTerm,
    Toleration,
    WeightedNodeTerm,
)

_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_NODE_OPERATORS = (*_LABEL_OPERATORS, "Gt", "Lt")
_EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Translated:
    """``problems`` are the fields that contradict themselves; ``needs`` then lacks them."""

    needs: Needs
    problems: tuple[FieldError, ...] = ()


_Key = tuple[PodShape, str, tuple[tuple[str, str], ...], Dialect]


class NeedsTable:
    """Translates shapes once. ``namespaces`` are the labels of each namespace, for namespace selectors."""

    def __init__(self, vocabulary: Vocabulary, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self._vocabulary = vocabulary
        self._namespaces = namespaces
        self._version = -1
        self._table: dict[_Key, Translated] = {}

    def namespaces_changed(self) -> None:
        """Forget what depended on the labels of namespaces."""
        self._table = {key: entry for key, entry in self._table.items() if not selects_namespaces(key[0])}

    def of(self, pod: Pod, dialect: Dialect = Dialect.WINDLASS) -> Translated:
        """The needs of a pod, placed by the rules of ``dialect``. ``vocabulary`` must have learned its shape."""
        vocabulary = self._vocabulary
        if vocabulary.version != self._version:
            self._table.clear()
            self._version = vocabulary.version
        labels: tuple[tuple[str, str], ...] = ()
        namespace = ""
        if vocabulary.active:
            found = pod.labels
            labels = tuple((key, found[key]) for key in vocabulary.keys if key in found)
            namespace = pod.namespace
        key = (pod.shape, namespace, labels, dialect)
        entry = self._table.get(key)
        if entry is None:
            entry = _translate(pod.shape, namespace, labels, self._namespaces)
            entry = self._table[key] = replace(entry, needs=replace(entry.needs, dialect=dialect))
        return entry

    def retain(self, shapes: set[int]) -> None:
        """Drop entries of shapes (by ``id``) that no pod has any more."""
        self._table = {key: entry for key, entry in self._table.items() if id(key[0]) in shapes}

    def __len__(self) -> int:
        return len(self._table)


def _translate(
    shape: PodShape,
    namespace: str,
    labels: tuple[tuple[str, str], ...],
    namespaces: Mapping[str, Mapping[str, str]],
) -> Translated:
    problems: list[FieldError] = []
    terms, preferred = _node_affinity(shape, problems)
    context = _Context(dict(labels), namespaces, problems)
    affinity = anti = ()
    if shape.affinity is not None:
        if shape.affinity.pod_affinity is not None:
            affinity = context.terms(shape.affinity.pod_affinity.required, "podAffinity")
        if shape.affinity.pod_anti_affinity is not None:
            anti = context.terms(shape.affinity.pod_anti_affinity.required, "podAntiAffinity")
    needs = Needs(
        request=tuple(sorted(shape.request.items())),
        node_selector=tuple(sorted(shape.node_selector.items())),
        node_terms=terms,
        preferred_nodes=preferred,
        tolerations=_tolerations(shape.tolerations, problems),
        affinity=affinity,
        anti_affinity=anti,
        host_ports=tuple(HostPort(protocol, number) for protocol, number in shape.host_ports),
        labels=labels,
        namespace=namespace,
    )
    if shape.claims:
        problems.append(
            FieldError.forbidden(
                "spec.resourceClaims", "claims of dynamic resource allocation are not served"
            )
        )
    for i, constraint in enumerate(shape.spread):
        if constraint.when_unsatisfiable != "ScheduleAnyway":
            problems.append(_hard_spread(i, constraint.topology_key))
    return Translated(needs, tuple(problems))


def _hard_spread(index: int, key: str) -> FieldError:
    return FieldError.forbidden(
        f"spec.topologySpreadConstraints[{index}]",
        f"spreading over {key or 'a topology'} with whenUnsatisfiable DoNotSchedule is not served: say it with "
        "a required podAntiAffinity (one pod a domain), or set ScheduleAnyway (then it is only a wish, which "
        "is not weighed)",
    )


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
    fields = _expressions(term.match_fields, f"{field}.matchFields", _NODE_OPERATORS[:2], problems)
    for i, expression in enumerate(fields):
        if expression.key != "metadata.name":
            problems.append(
                FieldError.not_supported(f"{field}.matchFields[{i}].key", expression.key, ("metadata.name",))
            )
    return NodeTerm(
        _expressions(term.match_expressions, f"{field}.matchExpressions", _NODE_OPERATORS, problems), fields
    )


def _expressions(
    requirements: Sequence[Requirement] | None,
    field: str,
    operators: Sequence[str],
    problems: list[FieldError],
) -> tuple[Expression, ...]:
    found = []
    for i, requirement in enumerate(requirements or ()):
        place = f"{field}[{i}]"
        values = requirement.values or ()
        problem = _objection(requirement.operator, values, operators, place)
        if not requirement.key:
            problem = FieldError.required(f"{place}.key")
        if problem is not None:
            problems.append(problem)
            continue
        found.append(Expression(requirement.key, requirement.operator, values))
    return tuple(found)


def _objection(
    operator: str, values: Sequence[str], operators: Sequence[str], place: str
) -> FieldError | None:
    if operator not in operators:
        return FieldError.not_supported(f"{place}.operator", operator, operators)
    if operator in ("In", "NotIn") and not values:
        return FieldError.required(f"{place}.values", f"must be specified when operator is {operator}")
    if operator in ("Exists", "DoesNotExist") and values:
        return FieldError.forbidden(f"{place}.values", f"may not be specified when operator is {operator}")
    if operator in ("Gt", "Lt"):
        if len(values) != 1:
            return FieldError.required(f"{place}.values", f"must be one value when operator is {operator}")
        try:
            int(values[0])
        except ValueError:
            return FieldError.invalid(f"{place}.values[0]", values[0], "must be an integer")
    return None


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


class _Context:
    """Translates pod affinity terms of one pod class."""

    def __init__(
        self,
        labels: Mapping[str, str],
        namespaces: Mapping[str, Mapping[str, str]],
        problems: list[FieldError],
    ) -> None:
        self._labels = labels
        self._namespaces = namespaces
        self._problems = problems

    def terms(self, terms: Sequence[PodAffinityTerm] | None, side: str) -> tuple[PodTerm, ...]:
        base = f"spec.affinity.{side}.requiredDuringSchedulingIgnoredDuringExecution"
        return tuple(self._term(term, f"{base}[{i}]") for i, term in enumerate(terms or ()))

    def _term(self, term: PodAffinityTerm, field: str) -> PodTerm:
        if not term.topology_key:
            self._problems.append(FieldError.required(f"{field}.topologyKey", "can not be empty"))
        selector = self._selector(term.label_selector, f"{field}.labelSelector")
        if selector is not None:
            selector += self._own(term.match_label_keys, "In") + self._own(term.mismatch_label_keys, "NotIn")
        namespaces = tuple(sorted(term.namespaces or ()))
        if term.namespace_selector is not None:
            chosen = self._selector(term.namespace_selector, f"{field}.namespaceSelector") or ()
            matcher = selectors.Selector(
                tuple(selectors.Requirement(e.key, e.operator, e.values) for e in chosen)
            )
            matching = {name for name, labels in self._namespaces.items() if matcher.matches(labels)}
            namespaces = tuple(sorted(matching | set(namespaces)))
            if not namespaces:
                selector = None  # no namespace is meant, not even the pod's own
        return PodTerm(selector, term.topology_key, namespaces)

    def _own(self, keys: Sequence[str] | None, operator: str) -> tuple[Expression, ...]:
        """``matchLabelKeys``: the pod's own values (the API server merges them on creation, too)."""
        return tuple(
            Expression(key, operator, (self._labels[key],)) for key in keys or () if key in self._labels
        )

    def _selector(self, selector: LabelSelector | None, field: str) -> tuple[Expression, ...] | None:
        if selector is None:
            return None
        equal = tuple(
            Expression(key, "In", (value,)) for key, value in sorted((selector.match_labels or {}).items())
        )
        return equal + _expressions(
            selector.match_expressions, f"{field}.matchExpressions", _LABEL_OPERATORS, self._problems
        )
