"""Node agent of a further machine of a box: ``python second_agent.py SOCKET FOLDER NAME GPUS``.

``SOCKET``: socket of the box's server. The agent and its pods are real processes.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from windlass.client.client import Client
from windlass.client.connection import Connection
from windlass.client.http import HttpTransport
from windlass.kits.clock import SystemClock
from windlass.kits.state import StateFolder
from windlass.node.agent import NodeAgent
from windlass.node.options import AgentOptions


async def main(socket: str, folder: str, name: str, gpus: str) -> None:
    clock, rng = SystemClock(), random.Random(7)
    client = Client(
        HttpTransport(Connection(unix_socket=socket)), user_agent="second-agent", clock=clock, rng=rng
    )
    state = StateFolder(Path(folder))
    state.node.mkdir(parents=True, exist_ok=True)
    agent = NodeAgent(
        client, state=state, clock=clock, rng=rng, options=AgentOptions(node_name=name, gpus=gpus)
    )
    await agent.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
