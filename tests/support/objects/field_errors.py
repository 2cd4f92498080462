"""Shorthands for tests of validation: what was complained about, and where."""

from __future__ import annotations

import copy
from typing import Any

from windlass.api import defaults, validation
from windlass.api.resources import Resource


def complaints(
    resource: Resource, obj: dict[str, Any], old: dict[str, Any] | None = None, *, fill: bool = True
) -> dict[str, str]:
    """Field → message (the last where a field has several), after defaults."""
    obj, old = copy.deepcopy(obj), copy.deepcopy(old)
    obj.setdefault("metadata", {}).setdefault("name", "a")
    if old is not None:
        old.setdefault("metadata", {}).setdefault("name", "a")
    for one in (obj, old):
        if fill and one is not None:
            defaults.apply(resource, one)
    return {error.field: error.message for error in validation.validate(resource, obj, old)}
