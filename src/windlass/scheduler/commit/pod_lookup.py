"""Look-up of a single pod on the API server."""

from __future__ import annotations

from windlass.api import resources, views
from windlass.api.errors import StatusError
from windlass.client.client import Client
from windlass.client.responses import is_missing


class PodLookup:
    """Returns pods as the API server has them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __call__(self, key: str) -> views.Pod | None:
        """Return a pod by its key, ``None`` if it does not exist.

        Raises ``StatusError`` and ``Unreachable``.
        """
        namespace, _, name = key.partition("/")
        try:
            pod = await self._client.get(resources.PODS, name, namespace)
        except StatusError as error:
            if is_missing(error):
                return None
            raise
        return views.decode_pod(views.encode(pod))
