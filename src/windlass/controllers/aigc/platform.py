"""Place where pods of generation jobs run, and the way to their drivers."""

from __future__ import annotations

import os
import sys
from typing import Any

from windlass.api.aigc_fields import IMAGE_VARIABLE
from windlass.api.annotations import HOST_IMAGE
from windlass.client.batch_driver import BatchDriver, direct, forwarded
from windlass.client.blocking import BlockingClient
from windlass.client.client import Client
from windlass.controllers.aigc.controller import DriverOf
from windlass.jobs.aigc.pods import IMAGE, BatchPlatform


def platform_of(embedded: bool, outputs: str) -> BatchPlatform:
    """Return the facts of this place. ``outputs``: folder for outputs of jobs that name none."""
    if embedded:
        return BatchPlatform(python=sys.executable, image=HOST_IMAGE, outputs=outputs)
    return BatchPlatform(image=os.environ.get(IMAGE_VARIABLE) or IMAGE)


def driver_of(client: Client, embedded: bool) -> DriverOf:
    """Return how drivers are reached: through the API server in single-node mode, else by their address."""

    def by_address(_namespace: str, _pod: str, address: str, port: int, token: str) -> BatchDriver:
        return direct(address, port, token)

    def through_server(namespace: str, pod: str, _address: str, port: int, token: str) -> BatchDriver:
        transport: Any = client.transport
        return forwarded(BlockingClient(transport.connection), namespace, pod, port, token)

    return through_server if embedded else by_address
