"""Place where pods of generation jobs run, and the way to their drivers."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from windlass.api.annotations import HOST_IMAGE
from windlass.api.fields.aigc import IMAGE_VARIABLE
from windlass.api.fields.model_cache import MODELS_FOLDER
from windlass.client.batch_driver import BatchDriver, direct, forwarded
from windlass.client.blocking import BlockingClient
from windlass.client.connection import Connection
from windlass.controllers.aigc.controller import DriverOf
from windlass.jobs.aigc.pods import IMAGE, BatchPlatform
from windlass.jobs.aigc.storage import OutputsClaim

IMAGE_USER = 65532
"""User and group of Windlass' image."""


@dataclass(frozen=True, slots=True)
class OwnMachine:
    """Machine of single-node mode.

    ``socket``: Unix socket of the API server. ``outputs``: folder for outputs of jobs that name none.
    ``models``: folder of models.
    """

    socket: str
    outputs: str
    models: str


@dataclass(frozen=True, slots=True)
class ClusterOutputs:
    """Settings of a cluster for ledgers and outputs of jobs that name no place for them.

    ``folder``: folder of the nodes. ``claim``: size of a claim for each job, which precedes the folder.
    ``storage_class``: class of these claims. All empty: outputs are lost with the driver's pod.
    ``models``: folder of the nodes for models.
    """

    folder: str = ""
    claim: str = ""
    storage_class: str = ""
    models: str = MODELS_FOLDER


def platform_of(machine: OwnMachine | None, outputs: ClusterOutputs | None) -> BatchPlatform:
    """Return the facts of this place. ``machine``: ``None`` in a cluster."""
    if machine is not None:
        return BatchPlatform(
            python=sys.executable, image=HOST_IMAGE, outputs=machine.outputs, models=machine.models
        )
    outputs = outputs or ClusterOutputs()
    claim = OutputsClaim(outputs.claim, outputs.storage_class) if outputs.claim else None
    return BatchPlatform(
        image=os.environ.get(IMAGE_VARIABLE) or IMAGE,
        outputs=outputs.folder,
        models=outputs.models,
        claim=claim,
        group=IMAGE_USER,
    )


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
