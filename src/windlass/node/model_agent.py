"""Keeper of the models on one node of a cluster: ``python -m windlass.node.model_agent``.

It does for a kubelet's node what the node agent does in single-node mode: it fetches what
ModelCaches of its node ask for, and labels the node. A DaemonSet of the chart runs it.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from windlass.api.annotations import MODEL_AGENT
from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import NODES
from windlass.client import kubeconfig
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.http import HttpTransport
from windlass.client.informers import SharedInformers
from windlass.client.recorder import EventRecorder
from windlass.kits import rng as chance
from windlass.kits.clock import SystemClock
from windlass.node.models import Models
from windlass.observe import logs

RETRY_SECONDS = 5.0
"""Interval between two attempts to label the node (seconds)."""
log = logs.get("models")


async def serve(client: Client, node: str, directory: Path) -> None:
    """Keep the models of a node until cancelled."""
    clock, rng = SystemClock(), chance.system()
    informers = SharedInformers(client, clock, rng)
    recorder = EventRecorder(client, "windlass-models", clock, rng, host=node)
    directory.mkdir(parents=True, exist_ok=True)
    models = Models(client, informers, recorder, clock, rng, directory, serves=lambda name: name == node)
    async with asyncio.TaskGroup() as group:
        group.create_task(informers.run(), name="informers")
        group.create_task(recorder.run(), name="events")
        group.create_task(models.run(), name="models")
        group.create_task(_announce(client, clock, node), name="label")


async def _announce(client: Client, clock: SystemClock, node: str) -> None:
    """Label the node, so that the controllers ask it for models."""
    while True:
        try:
            await client.patch(NODES, node, {"metadata": {"labels": {MODEL_AGENT: "true"}}})
            return
        except (StatusError, Unreachable) as error:
            log.warning("the node cannot be labelled", node=node, why=str(error))
            await clock.sleep(RETRY_SECONDS)


async def _main(options: argparse.Namespace) -> None:
    connection = kubeconfig.load(options.kubeconfig or None)
    client = Client(
        HttpTransport(connection), user_agent="windlass-models", clock=SystemClock(), rng=chance.system()
    )
    work = asyncio.ensure_future(serve(client, options.node_name, Path(options.directory)))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        pass
    finally:
        await client.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="windlass.node.model_agent")
    parser.add_argument("--node-name", required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--kubeconfig", default="")
    logs.configure()
    try:
        asyncio.run(_main(parser.parse_args()))
    except WindlassError as error:
        print(f"error[{error.code}]: {error.message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
