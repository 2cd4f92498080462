"""Write of the status of Volcano's PodGroups, with or without a status subresource.

Volcano's own CustomResourceDefinition has no status subresource for them: the status is
written with the object, and ``…/status`` is not found. Windlass' definition has one,
and silently ignores a status that comes with the object. The cluster's answers show
which of the two it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api.errors import StatusError
from windlass.api.resources import POD_GROUPS
from windlass.client.client import Client

NOT_FOUND = 404


class PodGroupStatuses:
    """Writes PodGroup statuses where the cluster stores them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._subresource = True
        """True if the status is a subresource, as far as is known."""

    async def patch(self, name: str, namespace: str, change: Mapping[str, Any]) -> None:
        """Apply ``change``, a merge patch with a ``status``.

        Raises ``StatusError``, with code 404 if the group does not exist.
        """
        if self._subresource:
            try:
                await self._client.patch(POD_GROUPS, name, change, namespace, subresource="status")
                return
            except StatusError as error:
                if error.code != NOT_FOUND:
                    raise
        written = await self._client.patch(POD_GROUPS, name, change, namespace)
        self._subresource = not _has_status(written, change["status"])
        if self._subresource:
            await self._client.patch(POD_GROUPS, name, change, namespace, subresource="status")


def _has_status(written: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether the status that was sent has been stored.

    Only the types of conditions are compared: a definition may drop some of their
    fields.
    """
    return _comparable(written.get("status") or {}, wanted) == _comparable(wanted, wanted)


def _comparable(status: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    values = {field: status.get(field) for field in fields}
    if "conditions" in values:
        values["conditions"] = [condition["type"] for condition in values["conditions"] or ()]
    return values
