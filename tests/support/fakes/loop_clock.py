"""The clock of an event loop, put forward by a test: what waits for a later hour comes due, and nobody has waited."""

from __future__ import annotations

import asyncio


class LoopClock:
    """Of the loop that runs. Hours put forward are far more than a busy machine lets a test wait."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._ahead = 0.0
        real = loop.time
        loop.time = lambda: real() + self._ahead  # type: ignore[method-assign]

    async def forward(self, seconds: float) -> None:
        """Then whoever is due has his turn, and what he sent is read."""
        self._ahead += seconds
        for _ in range(20):
            await asyncio.sleep(0)
