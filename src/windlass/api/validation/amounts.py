"""Resource names and quantities of containers: whole devices, requests against limits, huge pages.

The rules of ``ValidateResourceRequirements``. Extended resources (``nvidia.com/gpu``) come in whole
numbers, and their request equals their limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from windlass.api import quantities
from windlass.api.quantities import is_extended
from windlass.api.validation import names
from windlass.api.validation.collector import Collector
from windlass.api.wire.field_values import canonical_quantity

STANDARD = ("cpu", "memory", "ephemeral-storage")
_HUGE = "hugepages-"
_OVERCOMMIT = ("cpu", "memory", "ephemeral-storage")
_POD_LEVEL = ("cpu", _HUGE, "memory")


def parsed(text: Any) -> Fraction | None:
    """The exact value; ``None`` for what is no quantity (field review has refused that in built-in kinds)."""
    try:
        return quantities.parse(str(text))
    except quantities.QuantityError:
        return None


def shown(text: Any) -> str:
    try:
        return canonical_quantity(text)
    except ValueError:
        return str(text)


def quantity(path: str, name: str, text: Any, out: Collector) -> None:
    """A quantity of resource ``name``: known, not negative, whole where it must be, countable."""
    try:
        value = quantities.parse(str(text))
    except quantities.QuantityError as error:
        out.invalid(path, str(text), str(error))
        return
    if value < 0:
        out.invalid(path, shown(text), names.NEGATIVE_WORDS)
    elif (is_extended(name) or name.startswith(_HUGE)) and value.denominator != 1:
        out.invalid(path, shown(text), "must be an integer")


def resource_name(path: str, name: str, out: Collector) -> None:
    out.each(path, name, names.qualified_name(name))
    if "/" not in name and name not in STANDARD and not name.startswith(_HUGE):
        out.invalid(path, name, "must be a standard resource type or fully qualified")
        out.invalid(path, name, "must be a standard resource for containers")
    elif "/" in name and "kubernetes.io/" not in name and names.qualified_name(name):
        out.invalid(path, name, "doesn't follow extended resource name standard")


def requirements(found: Mapping[str, Any], path: str, out: Collector, claims: tuple[str, ...] = ()) -> None:
    """``resources`` of one container."""
    limits, requests = found.get("limits") or {}, found.get("requests") or {}
    for name, text in limits.items():
        where = f"{path}.limits[{name}]"
        resource_name(where, name, out)
        quantity(where, name, text, out)
        _huge_size(where, name, text, out)
    for name, text in requests.items():
        where = f"{path}.requests[{name}]"
        resource_name(where, name, out)
        quantity(where, name, text, out)
        _against_limit(path, name, text, limits, out)
        _huge_size(where, name, text, out)
    named = {*limits, *requests}
    if any(name.startswith(_HUGE) for name in named) and not named & {"cpu", "memory"}:
        out.forbidden(path, "HugePages require cpu or memory")
    for index, claim in enumerate(found.get("claims") or ()):
        _claim(f"{path}.claims[{index}]", claim, claims, out)


def _against_limit(path: str, name: str, text: Any, limits: Mapping[str, Any], out: Collector) -> None:
    where = f"{path}.requests"
    overcommit = name in _OVERCOMMIT or not ("/" in name or name.startswith(_HUGE))
    if name not in limits:
        if not overcommit:
            out.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        return
    request, limit = parsed(text), parsed(limits[name])
    if request is None or limit is None:
        return
    if not overcommit and request != limit:
        out.invalid(where, shown(text), f"must be equal to {name} limit of {shown(limits[name])}")
    elif overcommit and request > limit:
        out.invalid(
            where, shown(text), f"must be less than or equal to {name} limit of {shown(limits[name])}"
        )


def _huge_size(where: str, name: str, text: Any, out: Collector) -> None:
    if not name.startswith(_HUGE):
        return
    size, value = parsed(name.removeprefix(_HUGE)), parsed(text)
    if size and value is not None and (value / size).denominator != 1:
        out.invalid(where, shown(text), f"{shown(text)} is not positive integer multiple of {name}")


def _claim(where: str, claim: Mapping[str, Any], known: tuple[str, ...], out: Collector) -> None:
    from windlass.api.errors import FieldError

    name = claim.get("name", "")
    if not name:
        out.required(f"{where}.name")
    elif name not in known:
        names_text = f": {', '.join(known)}" if known else " which is empty"
        hint = f"must be one of the names in pod.spec.resourceClaims{names_text}"
        out.add(FieldError(where, f'Not found: "{name}": {hint}', "FieldValueNotFound"))


def pod_level(found: Mapping[str, Any], path: str, out: Collector) -> None:
    """``spec.resources`` of a pod: cpu, memory and huge pages only."""
    limits, requests = found.get("limits") or {}, found.get("requests") or {}
    for which, amounts in (("limits", limits), ("requests", requests)):
        for name, text in amounts.items():
            where = f"{path}.{which}[{name}]"
            if name not in ("cpu", "memory") and not name.startswith(_HUGE):
                out.choice(where, name, _POD_LEVEL)
            else:
                quantity(where, name, text, out)
                if which == "requests":
                    _against_limit(path, name, text, limits, out)
