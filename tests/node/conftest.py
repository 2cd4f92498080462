from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from node_agent_server import NodeBox, serving


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[NodeBox]:
    """A server in memory with a node agent that has no GPUs."""
    async with serving(tmp_path) as running:
        yield running
