"""Rows of storage classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.views.storage import DEFAULT_CLASS
from windlass.server.presentation.tables_common import AGE, NAME, TableColumn, TableOf, age_of, name_of


def _storage_class(obj: Mapping[str, Any], now: float) -> list[Any]:
    default = ((obj.get("metadata") or {}).get("annotations") or {}).get(DEFAULT_CLASS) == "true"
    return [
        f"{name_of(obj)} (default)" if default else name_of(obj),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        bool(obj.get("allowVolumeExpansion")),
        age_of(obj, now),
    ]


STORAGE_CLASSES = TableOf(
    (
        NAME,
        TableColumn("Provisioner"),
        TableColumn("ReclaimPolicy"),
        TableColumn("VolumeBindingMode"),
        TableColumn("AllowVolumeExpansion", "boolean"),
        AGE,
    ),
    _storage_class,
)
