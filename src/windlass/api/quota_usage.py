"""Usage that counts against a ResourceQuota: usage of one object by quota name, and the scopes.

Pure; admission and the quota controller share it. Quantities are exact fractions, so that
a quota of ``500m`` or of ``2000Gi`` is compared without rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from windlass.api import quantities, resources
from windlass.api.pod_requests import qos_class
from windlass.api.resources import Resource
from windlass.api.wire.field_values import canonical_quantity

Usage = dict[str, Fraction]

OBJECT_COUNTS: Mapping[Resource, str] = {
    resources.PODS: "pods",
    resources.SERVICES: "services",
    resources.SECRETS: "secrets",
    resources.CONFIG_MAPS: "configmaps",
    resources.PERSISTENT_VOLUME_CLAIMS: "persistentvolumeclaims",
    resources.RESOURCE_QUOTAS: "resourcequotas",
}
"""Kinds with a short quota name; every kind also counts as ``count/PLURAL.GROUP``."""

_PLAIN = ("cpu", "memory", "ephemeral-storage")
_FINISHED = ("Succeeded", "Failed")


def counted(name: str) -> bool:
    """Return whether a quota on ``name`` has any effect: limits of extended resources equal their requests."""
    return not (name.startswith("limits.") and "/" in name)


def counted_kinds(hard: Iterable[str]) -> set[Resource]:
    """Return the served kinds that a quota with these names counts."""
    kinds: set[Resource] = set()
    stored = [r for r in resources.ALL if r.namespaced and r not in resources.ALIASES]
    by_name = {f"count/{r.qualified}": r for r in stored}
    by_name |= {name: resource for resource, name in OBJECT_COUNTS.items()}
    for name in hard:
        if name in by_name:
            kinds.add(by_name[name])
        elif name in ("services.nodeports", "services.loadbalancers"):
            kinds.add(resources.SERVICES)
        elif name == "requests.storage" or "storageclass.storage.k8s.io/" in name:
            kinds.add(resources.PERSISTENT_VOLUME_CLAIMS)
        elif name.startswith(("requests.", "limits.")) or name in _PLAIN or name.startswith("hugepages-"):
            kinds.add(resources.PODS)
    return kinds


def usage(resource: Resource, obj: Mapping[str, Any]) -> Usage:
    """Return the usage of ``obj`` under each quota name it touches. Raises ``QuantityError``."""
    if resource is resources.PODS:
        return _pod(obj)
    used: Usage = {f"count/{resource.qualified}": Fraction(1)}
    short = OBJECT_COUNTS.get(resource)
    if short is not None:
        used[short] = Fraction(1)
    if resource is resources.SERVICES:
        used |= _service(obj.get("spec") or {})
    elif resource is resources.PERSISTENT_VOLUME_CLAIMS:
        used |= _claim(obj.get("spec") or {})
    return used


def _pod(obj: Mapping[str, Any]) -> Usage:
    used: Usage = {"count/pods": Fraction(1)}
    if (obj.get("status") or {}).get("phase") in _FINISHED:
        return used
    used["pods"] = Fraction(1)
    spec = obj.get("spec") or {}
    for which in ("requests", "limits"):
        for name, amount in exact_amounts(spec, which).items():
            if which == "limits" and not counted(f"limits.{name}"):
                continue
            used[f"{which}.{name}"] = amount
            if which == "requests" and (name in _PLAIN or name.startswith("hugepages-")):
                used[name] = amount
    return used


def exact_amounts(spec: Mapping[str, Any], which: str) -> Usage:
    """Requests or limits of a pod, exactly; the rule is that of :mod:`windlass.api.pod_requests`."""
    running: Usage = {}
    for container in spec.get("containers") or ():
        _add(running, _exact(container, which))
    sidecars: Usage = {}
    peaks: list[Usage] = []
    for init in spec.get("initContainers") or ():
        amounts = _exact(init, which)
        if init.get("restartPolicy") == "Always":
            _add(sidecars, amounts)
            peaks.append(dict(sidecars))
        else:
            beside = dict(sidecars)
            _add(beside, amounts)
            peaks.append(beside)
    _add(running, sidecars)
    for peak in peaks:
        for name, amount in peak.items():
            running[name] = max(running.get(name, Fraction(0)), amount)
    running |= _exact(spec, which)
    return running


def _exact(holder: Mapping[str, Any], which: str) -> Usage:
    amounts = (holder.get("resources") or {}).get(which) or {}
    return {name: quantities.parse(str(text)) for name, text in amounts.items()}


def _add(total: Usage, more: Usage) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Fraction(0)) + amount


def _service(spec: Mapping[str, Any]) -> Usage:
    used: Usage = {}
    kind = spec.get("type", "ClusterIP")
    if kind in ("NodePort", "LoadBalancer"):
        used["services.nodeports"] = Fraction(len(spec.get("ports") or ()))
    if kind == "LoadBalancer":
        used["services.loadbalancers"] = Fraction(1)
    return used


def _claim(spec: Mapping[str, Any]) -> Usage:
    amount = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    storage = quantities.parse(str(amount)) if amount is not None else Fraction(0)
    used: Usage = {"requests.storage": storage}
    storage_class = spec.get("storageClassName")
    if storage_class:
        prefix = f"{storage_class}.storageclass.storage.k8s.io/"
        used[f"{prefix}requests.storage"] = storage
        used[f"{prefix}persistentvolumeclaims"] = Fraction(1)
    return used


# --- scopes -------------------------------------------------------------------------------------------


def in_scope(quota_spec: Mapping[str, Any], resource: Resource, obj: Mapping[str, Any]) -> bool:
    """Return whether a quota with this spec counts ``obj`` at all: every scope must hold; scopes are about pods."""
    requirements = [{"scopeName": name, "operator": "Exists"} for name in quota_spec.get("scopes") or ()]
    requirements += (quota_spec.get("scopeSelector") or {}).get("matchExpressions") or []
    if not requirements:
        return True
    if resource is not resources.PODS:
        return False
    return all(_scope_holds(requirement, obj.get("spec") or {}) for requirement in requirements)


def _scope_holds(requirement: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    match requirement.get("scopeName"):
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return qos_class(spec) == "BestEffort"
        case "NotBestEffort":
            return qos_class(spec) != "BestEffort"
        case "PriorityClass":
            return _class_matches(requirement, spec.get("priorityClassName") or "")
        case "CrossNamespacePodAffinity":
            return _crosses_namespaces(spec)
    return False


def _class_matches(requirement: Mapping[str, Any], name: str) -> bool:
    values = requirement.get("values") or ()
    match requirement.get("operator"):
        case "In":
            return name in values
        case "NotIn":
            return name not in values
        case "DoesNotExist":
            return not name
    return bool(name)


def _crosses_namespaces(spec: Mapping[str, Any]) -> bool:
    affinity = spec.get("affinity") or {}
    for side in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(side) or {}
        required = terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        preferred = terms.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        for term in [*required, *(one.get("podAffinityTerm") or {} for one in preferred)]:
            if term.get("namespaces") or term.get("namespaceSelector") is not None:
                return True
    return False


def shown(name: str, amount: Fraction) -> str:
    """The quantity as ``status.used`` and the refusal write it."""
    binary = any(word in name for word in ("memory", "storage", "hugepages"))
    if binary and amount.denominator == 1 and abs(amount) >= 1024 and amount % 1024 == 0:
        return canonical_quantity(f"{int(amount) // 1024}Ki")
    if amount.denominator == 1:
        return canonical_quantity(int(amount))
    nano = amount * 10**9
    return canonical_quantity(f"{-((-nano.numerator) // nano.denominator)}n")
