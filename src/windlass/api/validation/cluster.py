"""Nodes, namespaces, classes, quotas, limits, budgets: what the cluster itself is made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from windlass.api.errors import FieldError
from windlass.api.validation import amounts, names
from windlass.api.validation.collector import Collector, part
from windlass.api.validation.metadata import IMMUTABLE
from windlass.api.validation.pods.placement import label_selector

MAX_USER_PRIORITY = 1_000_000_000
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_PREEMPTION = ("PreemptLowerPriority", "Never")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SCOPES = (
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
)
_QUOTA_NAMES = frozenset(
    (
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.storage",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "persistentvolumeclaims",
        "configmaps",
        "services.nodeports",
        "services.loadbalancers",
    )
)
_COUNTED_WHOLE = frozenset(
    (
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    )
)
_AMOUNTS = {"min": "min", "defaultRequest": "default request", "default": "default", "max": "max"}
"""Amounts of a LimitRange's item, with their names in messages."""
_ORDER = (
    ("min", "max", "min", "min"),
    ("min", "defaultRequest", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "max", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default", "defaultRequest", "defaultRequest"),
    ("min", "default", "default", "min"),
    ("default", "max", "default", "max"),
)
"""(what must not exceed, what, the field that the error names, the value that it shows)."""
_LIMIT_WORDS = {("defaultRequest", "default"): "default limit"}
_LIMIT_TYPES = ("Container", "PersistentVolumeClaim", "Pod")
Obj = Mapping[str, Any]


def node(obj: Obj, old: Obj | None, out: Collector) -> None:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(spec.get("taints") or ()):
        where = f"metadata.taints[{index}]"
        key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        out.each(f"{where}.key", key, names.qualified_name(key))
        if value:
            out.each(f"{where}.value", value, names.label_value(value))
        if not effect:
            out.required(f"{where}.effect")
        else:
            out.choice(f"{where}.effect", effect, _EFFECTS)
        if (key, effect) in seen:
            out.add(
                FieldError(
                    where,
                    f'Duplicate value: "{key}={value}:{effect}": taints must be unique by key and effect pair',
                    "FieldValueDuplicate",
                )
            )
        seen.add((key, effect))
    for which in ("capacity", "allocatable"):
        for name, text in (status.get(which) or {}).items():
            amounts.quantity(f"status.{which}[{name}]", name, text, out)
    if old is not None:
        before = (old.get("spec") or {}).get("providerID")
        if before and spec.get("providerID") != before:
            out.forbidden("spec.providerID", 'node updates may not change providerID except from "" to valid')


def namespace(obj: Obj, old: Obj | None, out: Collector) -> None:
    for index, finalizer in enumerate((obj.get("spec") or {}).get("finalizers") or ()):
        if finalizer != "kubernetes" and "/" not in finalizer:
            out.invalid(
                f"spec.finalizers[{index}]",
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            )


def priority_class(obj: Obj, old: Obj | None, out: Collector) -> None:
    name, value = (obj.get("metadata") or {}).get("name", ""), obj.get("value", 0)
    if name.startswith("system-"):
        known = SYSTEM_PRIORITIES.get(name)
        if known is None:
            why = f"{name} is not a known system priority class"
        elif known != value:
            why = f"value of {name} PriorityClass must be {known}"
        elif obj.get("globalDefault"):
            why = f"globalDefault of {name} PriorityClass must be false"
        else:
            why = ""
        if why:
            out.forbidden(
                "metadata.name",
                f"priority class names with 'system-' prefix are reserved for system use only. error: {why}",
            )
    elif value > MAX_USER_PRIORITY:
        out.forbidden("value", f"maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}")
    out.choice("preemptionPolicy", obj.get("preemptionPolicy", _PREEMPTION[0]), _PREEMPTION)
    if old is not None:
        if value != old.get("value", 0):
            out.forbidden("value", "may not be changed in an update.")
        if obj.get("preemptionPolicy") != old.get("preemptionPolicy"):
            out.invalid("preemptionPolicy", obj.get("preemptionPolicy"), IMMUTABLE)


def resource_quota(obj: Obj, old: Obj | None, out: Collector) -> None:
    spec = obj.get("spec") or {}
    for name, text in (spec.get("hard") or {}).items():
        _quota_entry(f"spec.hard[{name}]", name, text, out)
    scopes = spec.get("scopes") or []
    _scopes(scopes, out)
    for index, requirement in enumerate((spec.get("scopeSelector") or {}).get("matchExpressions") or ()):
        _scope_requirement(f"spec.scopeSelector.matchExpressions[{index}]", requirement, out)
    if old is not None and scopes != ((old.get("spec") or {}).get("scopes") or []):
        out.invalid("spec.scopes", ", ".join(scopes), IMMUTABLE)


def _quota_entry(where: str, name: str, text: Any, out: Collector) -> None:
    out.each(where, name, names.qualified_name(name))
    if "/" not in name and name not in _QUOTA_NAMES and "hugepages-" not in name:
        out.invalid(where, name, "must be a standard resource type or fully qualified")
        out.invalid(where, name, "must be a standard resource for quota")
    value = amounts.parsed(text)
    if value is None:
        out.invalid(where, str(text), "it is no quantity that can be counted")
    elif value < 0:
        out.invalid(where, amounts.shown(text), names.NEGATIVE_WORDS)
    elif value.denominator != 1 and (name in _COUNTED_WHOLE or "/" in name):
        out.invalid(where, amounts.shown(text), "must be an integer")


def _scopes(scopes: list[str], out: Collector) -> None:
    shown = json.dumps(scopes, separators=(",", ":"))
    complaints = ["unsupported scope" for scope in scopes if scope not in _SCOPES]
    opposed = (("Terminating", "NotTerminating"), ("BestEffort", "NotBestEffort"))
    complaints += ["conflicting scopes" for pair in opposed if set(pair) <= set(scopes)]
    out.errors.extend(FieldError("spec.scopes", f"Invalid value: {shown}: {words}") for words in complaints)


def _scope_requirement(where: str, requirement: Obj, out: Collector) -> None:
    scope, operator = requirement.get("scopeName", ""), requirement.get("operator", "")
    values = requirement.get("values") or ()
    if scope not in _SCOPES:
        out.invalid(f"{where}.scopeName", scope, "unsupported scope")
    if operator in ("In", "NotIn"):
        if not values:
            out.required(
                f"{where}.values",
                "must be atleast one value when `operator` is 'In' or 'NotIn' for scope selector",
            )
        if scope in _SCOPES and scope not in ("PriorityClass", "VolumeAttributesClass"):
            out.invalid(
                f"{where}.operator",
                operator,
                "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, "
                "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort "
                "or ResourceQuotaScopeCrossNamespacePodAffinity",
            )
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            out.invalid(
                f"{where}.values",
                list(values),
                "must be no value when `operator` is 'Exists' or 'DoesNotExist' for scope selector",
            )
    else:
        out.invalid(f"{where}.operator", operator, "not a valid selector operator")


def limit_range(obj: Obj, old: Obj | None, out: Collector) -> None:
    seen: set[str] = set()
    for index, item in enumerate((obj.get("spec") or {}).get("limits") or ()):
        where, kind = f"spec.limits[{index}]", item.get("type", "")
        if not kind:
            out.required(f"{where}.type")
        elif kind not in _LIMIT_TYPES and "/" not in kind:
            out.choice(f"{where}.type", kind, _LIMIT_TYPES)
        if kind in seen:
            out.duplicate(f"{where}.type", kind)
        seen.add(kind)
        if kind == "Pod":
            for field in ("default", "defaultRequest"):
                if item.get(field):
                    out.forbidden(f"{where}.{field}", "may not be specified when `type` is 'Pod'")
        for field in ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio"):
            for name, text in part(item, field).items():
                amounts.quantity(f"{where}.{field}[{name}]", name, text, out)
        _ordered(item, where, out)


def _ordered(item: Obj, where: str, out: Collector) -> None:
    """min ≤ default request ≤ default ≤ max, and a ratio of at least 1."""
    given_names: set[str] = {name for field in _AMOUNTS for name in item.get(field) or ()}
    for name in sorted(given_names):
        given = {field: (item.get(field) or {}).get(name) for field in _AMOUNTS}
        for low, high, field, blamed in _ORDER:
            if given[low] is not None and given[high] is not None and _above(given[low], given[high]):
                words = (
                    f"{_AMOUNTS[low]} value {amounts.shown(given[low])} is greater than "
                    f"{_LIMIT_WORDS.get((low, high), _AMOUNTS[high])} value {amounts.shown(given[high])}"
                )
                out.invalid(f"{where}.{field}[{name}]", amounts.shown(given[blamed]), words)
    for name, text in (item.get("maxLimitRequestRatio") or {}).items():
        ratio = amounts.parsed(text)
        if ratio is not None and ratio < 1:
            where_ratio = f"{where}.maxLimitRequestRatio[{name}]"
            out.invalid(where_ratio, amounts.shown(text), f"ratio {amounts.shown(text)} is less than 1")


def _above(low: Any, high: Any) -> bool:
    left, right = amounts.parsed(low), amounts.parsed(high)
    return left is not None and right is not None and left > right


def disruption_budget(obj: Obj, old: Obj | None, out: Collector) -> None:
    spec = obj.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        out.add(
            FieldError(
                "spec",
                "Invalid value: minAvailable and maxUnavailable cannot be both set",
                "FieldValueInvalid",
            )
        )
    for field in ("minAvailable", "maxUnavailable"):
        value = spec.get(field)
        if isinstance(value, int):
            out.at_least(f"spec.{field}", value)
        elif isinstance(value, str):
            digits = value.removesuffix("%")
            if not value.endswith("%") or not (digits.isascii() and digits.isdigit()):
                out.invalid(
                    f"spec.{field}",
                    value,
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
                    "'93%', regex used for validation is '[0-9]+%')",
                )
            elif int(digits) > 100:
                out.invalid(f"spec.{field}", value, "must not be greater than 100%")
    if spec.get("selector") is not None:
        label_selector(spec["selector"], "spec.selector", out)
