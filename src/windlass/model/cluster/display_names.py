"""Display names of the engine's keys, as users know the objects.

If only one API has queues, ``kai/x`` is shown as ``x``. If both have, Volcano's queues
are shown as ``volcano/x``. A group of KAI or of Kubernetes' own API, and a pod without
a group, is shown by its own name.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from windlass.api.reasons import Explanation
from windlass.model.groups import podgroups
from windlass.model.queues import engine_queue

_GROUP = re.compile(
    rf"\b([a-z0-9-]+)/(?:{podgroups.KAI}|{podgroups.NATIVE}|{podgroups.COSCHEDULING}|{podgroups.KUEUE}|{podgroups.OWNER}"
    rf"|{podgroups.IMPLICIT})(?=[a-z0-9])"
)
_KAI_QUEUE = re.compile(rf"\b{engine_queue.KAI}(?=[A-Za-z0-9])")
_QUEUE = re.compile(r"\b([Qq]ueue) ([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?![a-z0-9/.-]*/)")


class DisplayNames:
    """Display names.

    ``both``: true if both APIs have queues.
    ``volcano``: names of Volcano's queues.
    """

    def __init__(self, both: bool = False, volcano: Collection[str] = ()) -> None:
        self._both = both
        self._volcano = volcano

    def text(self, text: str) -> str:
        """Return a text with display names."""
        if "/" in text:
            text = _GROUP.sub(r"\1/", text)
            if not self._both:
                text = _KAI_QUEUE.sub("", text)
        return _QUEUE.sub(self._named, text) if self._both else text

    def _named(self, match: re.Match[str]) -> str:
        noun, name = match.groups()
        return f"{noun} {engine_queue.VOLCANO}{name}" if name in self._volcano else match[0]

    def explanation(self, record: Explanation) -> Explanation:
        """Return the explanation with display names; the same object if nothing changes."""
        text = self.text
        renamed = replace(
            record,
            message=text(record.message),
            blockers=tuple(replace(b, detail=text(b.detail)) if b.detail else b for b in record.blockers),
            holders=tuple(map(podgroups.shown_key, record.holders)),
            ahead=tuple(map(podgroups.shown_key, record.ahead)),
            remedies=tuple(map(text, record.remedies)),
            extra={key: text(value) for key, value in record.extra.items()},
        )
        return record if renamed == record else renamed
