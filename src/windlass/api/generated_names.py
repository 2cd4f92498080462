"""Names that controllers make of the names that people gave."""

from __future__ import annotations

import re

_UID = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def without_uid(name: str) -> str:
    """``train`` for ``train-<uid>``: the PodGroup of a Volcano Job is named after the job and its uid."""
    return _UID.sub("", name)
