"""Progress endpoint of the controllers in a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from windlass.api.errors import StatusError
from windlass.app.options import RemoteOptions
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.controllers.manager import ControllerManager
from windlass.controllers.progress.credentials import SECRET, shared_certificate
from windlass.controllers.progress.endpoint import ProgressEndpoint, ReportHandler
from windlass.jobs.progress_access import ProgressAccess
from windlass.kits.clock import Clock
from windlass.kits.serving_certificates import ServingCertificate
from windlass.kits.tasks import until_first
from windlass.observe import logs
from windlass.observe.endpoint import parse_address

RETRY_SECONDS = 5.0
FIRST_SECONDS = 5.0
"""Maximum time that the controllers wait for the endpoint at their start, in seconds."""
log = logs.get("controllers")


class ProgressService:
    """Endpoint of one instance. ``manager``: gets the access of pods to it."""

    def __init__(
        self, options: RemoteOptions, client: Client, manager: ControllerManager, clock: Clock
    ) -> None:
        self._options, self._client, self._manager, self._clock = options, client, manager, clock
        self._bind = str(options.values["controllers.progressBind"])
        self._served = asyncio.Event()

    async def beside(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run ``work`` and serve until it ends. Raises what either raises."""
        await until_first(self._serve(), self._after_first(work))

    async def _serve(self) -> None:
        """Serve until cancelled. Raises ``WindlassError`` if the address cannot be used."""
        if not self._bind:
            self._served.set()
            await asyncio.Event().wait()
        host, port = parse_address(self._bind)
        namespace = self._options.own_namespace
        address = str(self._options.values["controllers.progressAddress"])
        address = address or f"https://{SECRET}.{namespace}.svc:{port}"
        certificate = await self._certificate(urlsplit(address).hostname or "")
        endpoint = ProgressEndpoint(ReportHandler(self._client, self._clock))
        await endpoint.start(host, port, certificate)
        self._manager.progress_access = ProgressAccess(address, certificate.authority)
        self._served.set()
        try:
            await asyncio.Event().wait()
        finally:
            await endpoint.stop()

    async def _after_first(self, work: Callable[[], Awaitable[None]]) -> None:
        """Begin the work once the endpoint is served, or after a few seconds: jobs must not wait for it."""
        try:
            async with asyncio.timeout(FIRST_SECONDS):
                await self._served.wait()
        except TimeoutError:
            log.warning("jobs that start now cannot report progress: the endpoint is not served yet")
        await work()

    async def _certificate(self, host: str) -> ServingCertificate:
        while True:
            try:
                return await shared_certificate(self._client, self._options.own_namespace, host, self._clock)
            except (StatusError, Unreachable) as error:
                log.warning("no certificate for the progress endpoint, retrying", why=str(error))
            await self._clock.sleep(RETRY_SECONDS)
