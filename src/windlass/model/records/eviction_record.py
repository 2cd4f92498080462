"""Which pods of a gang have to go together, as text on its PodGroup, written before the first of them is evicted.

Whoever schedules after a crash finds there what was begun, and sees it to its end: the rest of a gang of which some
went would hold its room for nothing. The text is JSON, ``{"at": "2026-01-01T12:00:00Z", "action": "preempt", "for":
"ns/claimer", "pods": {"g-0": "0a1b2c3d"}}``, pods with the first characters of their uids, which tell whether it still
speaks of those that are there. Long texts are deflated. Pure.
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
    """``at``: when it was decided, Unix seconds. ``action``, ``claimer``: as of an eviction. ``pods``: name → uid, or
    how it begins."""

    at: float
    action: str
    claimer: str
    pods: Mapping[str, str]

    def is_of(self, pod: str, uid: str) -> bool:
        """Return whether this incarnation of a pod is to go."""
        known = self.pods.get(pod)
        return bool(known) and known is not None and uid.startswith(known)


def encode(departure: EvictionRecord) -> str | None:
    """The text; ``None`` for a gang so large that no annotation holds it."""
    pods = {name: uid[:_UID] for name, uid in departure.pods.items()}
    return packed_text.pack(
        msgspec.json.encode(_Text(rfc3339(departure.at), departure.action, pods, departure.claimer))
    )


def decode(text: str) -> EvictionRecord | None:
    """What a text says; ``None`` for one that is none (somebody edited it)."""
    try:
        found = msgspec.json.decode(packed_text.unpack(text), type=_Text)
        return EvictionRecord(parse_rfc3339(found.at), found.action, found.claimer, found.pods)
    except ValueError:
        return None
