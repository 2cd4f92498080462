"""Place where pods of generation jobs run, and the way to their drivers."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from windlass.api.aigc_fields import IMAGE_VARIABLE
from windlass.api.annotations import HOST_IMAGE
from windlass.client.batch_driver import BatchDriver, direct, forwarded
from windlass.client.blocking import BlockingClient
from windlass.client.connection import Connection
from windlass.controllers.aigc.controller import DriverOf
from windlass.jobs.aigc.pods import IMAGE, BatchPlatform


@dataclass(frozen=True, slots=True)
class OwnMachine:
    """Machine of single-node mode.

    ``socket``: Unix socket of the API server. ``outputs``: folder for outputs of jobs that name none.
    ``models``: folder of models.
    """

    socket: str
    outputs: str
    models: str


def platform_of(machine: OwnMachine | None) -> BatchPlatform:
    """Return the facts of this place. ``machine``: ``None`` in a cluster."""
    if machine is not None:
        return BatchPlatform(
            python=sys.executable, image=HOST_IMAGE, outputs=machine.outputs, models=machine.models
        )
    return BatchPlatform(image=os.environ.get(IMAGE_VARIABLE) or IMAGE)


def driver_of(machine: OwnMachine | None) -> DriverOf:
    """Return how drivers are reached: through the API server in single-node mode, else by their address."""

    def by_address(_namespace: str, _pod: str, address: str, port: int, token: str) -> BatchDriver:
        return direct(address, port, token)

    if machine is None:
        return by_address
    connection = Connection(unix_socket=machine.socket)

    def through_server(namespace: str, pod: str, _address: str, port: int, token: str) -> BatchDriver:
        return forwarded(BlockingClient(connection), namespace, pod, port, token)

    return through_server
