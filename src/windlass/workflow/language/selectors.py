"""Conditions of ``resource`` templates: label selectors over the fields of an object."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windlass.workflow.language import jsonpath
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.language.functions import text_of

_REQUIREMENT = re.compile(
    r"\s*(?P<path>!?[^\s=!<>,()]+)\s*(?:(?P<operator>==|=|!=|>|<)\s*(?P<value>[^,]*)"
    r"|(?P<set>in|notin)\s*\((?P<values>[^)]*)\))?\s*(?:,|$)"
)


def holds(selector: str, found: Mapping[str, Any]) -> bool:
    """Return whether an object meets all requirements, such as ``status.succeeded > 3``.

    ``$condition=TYPE`` holds where the condition of that type is true. Alternatives are
    joined by ``||``.

    Raises :class:`EvaluationError` for a selector that is not understood.
    """
    if "||" in selector:
        return any(holds(part.strip(), found) for part in selector.split("||"))
    if selector.startswith("$condition="):
        wanted = selector.removeprefix("$condition=")
        conditions = (found.get("status") or {}).get("conditions") or ()
        return any(one.get("type") == wanted and str(one.get("status")) == "True" for one in conditions)
    at = 0
    while at < len(selector):
        match = _REQUIREMENT.match(selector, at)
        if match is None or match.end() == at:
            raise EvaluationError(f"condition {selector!r} is not understood from {selector[at:]!r} on")
        if not _meets(match, found):
            return False
        at = match.end()
    return True


def _meets(match: re.Match[str], found: Mapping[str, Any]) -> bool:
    path, operator = match["path"], match["operator"]
    absent = path.startswith("!")
    values = jsonpath.find(found, _json_path(path.lstrip("!")))
    value = text_of(values[0]) if values else None
    if match["set"]:
        options = [option.strip() for option in match["values"].split(",")]
        return (value in options) == (match["set"] == "in")
    if operator is None:
        return (value is None) == absent
    wanted = match["value"].strip()
    if operator == "!=":
        return value != wanted
    if operator in ("=", "=="):
        return value == wanted
    try:
        number, limit = float(value or "nan"), float(wanted)
    except ValueError:
        return False
    return number > limit if operator == ">" else number < limit


def _json_path(path: str) -> str:
    """Return a path of gjson as JSONPath: indices are parts of their own there."""
    return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", path)
