"""Columns, rows and the words that many tables share."""

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
    """``wide``: shown with ``-o wide`` only (priority 1)."""

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
    """How objects of one kind become rows. ``cells(object, now)`` gives one value per column."""

    columns: tuple[TableColumn, ...]
    cells: Callable[[Obj, float], list[Any]]
    conditions: Callable[[Obj], list[dict[str, str]] | None] = field(default=lambda _: None)


def name_of(obj: Obj) -> str:
    return (obj.get("metadata") or {}).get("name", "")


def since(moment: Any, now: float) -> str:
    """The age of a time stamp; ``<unknown>`` for what is none."""
    if not isinstance(moment, str):
        return UNKNOWN
    try:
        return timestamps.age(now - timestamps.parse_rfc3339(moment))
    except ValueError:
        return UNKNOWN


def age_of(obj: Obj, now: float) -> str:
    return since((obj.get("metadata") or {}).get("creationTimestamp"), now)


def selector_text(labels: Mapping[str, str] | None) -> str:
    """``a=1,b=2``."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def shortened(values: Iterable[str], shown: int) -> str:
    """The first ``shown`` of them, and how many more there are."""
    found = list(values)
    if not found:
        return NONE
    text = ",".join(found[:shown])
    more = len(found) - shown
    return f"{text} + {more} more..." if more > 0 else text


def condition(obj: Obj, kind: str) -> Obj | None:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), None)
