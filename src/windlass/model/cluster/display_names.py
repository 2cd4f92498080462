"""Display names of the engine's keys, as users know the objects.

If only one API has queues, ``kai/x`` is shown as ``x``. If both have, Volcano's queues
are shown as ``volcano/x``. A group of KAI or of Kubernetes' own API, and a pod without
a group, is shown by its own name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from windlass.api import views
from windlass.api.reasons import Explanation
from windlass.model.groups import podgroups
from windlass.model.queues import engine_queue

_GROUP = re.compile(
    rf"\b([a-z0-9-]+)/(?:{podgroups.KAI}|{podgroups.NATIVE}|{podgroups.COSCHEDULING}|{podgroups.KUEUE}|{podgroups.OWNER}"
    rf"|{podgroups.IMPLICIT})(?=[a-z0-9])"
)
_CREATED = re.compile(r"\b[a-z0-9-]+/podgroup-[a-zA-Z0-9-]+")
"""PodGroup that Volcano's or Windlass' controller created for a pod without one."""
_KAI_QUEUE = re.compile(rf"\b{engine_queue.KAI}(?=[A-Za-z0-9])")
_QUEUE = re.compile(r"\b([Qq]ueue) ([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?![a-z0-9/.-]*/)")


class DisplayNames:
    """Display names.

    ``both``: true if both APIs have queues.
    ``volcano``: names of Volcano's queues.
    ``members``: returns the pods of a group, by its key.
    """

    def __init__(
        self,
        both: bool = False,
        volcano: Collection[str] = (),
        members: Callable[[str], Iterable[views.Pod]] = lambda _: (),
    ) -> None:
        self._both = both
        self._volcano = volcano
        self._members = members

    def text(self, text: str) -> str:
        """Return a text with display names."""
        if "/" in text:
            text = _GROUP.sub(r"\1/", text)
            if "/podgroup-" in text:
                text = _CREATED.sub(lambda match: self._group(match[0]), text)
            if not self._both:
                text = _KAI_QUEUE.sub("", text)
        return _QUEUE.sub(self._named, text) if self._both else text

    def _named(self, match: re.Match[str]) -> str:
        noun, name = match.groups()
        return f"{noun} {engine_queue.VOLCANO}{name}" if name in self._volcano else match[0]

    def _group(self, key: str) -> str:
        """Return the name of a group. One that was created for a pod has the pod's or its controller's."""
        name = key.partition("/")[2]
        if name.startswith("podgroup-"):
            for pod in self._members(key):
                owner = pod.controller
                if name == f"podgroup-{owner.uid if owner is not None else pod.uid}":
                    return f"{pod.namespace}/{owner.name if owner is not None else pod.name}"
        return podgroups.shown_key(key)

    def explanation(self, record: Explanation) -> Explanation:
        """Return the explanation with display names; the same object if nothing changes."""
        text = self.text
        renamed = replace(
            record,
            message=text(record.message),
            blockers=tuple(replace(b, detail=text(b.detail)) if b.detail else b for b in record.blockers),
            holders=tuple(map(self._group, record.holders)),
            ahead=tuple(map(self._group, record.ahead)),
            remedies=tuple(map(text, record.remedies)),
            extra={key: text(value) for key, value in record.extra.items()},
        )
        return record if renamed == record else renamed
