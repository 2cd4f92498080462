"""A user's recommender of worker counts, in a process of its own with a time limit."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from asyncio.subprocess import PIPE, Process
from typing import Any

import msgspec

CALL_SECONDS = 3.0
"""Timeout of one call of the class in seconds. The controller waits 5 s for an answer."""
START_SECONDS = 20.0
"""Timeout of the start of the process in seconds, with all that the class imports."""
MAX_ANSWER_BYTES = 65_536
_MODULE = "windlass.scaling.runner"
_log = logging.getLogger(__name__)


class ScalerRequest(msgspec.Struct, frozen=True):
    """Call of a class. ``plugin``: where it is (:mod:`windlass.scaling.runner`).

    ``trial``: call a new object of the class that was called last, so that the call has no effect.
    """

    metrics: dict[str, float]
    replicas: dict[str, int]
    plugin: dict[str, str] = {}
    trial: bool = False


class UserScaler:
    """Process that runs the class. It is started again for another class, and after a failure.

    Loading goes on in the background: a call in the meantime is answered with ``loading``.
    """

    def __init__(self, call_seconds: float = CALL_SECONDS, start_seconds: float = START_SECONDS) -> None:
        self._call_seconds, self._start_seconds = call_seconds, start_seconds
        self._process: Process | None = None
        self._plugin: dict[str, str] = {}
        self._loading: asyncio.Task[dict[str, Any]] | None = None
        self._lock = asyncio.Lock()

    async def recommend(self, request: ScalerRequest) -> dict[str, Any]:
        """Return the recommendation as JSON, ``{"error": …}`` or ``{"loading": true}``."""
        if request.trial:
            return await self._try(request)
        async with self._lock:
            if self._plugin != request.plugin or self._process is None:
                await self._start(request.plugin)
            assert self._loading is not None
            done, _ = await asyncio.wait({self._loading}, timeout=self._call_seconds)
            if not done:
                return {"loading": True}
            loaded = self._loading.result()
            if "error" in loaded:
                await self.close()
                return loaded
            call = {"metrics": request.metrics, "replicas": request.replicas}
            answer = await self._ask(call, self._call_seconds)
            if "died" in answer:
                await self.close()
                return {"error": answer["died"]}
            return answer

    async def _try(self, request: ScalerRequest) -> dict[str, Any]:
        if not self._plugin:
            return {"error": "no class has been called yet"}
        other = UserScaler(self._call_seconds, self._start_seconds)
        try:
            return await other.recommend(ScalerRequest(request.metrics, request.replicas, self._plugin))
        finally:
            await other.close()

    async def _start(self, plugin: dict[str, str]) -> None:
        await self.close()
        self._plugin = plugin
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _MODULE, stdin=PIPE, stdout=PIPE, limit=MAX_ANSWER_BYTES
        )
        self._loading = asyncio.create_task(self._load(plugin))

    async def _load(self, plugin: dict[str, str]) -> dict[str, Any]:
        answer = await self._ask(plugin, self._start_seconds)
        return {"error": answer["died"]} if "died" in answer else answer

    async def _ask(self, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            line = await asyncio.wait_for(process.stdout.readline(), seconds)
            return json.loads(line) if line else {"died": await self._end_of(process)}
        except TimeoutError:
            return {"died": f"the class did not answer within {seconds:g} s"}
        except (OSError, ValueError) as error:
            return {"died": f"the process of the class ended: {error}"}

    async def _end_of(self, process: Process) -> str:
        try:
            code = await asyncio.wait_for(process.wait(), 1.0)
        except TimeoutError:
            return "the process of the class closed its output"
        return f"the process of the class ended with code {code}"

    async def close(self) -> None:
        """End the process."""
        process, self._process, self._plugin = self._process, None, {}
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
            self._loading = None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
