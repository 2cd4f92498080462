"""Queue that an object names by labels and annotations, as its controller or the scheduler reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api import annotations as names

Place = tuple[str, str]
"""``labels`` or ``annotations``, and the key."""
_ANNOTATION: Place = ("annotations", names.QUEUE_NAME_VOLCANO)
_KAI: Place = ("labels", names.QUEUE_NAME_KAI)
_LABEL: Place = ("labels", names.QUEUE_NAME_LABEL)
POD_PLACES = (_ANNOTATION, _KAI, _LABEL)
SET_PLACES = (_ANNOTATION, _KAI)
RAY_PLACES = (_LABEL, _ANNOTATION, _KAI)
GROUP_PLACES = (_ANNOTATION,)


def queue_named(metadata: Mapping[str, Any], places: Sequence[Place] = POD_PLACES) -> str:
    """Return the queue at the first of the places that has one; ``""`` for none."""
    return next((found for part, key in places if (found := (metadata.get(part) or {}).get(key))), "")
