"""Writes statuses of Volcano's PodGroups where the cluster keeps them.

Volcano's own CustomResourceDefinition has no subresource ``status`` for them: the status is written with the object,
and ``…/status`` is not found. Ours has one, and there a status that comes with the object is left out without a word.
Which of the two a cluster has is learned from its answers, and again if it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api.errors import StatusError
from windlass.api.resources import POD_GROUPS
from windlass.client.client import Client

NOT_FOUND = 404


class PodGroupStatuses:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._apart = True
        """Whether the status is a subresource, as far as is known."""

    async def patch(self, name: str, namespace: str, change: Mapping[str, Any]) -> None:
        """``change``: a merge patch with a ``status``. Raises ``StatusError``; 404 where the group is gone."""
        if self._apart:
            try:
                await self._client.patch(POD_GROUPS, name, change, namespace, subresource="status")
                return
            except StatusError as error:
                if error.code != NOT_FOUND:
                    raise
        written = await self._client.patch(POD_GROUPS, name, change, namespace)
        self._apart = not _shown(written, change["status"])
        if self._apart:
            await self._client.patch(POD_GROUPS, name, change, namespace, subresource="status")


def _shown(written: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a status that was sent is there. Of conditions only the kinds are compared: a definition may leave out
    fields of theirs."""
    return _gist(written.get("status") or {}, wanted) == _gist(wanted, wanted)


def _gist(status: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    found = {field: status.get(field) for field in fields}
    if "conditions" in found:
        found["conditions"] = [condition["type"] for condition in found["conditions"] or ()]
    return found
