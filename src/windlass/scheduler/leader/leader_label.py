"""Label of the leader's pod, which the bind guard's Service selects."""

from __future__ import annotations

import asyncio

from windlass.api import annotations as names
from windlass.api import resources
from windlass.api.errors import StatusError
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.kits.backoff import Backoff
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.observe import logs

log = logs.get("scheduler")


class LeaderLabel:
    """Label of the leader's pod, by which the API server's Service selects it.

    ``pod`` is empty if the process runs in no pod.
    """

    def __init__(self, client: Client, pod: str, namespace: str, *, clock: Clock, rng: Random) -> None:
        self._client = client
        self._pod = pod
        self._namespace = namespace
        self._clock = clock
        self._rng = rng
        self._writing = asyncio.Lock()
        self._leads: bool | None = None
        """State requested last."""

    async def write(self, *, leads: bool) -> None:
        """Return once the label is written, replaced by a later request, or the pod is missing.

        Never raises. Until the label is written, the cluster runs without the guard.
        """
        self._leads = leads
        if not self._pod:
            return
        backoff, logged = Backoff(self._rng, 0.2, 2.0, 30.0, 0.5), ""
        async with self._writing:  # one after the other, so that the last request stays
            while self._leads is leads:
                try:
                    await self._patch(leads)
                    return
                except (StatusError, Unreachable) as error:
                    if error.message != logged:
                        logged = error.message
                        log.warning(
                            "pod not labeled as leader: the API server does not ask the bind guard",
                            pod=self._pod,
                            why=logged,
                        )
                    if isinstance(error, StatusError) and error.code == 404:
                        return
                await self._clock.sleep(backoff.next())

    async def _patch(self, leads: bool) -> None:
        patch = {"metadata": {"labels": names.both(names.LEADER, "true" if leads else None)}}
        await self._client.patch(resources.PODS, self._pod, patch, self._namespace)
