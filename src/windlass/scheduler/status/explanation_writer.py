"""Annotations that the scheduler writes on groups and pods: explanation, attained service."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from windlass.api import annotations as names
from windlass.api import resources
from windlass.api.reasons import Explanation
from windlass.client.client import Client
from windlass.model.records import attained_service
from windlass.observe.scheduling import SchedulerMetrics
from windlass.spi.objects import AttainedService

Annotations = Mapping[str, str | None]
"""Changes of annotations: ``None`` removes one."""
NO_CHANGES: Annotations = {}
COUNTS_SECONDS = 1.0
"""Interval in seconds between writes of mere counts."""
OWN_WRITE_SECONDS = 10.0
"""Maximum time in seconds until the informers show a written status.

It is not repeated before.
"""


def encode_explanation(explanation: Explanation | None) -> str | None:
    """Return the explanation as JSON text. Equal explanations give equal texts."""
    if explanation is None:
        return None
    return msgspec.json.encode(explanation.as_dict(), order="sorted").decode()


class ExplanationWriter:
    """Writes explanations where they differ from what an object has.

    ``attained(group)`` returns the attained service of a group that shares time.
    """

    def __init__(
        self,
        client: Client,
        metrics: SchedulerMetrics,
        attained: Callable[[str], AttainedService | None],
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._attained = attained

    def attained_service(self, group: str, annotations: Mapping[str, str]) -> Annotations:
        """Return the annotations for attained service where the object has other values."""
        attained = self._attained(group)
        if attained is None:
            return NO_CHANGES
        wanted = attained_service.written(attained)
        same = all(annotations.get(name) == wanted[name] for name in (names.ATTAINED, names.SUSPENSIONS))
        return NO_CHANGES if same else wanted

    async def write(
        self,
        resource: resources.Resource,
        namespace: str,
        name: str,
        annotations: Mapping[str, str],
        text: str | None,
        changes: Annotations = NO_CHANGES,
        along: Annotations = NO_CHANGES,
    ) -> None:
        """Write the explanation ``text`` if it differs from that in ``annotations``.

        ``changes`` are further annotations to write. ``along`` is written only if there
        is anything else to write.
        """
        patch = dict(changes)
        if annotations.get(names.EXPLANATION) != text:
            patch[names.EXPLANATION] = text
            self._metrics.writes.labels("explanation").inc()
        if patch:
            patch.update(along)
            await self._client.patch(resource, name, {"metadata": {"annotations": patch}}, namespace)
