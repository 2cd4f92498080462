"""Kinds of dynamic resource allocation. Messages are the real server's (``pkg/apis/resource/validation``); CEL beyond
what :mod:`windlass.api.devices.cel` serves is refused here, since nothing could be allocated by it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

from windlass.api.devices import cel
from windlass.api.validation import names
from windlass.api.validation.collector import Collector, part
from windlass.api.validation.metadata import IMMUTABLE
from windlass.api.validation.pods import capacities

Obj = Mapping[str, Any]
_MODES = ("All", "ExactCount")
_MOST_REQUESTS, _MOST_SELECTORS, _MOST_OPTIONS = 32, 32, 8
_MOST_DEVICES, _MOST_CONDITIONS = 128, 4
_CONDITIONS = ("bindingConditions", "bindingFailureConditions")
_ONE_OF = "exactly one of `exactly` or `firstAvailable` is required"
_CONSTRAINT_ONE_OF = (
    'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
)
_NO_SUCH_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_NOT_QUALIFIED = "a fully qualified name must be a domain and a name separated by a slash"
_OPERATORS, _EFFECTS = ("Equal", "Exists"), ("NoExecute", "NoSchedule", "None")
_SLICE_ONE_OF = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"


def device_class(obj: Obj, old: Obj | None, out: Collector) -> None:
    _selectors(part(obj, "spec").get("selectors"), "spec.selectors", out)


def claim(obj: Obj, old: Obj | None, out: Collector) -> None:
    if old is not None:
        if obj.get("spec") != old.get("spec"):
            out.invalid("spec", "", IMMUTABLE)
        return
    _claim_spec(part(obj, "spec"), "spec", out)


def template(obj: Obj, old: Obj | None, out: Collector) -> None:
    if old is not None:
        if obj.get("spec") != old.get("spec"):
            out.invalid("spec", "", IMMUTABLE)
        return
    _claim_spec(part(part(obj, "spec"), "spec"), "spec.spec", out)


def resource_slice(obj: Obj, old: Obj | None, out: Collector) -> None:
    spec = part(obj, "spec")
    out.checked("spec.driver", spec.get("driver", ""), names.dns_subdomain)
    pool = part(spec, "pool")
    out.checked("spec.pool.name", pool.get("name", ""), _pool_name)
    if pool.get("resourceSliceCount", 0) <= 0:
        out.invalid(
            "spec.pool.resourceSliceCount", pool.get("resourceSliceCount", 0), "must be greater than zero"
        )
    if pool.get("generation", 0) < 0:
        out.invalid("spec.pool.generation", pool["generation"], "must be greater than or equal to zero")
    if old is not None:
        before = part(old, "spec")
        for path, now, then in (
            ("spec.pool.name", pool.get("name"), part(before, "pool").get("name")),
            ("spec.driver", spec.get("driver"), before.get("driver")),
            ("spec.nodeName", spec.get("nodeName"), before.get("nodeName")),
        ):
            if now != then:
                out.invalid(path, now, IMMUTABLE)
    told = [
        name for name in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection") if spec.get(name)
    ]
    if not told:
        out.required("spec", _SLICE_ONE_OF)
    elif len(told) > 1:
        shown = ", ".join(f"`{name}`" for name in told)
        out.invalid("spec", f"{{{shown}}}", f"{_SLICE_ONE_OF}, but multiple fields are set")
    _distinct(spec.get("devices") or (), "spec.devices", out, _device, _MOST_DEVICES)


def _pool_name(name: str) -> tuple[str, ...]:
    return tuple(words for piece in name.split("/") for words in names.dns_subdomain(piece))


def _device(device: Obj, path: str, out: Collector) -> None:
    for name, value in (device.get("attributes") or {}).items():
        given = [kind for kind in ("bool", "int", "string", "version") if value.get(kind) is not None]
        if not given:
            out.required(f"{path}.attributes[{name}]", "exactly one value must be specified")
        elif len(given) > 1:
            out.invalid(f"{path}.attributes[{name}]", dict(value), "exactly one value must be specified")

    _conditions(device, path, out)
    shared = bool(device.get("allowMultipleAllocations"))
    for name, told in (device.get("capacity") or {}).items():
        policy = told.get("requestPolicy")
        if policy is not None and not shared:
            out.forbidden(f"{path}.capacity[{name}].requestPolicy", "allowMultipleAllocations must be true")
        elif policy is not None:
            capacities.policy(
                policy, str(told.get("value", "0")), f"{path}.capacity[{name}].requestPolicy", out
            )


def _conditions(device: Obj, path: str, out: Collector) -> None:
    """Check the conditions that a driver sets before a pod may be bound, or that prevent binding."""
    told = {name: device.get(name) or () for name in _CONDITIONS}
    ready = told[_CONDITIONS[0]]
    for name, conditions in told.items():
        if len(conditions) > _MOST_CONDITIONS:
            out.too_many(f"{path}.{name}", len(conditions), _MOST_CONDITIONS)
        for position, condition in enumerate(conditions):
            where = f"{path}.{name}[{position}]"
            if len(conditions) <= _MOST_CONDITIONS:
                out.each(where, condition, names.qualified_name(condition))
            if condition in conditions[:position]:
                out.duplicate(where, condition)
            if name == _CONDITIONS[1] and condition in ready:
                out.invalid(
                    where, condition, "bindingFailureConditions must not overlap with bindingConditions"
                )
    for name, other in (_CONDITIONS, _CONDITIONS[::-1]):
        if told[other] and not told[name]:
            out.invalid(f"{path}.{name}", [], f"{name} are required to use {other}")


def _claim_spec(spec: Obj, path: str, out: Collector) -> None:
    devices = part(spec, "devices")
    requests = devices.get("requests") or ()
    _distinct(requests, f"{path}.devices.requests", out, _request, _MOST_REQUESTS)
    known = set(_names_of(requests))
    constraints = devices.get("constraints") or ()
    if len(constraints) > _MOST_REQUESTS:
        out.invalid(
            f"{path}.devices.constraints", len(constraints), f"must have at most {_MOST_REQUESTS} items"
        )
    for position, constraint in enumerate(constraints):
        _constraint(constraint, f"{path}.devices.constraints[{position}]", known, out)


def _names_of(requests: Sequence[Obj]) -> Iterator[str]:
    """Yield the names that constraints may refer to: requests and their alternatives."""
    for request in requests:
        yield request.get("name", "")
        for option in request.get("firstAvailable") or ():
            yield f"{request.get('name', '')}/{option.get('name', '')}"


def _constraint(constraint: Obj, path: str, known: Container[str], out: Collector) -> None:
    for position, name in enumerate(constraint.get("requests") or ()):
        if name not in known:
            out.invalid(f"{path}.requests[{position}]", name, _NO_SUCH_REQUEST)
    told = [name for name in ("matchAttribute", "distinctAttribute") if constraint.get(name)]
    if not told:
        out.required(path, _CONSTRAINT_ONE_OF)
    for name in told[:1]:
        attribute = constraint[name]
        if "/" not in attribute:
            out.invalid(f"{path}.{name}", attribute, _NOT_QUALIFIED)


def _distinct(
    items: Sequence[Obj],
    path: str,
    out: Collector,
    check: Callable[[Obj, str, Collector], None],
    most: int,
) -> None:
    """Named items: each by itself, no name twice, not too many."""
    seen: set[str] = set()
    if len(items) > most:
        out.invalid(path, len(items), f"must have at most {most} items")
    for position, item in enumerate(items):
        at, name = f"{path}[{position}]", item.get("name", "")
        out.checked(f"{at}.name", name, names.dns_label)
        check(item, at, out)
        if name in seen:
            out.duplicate(at, name)
        seen.add(name)


def _request(request: Obj, path: str, out: Collector) -> None:
    exactly, options = request.get("exactly"), request.get("firstAvailable") or ()
    if exactly is None and not options:
        out.required(path, _ONE_OF)
    elif exactly is not None and options:
        out.invalid(path, None, f"{_ONE_OF}, but multiple fields are set")
    elif options:
        _distinct(options, f"{path}.firstAvailable", out, _exactly, _MOST_OPTIONS)
    elif exactly is not None:
        _exactly(exactly, f"{path}.exactly", out)


def _exactly(request: Obj, path: str, out: Collector) -> None:
    out.checked(f"{path}.deviceClassName", request.get("deviceClassName", ""), names.dns_subdomain)
    _selectors(request.get("selectors"), f"{path}.selectors", out)
    for position, toleration in enumerate(request.get("tolerations") or ()):
        _toleration(toleration, f"{path}.tolerations[{position}]", out)
    mode, count = request.get("allocationMode"), request.get("count") or 0
    if not out.choice(f"{path}.allocationMode", mode, _MODES):
        return
    if mode == "All" and count:
        out.invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
    if mode == "ExactCount" and count <= 0:
        out.invalid(f"{path}.count", count, "must be greater than zero")


def _toleration(toleration: Obj, path: str, out: Collector) -> None:
    operator, effect = toleration.get("operator"), toleration.get("effect")
    if (
        out.choice(f"{path}.operator", operator, _OPERATORS)
        and operator == "Exists"
        and toleration.get("value")
    ):
        out.invalid(f"{path}.value", toleration["value"], "must be empty for operator `Exists`")
    if effect:
        out.choice(f"{path}.effect", effect, _EFFECTS)


def _selectors(selectors: Sequence[Obj] | None, path: str, out: Collector) -> None:
    if len(selectors or ()) > _MOST_SELECTORS:
        out.invalid(path, len(selectors or ()), f"must have at most {_MOST_SELECTORS} items")
    for position, selector in enumerate(selectors or ()):
        at = f"{path}[{position}].cel"
        expression = part(selector, "cel").get("expression")
        if selector.get("cel") is None:
            out.required(at)
            continue
        try:
            cel.compiled(expression or "")
        except cel.CelError as error:
            out.invalid(f"{at}.expression", expression or "", str(error))
