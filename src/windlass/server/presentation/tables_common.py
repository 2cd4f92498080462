"""Columns, rows and texts that many tables share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.kits import timestamps

NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"
Obj = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TableColumn:
    """Column of a table.

    ``wide``: shown with ``-o wide`` only (priority 1).
    """

    name: str
    type: str = "string"
    wide: bool = False
    description: str = ""
    format: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": int(self.wide),
        }


NAME = TableColumn(
    "Name", format="name", description="Name is unique among the objects of a kind in a namespace."
)
AGE = TableColumn("Age", description="The time since the object was made.")


@dataclass(frozen=True, slots=True)
class TableOf:
    """Table layout of one kind.

    ``cells(object, now)`` returns one value per column.
    """

    columns: tuple[TableColumn, ...]
    cells: Callable[[Obj, float], list[Any]]
    conditions: Callable[[Obj], list[dict[str, str]] | None] = field(default=lambda _: None)


def name_of(obj: Obj) -> str:
    return (obj.get("metadata") or {}).get("name", "")


def since(timestamp: Any, now: float) -> str:
    """Return the age of a timestamp; ``<unknown>`` if it is invalid."""
    if not isinstance(timestamp, str):
        return UNKNOWN
    try:
        return timestamps.age(now - timestamps.parse_rfc3339(timestamp))
    except ValueError:
        return UNKNOWN


def age_of(obj: Obj, now: float) -> str:
    return since((obj.get("metadata") or {}).get("creationTimestamp"), now)


def selector_text(labels: Mapping[str, str] | None) -> str:
    """Return labels as ``a=1,b=2``."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def shortened(values: Iterable[str], shown: int) -> str:
    """Return the first ``shown`` values, and the number of remaining ones."""
    items = list(values)
    if not items:
        return NONE
    text = ",".join(items[:shown])
    more = len(items) - shown
    return f"{text} + {more} more..." if more > 0 else text


def condition(obj: Obj, kind: str) -> Obj | None:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((item for item in conditions if item.get("type") == kind), None)
