"""Background tasks of one pod."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from windlass.node.lifecycle.state_machine import PodMachine

_log = logging.getLogger("windlass.node")


class PodTasks:
    """Background tasks of one pod. A failed task is logged with the history of ``machine``."""

    def __init__(self, machine: PodMachine) -> None:
        self._machine = machine
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("pod %s: %s", self._machine.key, self._machine.history(), exc_info=task.exception())

    async def close(self) -> None:
        """Cancel the tasks and wait for their end."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
