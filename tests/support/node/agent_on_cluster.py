"""Node agent on a real API server: ``python agent_on_cluster.py KUBECONFIG FOLDER NAME GPUS``.

The agent is the kubelet of one node. Its pods are real processes, and the platform's image is
the environment of this interpreter.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from windlass.app.children import until_signal
from windlass.client import kubeconfig
from windlass.client.client import Client
from windlass.client.http import HttpTransport
from windlass.jobs.aigc.pods import IMAGE
from windlass.kits.clock import SystemClock
from windlass.kits.state import StateFolder
from windlass.node.agent import NodeAgent
from windlass.node.options import AgentOptions, ImageEntry


async def main(config: str, folder: str, name: str, gpus: str) -> None:
    clock, rng = SystemClock(), random.Random(7)
    client = Client(HttpTransport(kubeconfig.load(config)), user_agent="kubelet", clock=clock, rng=rng)
    state = StateFolder(Path(folder))
    state.prepare(allow_network=True)
    images = {IMAGE: ImageEntry(venv=sys.prefix)}
    options = AgentOptions(node_name=name, gpus=gpus, images=images, models=False)
    agent = NodeAgent(client, state=state, clock=clock, rng=rng, options=options)

    async def stop(_: int) -> None:
        await agent.stop_pods(0.0)

    try:
        await until_signal(agent.run(), stop)
    finally:
        await client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
