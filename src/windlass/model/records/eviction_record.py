"""Pods of a gang that are evicted together, as text on its PodGroup.

It is written before the first eviction. After a crash the next scheduler completes the
evictions: the rest of a gang that has lost members would hold its resources for
nothing.

The text is JSON, ``{"at": "2026-01-01T12:00:00Z", "action": "preempt", "for":
"ns/claimer", "pods": {"g-0": "0a1b2c3d"}}``. Pods have the first characters of their
uids, which tell whether the record still refers to the existing pods. Long texts are
deflated. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from windlass.kits.timestamps import parse_rfc3339, rfc3339
from windlass.model.records import packed_text

_UID = 8


class _Text(msgspec.Struct, frozen=True, rename={"claimer": "for"}):
    at: str
    action: str
    pods: dict[str, str]
    claimer: str = ""


@dataclass(frozen=True, slots=True)
class EvictionRecord:
    """Decided evictions.

    ``at``: time of the decision, Unix seconds.
    ``action``, ``claimer``: as in an eviction.
    ``pods``: name → uid, or its first characters.
    """

    at: float
    action: str
    claimer: str
    pods: Mapping[str, str]

    def is_of(self, pod: str, uid: str) -> bool:
        """Return whether this incarnation of a pod is to be evicted."""
        known = self.pods.get(pod)
        return bool(known) and known is not None and uid.startswith(known)


def encode(record: EvictionRecord) -> str | None:
    """Return the text; ``None`` for a gang too large for an annotation."""
    pods = {name: uid[:_UID] for name, uid in record.pods.items()}
    return packed_text.pack(
        msgspec.json.encode(_Text(rfc3339(record.at), record.action, pods, record.claimer))
    )


def decode(text: str) -> EvictionRecord | None:
    """Return the record in a text; ``None`` for an invalid text (a user edited it)."""
    try:
        record = msgspec.json.decode(packed_text.unpack(text), type=_Text)
        return EvictionRecord(parse_rfc3339(record.at), record.action, record.claimer, record.pods)
    except ValueError:
        return None
