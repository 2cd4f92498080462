"""The engine's keys in texts → the names that people use.

Where only one API has queues, ``kai/x`` is ``x``; where both have, Volcano's are ``volcano/x``. A group of
KAI or of Kubernetes' own API, and a pod without one, is called by its own name.
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
    """``both``: whether both APIs have queues; ``volcano``: the names of Volcano's."""

    def __init__(self, both: bool = False, volcano: Collection[str] = ()) -> None:
        self._both = both
        self._volcano = volcano

    def text(self, text: str) -> str:
        """A sentence with the names that people use."""
        if "/" in text:
            text = _GROUP.sub(r"\1/", text)
            if not self._both:
                text = _KAI_QUEUE.sub("", text)
        return _QUEUE.sub(self._named, text) if self._both else text

    def _named(self, match: re.Match[str]) -> str:
        word, name = match.groups()
        return f"{word} {engine_queue.VOLCANO}{name}" if name in self._volcano else match[0]

    def explanation(self, told: Explanation) -> Explanation:
        """The same record in these names; the very same object where nothing changes."""
        text = self.text
        renamed = replace(
            told,
            message=text(told.message),
            blockers=tuple(replace(b, detail=text(b.detail)) if b.detail else b for b in told.blockers),
            holders=tuple(map(podgroups.shown_key, told.holders)),
            ahead=tuple(map(podgroups.shown_key, told.ahead)),
            remedies=tuple(map(text, told.remedies)),
            extra={key: text(value) for key, value in told.extra.items()},
        )
        return told if renamed == told else renamed
