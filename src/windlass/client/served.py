"""Check whether a server serves a kind."""

from __future__ import annotations

from windlass.api.errors import StatusError
from windlass.api.resources import Resource
from windlass.client.client import Client
from windlass.client.errors import Unreachable


async def is_served(client: Client, resource: Resource) -> bool | None:
    """Return whether the server serves a kind to this user, ``None`` if it does not say."""
    try:
        await client.list(resource, limit=1)
    except StatusError as error:
        return False if error.code in (403, 404) else None
    except Unreachable:
        return None
    return True
