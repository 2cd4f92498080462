"""Validation of pod placement: node selectors, affinities, tolerations, spread; and label selectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api.validation import names
from windlass.api.validation.collector import Collector
from windlass.api.validation.metadata import labels

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
_WEIGHT_WORDS = "must be in the range 1-100"
_OPERATOR_WORDS = "not a valid selector operator"
Obj = Mapping[str, Any]


def placement(spec: Obj, path: str, out: Collector) -> None:
    """All of a pod spec that says where it may run."""
    labels(spec.get("nodeSelector"), f"{path}.nodeSelector", out)
    affinity(spec.get("affinity") or {}, f"{path}.affinity", out)
    tolerations(spec.get("tolerations") or (), f"{path}.tolerations", out)
    spread(spec.get("topologySpreadConstraints") or (), f"{path}.topologySpreadConstraints", out)


def affinity(found: Obj, path: str, out: Collector) -> None:
    node = found.get("nodeAffinity") or {}
    if node.get(_REQUIRED) is not None:
        node_selector(node[_REQUIRED], f"{path}.nodeAffinity.{_REQUIRED}", out)
    for index, term in enumerate(node.get(_PREFERRED) or ()):
        where = f"{path}.nodeAffinity.{_PREFERRED}[{index}]"
        _weight(term, where, out)
        _node_term(term.get("preference") or {}, f"{where}.preference", out)
    for side in ("podAffinity", "podAntiAffinity"):
        terms = found.get(side) or {}
        for index, term in enumerate(terms.get(_REQUIRED) or ()):
            _pod_term(term, f"{path}.{side}.{_REQUIRED}[{index}]", out)
        for index, term in enumerate(terms.get(_PREFERRED) or ()):
            where = f"{path}.{side}.{_PREFERRED}[{index}]"
            _weight(term, where, out)
            _pod_term(term.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm", out)


def _weight(term: Obj, where: str, out: Collector) -> None:
    weight = term.get("weight", 0)
    if not 1 <= weight <= 100:
        out.invalid(f"{where}.weight", weight, _WEIGHT_WORDS)


def node_selector(selector: Obj, path: str, out: Collector) -> None:
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        out.required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(terms):
        _node_term(term, f"{path}.nodeSelectorTerms[{index}]", out)


def _node_term(term: Obj, path: str, out: Collector) -> None:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        _node_expression(expression, f"{path}.matchExpressions[{index}]", out)
    for index, expression in enumerate(term.get("matchFields") or ()):
        _node_field(expression, f"{path}.matchFields[{index}]", out)


def _node_expression(expression: Obj, where: str, out: Collector) -> None:
    if expression.get("operator") not in ("Gt", "Lt"):
        _label_expression(expression, where, out)
        return
    if len(expression.get("values") or ()) != 1:
        out.required(f"{where}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    _key_and_values(expression, where, out)


def _label_expression(expression: Obj, where: str, out: Collector) -> None:
    values = expression.get("values") or ()
    match expression.get("operator"):
        case "In" | "NotIn":
            if not values:
                out.required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist":
            if values:
                out.forbidden(
                    f"{where}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                )
        case operator:
            out.invalid(f"{where}.operator", operator or "", _OPERATOR_WORDS)
    _key_and_values(expression, where, out)


def _key_and_values(expression: Obj, where: str, out: Collector) -> None:
    key = expression.get("key", "")
    out.each(f"{where}.key", key, names.qualified_name(key))
    for index, value in enumerate(expression.get("values") or ()):
        out.each(f"{where}.values[{index}]", value, names.label_value(value))


def _node_field(expression: Obj, where: str, out: Collector) -> None:
    values = expression.get("values") or ()
    operator = expression.get("operator")
    if operator in ("In", "NotIn"):
        if len(values) != 1:
            out.required(
                f"{where}.values",
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            )
    else:
        out.invalid(f"{where}.operator", operator or "", _OPERATOR_WORDS)
    if expression.get("key") != "metadata.name":
        out.invalid(f"{where}.key", expression.get("key", ""), "not a valid field selector key")
    else:
        for index, value in enumerate(values):
            out.each(f"{where}.values[{index}]", value, names.dns_subdomain(value))


def _pod_term(term: Obj, where: str, out: Collector) -> None:
    for field in ("labelSelector", "namespaceSelector"):
        if term.get(field) is not None:
            label_selector(term[field], f"{where}.{field}", out)
    for namespace in term.get("namespaces") or ():
        out.each(f"{where}.namespace", namespace, names.dns_label(namespace))
    key = term.get("topologyKey", "")
    if not key:
        out.required(f"{where}.topologyKey", "can not be empty")
    out.each(f"{where}.topologyKey", key, names.qualified_name(key))


def label_selector(selector: Obj, path: str, out: Collector) -> None:
    """The ``{matchLabels, matchExpressions}`` form."""
    labels(selector.get("matchLabels"), f"{path}.matchLabels", out)
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        _label_expression(expression, f"{path}.matchExpressions[{index}]", out)


def tolerations(found: Iterable[Obj], path: str, out: Collector) -> None:
    for index, toleration in enumerate(found):
        where = f"{path}[{index}]"
        key, value = toleration.get("key", ""), toleration.get("value", "")
        operator, effect = toleration.get("operator") or "Equal", toleration.get("effect")
        if key:
            out.each(f"{where}.key", key, names.qualified_name(key))
        if not key and operator != "Exists":
            out.invalid(
                f"{where}.operator",
                toleration.get("operator", ""),
                'operator must be Exists when `key` is empty, which means "match all values and all keys"',
            )
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            out.invalid(
                f"{where}.effect", effect or "", "effect must be 'NoExecute' when `tolerationSeconds` is set"
            )
        if operator == "Exists":
            if value:
                out.invalid(f"{where}.operator", value, "value must be empty when `operator` is 'Exists'")
        elif operator == "Equal":
            out.each(f"{where}.operator", value, names.label_value(value))
        else:
            out.choice(f"{where}.operator", operator, ("Equal", "Exists"))
        if effect:
            out.choice(f"{where}.effect", effect, _EFFECTS)


def spread(found: Iterable[Obj], path: str, out: Collector) -> None:
    constraints = list(found)
    pairs = [(c.get("topologyKey", ""), c.get("whenUnsatisfiable", "")) for c in constraints]
    for index, constraint in enumerate(constraints):
        where = f"{path}[{index}]"
        skew, key = constraint.get("maxSkew", 0), constraint.get("topologyKey", "")
        policy = constraint.get("whenUnsatisfiable", "")
        if skew <= 0:
            out.invalid(f"{where}.maxSkew", skew, "must be greater than zero")
        if not key:
            out.required(f"{where}.topologyKey", "can not be empty")
        else:
            out.each(f"{where}.topologyKey", key, names.qualified_name(key))
        out.choice(f"{where}.whenUnsatisfiable", policy, _UNSATISFIABLE)
        if (key, policy) in pairs[index + 1 :]:
            out.duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {policy}}}")
        domains = constraint.get("minDomains")
        if domains is not None and domains <= 0:
            out.invalid(f"{where}.minDomains", domains, "must be greater than zero")
        elif domains is not None and policy == "ScheduleAnyway":
            out.invalid(
                f"{where}.minDomains",
                domains,
                f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {policy}",
            )
        if constraint.get("labelSelector") is not None:
            label_selector(constraint["labelSelector"], f"{where}.labelSelector", out)
