"""Methods of a job for an event loop: ``await job.aio.wait()``, ``async for line in job.aio.logs()``.

Each method runs a step of its blocking twin in a thread, so nothing is implemented twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windlass.sdk.job_view import JobView

_END = object()


class AsyncJob:
    """Asynchronous view of a job. A task that is cancelled leaves no thread that waits."""

    def __init__(self, view: JobView) -> None:
        self._view = view

    async def state(self) -> str:
        """Return the state, as in ``windlass ps``."""
        return await asyncio.to_thread(lambda: self._view.state)

    async def reason(self) -> str:
        """Return the cause of the wait or of the end."""
        return await asyncio.to_thread(lambda: self._view.reason)

    async def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of the job. Raises as its blocking twin."""
        async for pause in _stepped(self._view.waiting(timeout)):
            await asyncio.sleep(pause)

    async def cancel(self) -> Any:
        """End the job; return what its blocking twin does."""
        return await asyncio.to_thread(self._view.cancel)

    def logs(self, rank: int = 0, *, follow: bool = True) -> AsyncIterator[str]:
        """Yield the lines that a rank prints, without line ends."""
        return _stepped(self._view.logs(rank, follow=follow))


async def _stepped(items: Iterator[Any]) -> AsyncIterator[Any]:
    """Yield the items of a blocking iterator."""
    while (item := await asyncio.to_thread(next, items, _END)) is not _END:
        yield item
