"""Affinity, anti-affinity and spread of a pod, translated and checked.

Requirements on labels in general are here, too, as node affinity also uses them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from windlass.api import selectors
from windlass.api.errors import FieldError
from windlass.api.views.podshape import (
    LabelSelector,
    PodAffinityTerm,
    PodAffinityWire,
    RequirementWire,
    SpreadConstraint,
)
from windlass.kits.numbers import parse_int64
from windlass.spi.objects import Expression, PodTerm, SpreadTerm, WeightedPodTerm

LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_HARD, _SOFT = "DoNotSchedule", "ScheduleAnyway"
_HONOR, _IGNORE = "Honor", "Ignore"


def _spread_problems(wire: SpreadConstraint, field: str) -> Iterator[FieldError]:
    if wire.max_skew < 1:
        yield FieldError.invalid(f"{field}.maxSkew", wire.max_skew, "must be greater than zero")
    if not wire.topology_key:
        yield FieldError.required(f"{field}.topologyKey", "can not be empty")
    if wire.when_unsatisfiable not in (_HARD, _SOFT):
        yield FieldError.not_supported(f"{field}.whenUnsatisfiable", wire.when_unsatisfiable, (_HARD, _SOFT))
    if wire.min_domains is not None and wire.min_domains < 1:
        yield FieldError.invalid(f"{field}.minDomains", wire.min_domains, "must be greater than zero")
    if wire.min_domains is not None and wire.when_unsatisfiable != _HARD:
        yield FieldError.invalid(
            f"{field}.minDomains", wire.min_domains, f"can only use minDomains if whenUnsatisfiable={_HARD}"
        )
    for name, policy in (
        ("nodeAffinityPolicy", wire.node_affinity_policy),
        ("nodeTaintsPolicy", wire.node_taints_policy),
    ):
        if policy not in (_HONOR, _IGNORE):
            yield FieldError.not_supported(f"{field}.{name}", policy, (_HONOR, _IGNORE))


def expressions(
    requirements: Sequence[RequirementWire] | None,
    field: str,
    operators: Sequence[str],
    problems: list[FieldError],
) -> tuple[Expression, ...]:
    result = []
    for i, requirement in enumerate(requirements or ()):
        place = f"{field}[{i}]"
        values = requirement.values or ()
        problem = _objection(requirement.operator, values, operators, place)
        if not requirement.key:
            problem = FieldError.required(f"{place}.key")
        if problem is not None:
            problems.append(problem)
            continue
        result.append(Expression(requirement.key, requirement.operator, values))
    return tuple(result)


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
        if parse_int64(values[0]) is None:
            return FieldError.invalid(f"{place}.values[0]", values[0], "must be an integer")
    return None


class PodRelations:
    """Translation of the pod affinity of one class of pods.

    ``labels``: the class's own labels, as far as any pod selects on them.
    ``namespaces``: the labels of each namespace.
    """

    def __init__(
        self,
        labels: Mapping[str, str],
        namespaces: Mapping[str, Mapping[str, str]],
        problems: list[FieldError],
    ) -> None:
        self._labels = labels
        self._namespaces = namespaces
        self._problems = problems

    def required(self, wire: PodAffinityWire | None, side: str) -> tuple[PodTerm, ...]:
        """Return the required terms. ``side``: ``podAffinity`` or ``podAntiAffinity``."""
        if wire is None:
            return ()
        base = f"spec.affinity.{side}.requiredDuringSchedulingIgnoredDuringExecution"
        return tuple(self._term(term, f"{base}[{i}]") for i, term in enumerate(wire.required or ()))

    def preferred(self, wire: PodAffinityWire | None, side: str) -> tuple[WeightedPodTerm, ...]:
        if wire is None:
            return ()
        base = f"spec.affinity.{side}.preferredDuringSchedulingIgnoredDuringExecution"
        result = []
        for i, preference in enumerate(wire.preferred or ()):
            if not 1 <= preference.weight <= 100:
                self._problems.append(
                    FieldError.invalid(f"{base}[{i}].weight", preference.weight, "must be in the range 1-100")
                )
            term = self._term(preference.pod_affinity_term, f"{base}[{i}].podAffinityTerm")
            result.append(WeightedPodTerm(preference.weight, term))
        return tuple(result)

    def spread(self, constraints: Sequence[SpreadConstraint]) -> tuple[SpreadTerm, ...]:
        """Return the topology spread constraints. Invalid ones are added to the problems."""
        result = []
        for i, wire in enumerate(constraints):
            field = f"spec.topologySpreadConstraints[{i}]"
            problems = [*_spread_problems(wire, field)]
            self._problems += problems
            selector = self._selector(wire.label_selector, f"{field}.labelSelector")
            if selector is not None:
                selector += self._own(wire.match_label_keys, "In")
            if not problems:
                result.append(
                    SpreadTerm(
                        wire.topology_key,
                        wire.max_skew,
                        wire.when_unsatisfiable == _HARD,
                        selector,
                        wire.min_domains,
                        wire.node_affinity_policy == _HONOR,
                        wire.node_taints_policy == _HONOR,
                    )
                )
        return tuple(result)

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
                selector = None  # no namespace is selected, not even the pod's own
        return PodTerm(selector, term.topology_key, namespaces)

    def _own(self, keys: Sequence[str] | None, operator: str) -> tuple[Expression, ...]:
        """Return terms of ``matchLabelKeys`` with the pod's own values.

        The API server merges them on creation, too.
        """
        return tuple(
            Expression(key, operator, (self._labels[key],)) for key in keys or () if key in self._labels
        )

    def _selector(self, selector: LabelSelector | None, field: str) -> tuple[Expression, ...] | None:
        if selector is None:
            return None
        equal = tuple(
            Expression(key, "In", (value,)) for key, value in sorted((selector.match_labels or {}).items())
        )
        return equal + expressions(
            selector.match_expressions, f"{field}.matchExpressions", LABEL_OPERATORS, self._problems
        )
