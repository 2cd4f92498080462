"""Objects of kinds that a user's CustomResourceDefinition declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.errors import FieldError
from windlass.api.structural import objects, values
from windlass.api.structural.definition import Definition
from windlass.api.validation.collector import Collector
from windlass.api.wire.scale import lookup

_MOST = 2**31 - 1


def validate(
    definition: Definition,
    obj: Mapping[str, Any],
    old: Mapping[str, Any] | None,
    subresource: str,
    out: Collector,
) -> None:
    """Collect the errors of an object. Parts that ``old`` has, too, are not checked again."""
    schema = definition.schema
    if subresource == "status":
        _status(definition, obj, old or {}, out)
        return
    before = values.UNKNOWN if old is None else old
    for error in values.validate(schema, obj, "", before):
        out.add(error)
    for error in objects.embedded_objects(schema, obj):
        out.add(error)
    if old is None or not objects.list_types(schema, old):
        for error in objects.list_types(schema, obj):
            out.add(error)
    if definition.scale is not None:
        replicas(definition.scale.wanted, obj, out)
        replicas(definition.scale.present, obj, out)


def _status(definition: Definition, obj: Mapping[str, Any], old: Mapping[str, Any], out: Collector) -> None:
    schema = definition.status_schema
    if schema is not None and "status" in obj:
        before = old.get("status", values.UNKNOWN)
        for error in values.validate(schema, obj["status"], "", before):
            own = error.field == values.NO_PATH
            out.add(FieldError("status" if own else f"status.{error.field}", error.message, error.reason))
        part = {"properties": {"status": schema}}
        if not objects.list_types(part, {"status": old.get("status")}):
            for error in objects.list_types(part, {"status": obj["status"]}):
                out.add(error)
    if definition.scale is not None:
        replicas(definition.scale.present, obj, out)


def replicas(steps: tuple[str, ...], obj: Mapping[str, Any], out: Collector) -> None:
    """Check the number at a path of the ``scale`` subresource. An absent number is valid."""
    value = lookup(obj, steps)
    if value is None:
        return
    path = ".".join(steps)
    if not isinstance(value, int) or isinstance(value, bool):
        out.add(
            values.invalid(f".{path}", 0, f".{path} accessor error: {values.shown(value)} is not an int64")
        )
    elif value < 0:
        out.invalid(f".{path}", value, "should be a non-negative integer")
    elif value > _MOST:
        out.invalid(f".{path}", value, f"should be less than or equal to {_MOST}")
