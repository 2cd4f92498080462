"""Models of this machine: fetches what ModelCaches ask for and removes what they no longer ask for.

Simulated nodes share the folder of the machine, so a model is fetched once for all.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from windlass.api.errors import StatusError
from windlass.api.fields.model_cache import (
    ABSENT,
    CORRUPT,
    FETCHING,
    FETCHING_VALUE,
    FINALIZER,
    READY,
    READY_LABEL,
    READY_VALUE,
)
from windlass.api.resources import MODEL_CACHES, NODES
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.event_correlator import ObjectRef
from windlass.client.informers import SharedInformers
from windlass.client.recorder import EventRecorder
from windlass.kits.backoff import Backoff
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.kits.tasks import sleep_or_wake
from windlass.kits.timestamps import rfc3339
from windlass.modelcache.fetch import Fetched, fetch
from windlass.modelcache.folder import CacheFolder, ModelCacheError, ModelReference
from windlass.node.runtime.threads import in_thread

_log = logging.getLogger("windlass.node")
Json = dict[str, Any]
Fetch = Callable[..., Fetched]

REPORT_SECONDS = 1.0
"""Seconds between two reports of a fetch."""
RETRIED = ("Unreachable", "NoRoom", "NoRange")
"""Reasons after which a fetch is tried again."""
LOOK_SECONDS = 15.0
"""Maximum seconds between two looks at all ModelCaches: a node that is served may appear later."""
AT_ONCE = 2
"""Most fetches at a time."""


class Models:
    """Keeper of the models below ``directory``."""

    def __init__(
        self,
        client: Client,
        informers: SharedInformers,
        recorder: EventRecorder,
        clock: Clock,
        rng: Random,
        directory: Path,
        fetch: Fetch = fetch,
        serves: Callable[[str], bool] = lambda node: True,
    ) -> None:
        """``serves``: whether the models of a node lie here; by default those of all nodes do."""
        self._serves = serves
        self._client, self._recorder, self._clock, self._rng = client, recorder, clock, rng
        self._directory = directory
        self._fetch = fetch
        self._caches = informers.informer(MODEL_CACHES)
        self._changed = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._stopped = threading.Event()
        self._caches.add_handler(self._touch, lambda _, new: self._touch(new), self._touch)

    def _touch(self, _: object) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Fetch and remove models until cancelled."""
        await self._caches.wait_synced()
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    for uid in [uid for uid, task in self._tasks.items() if task.done()]:
                        del self._tasks[uid]
                    for cache in list(self._caches.items.values()):
                        self._begin(group, cache)
                    self._changed.clear()
                    await sleep_or_wake(self._clock, LOOK_SECONDS, self._changed)
        finally:
            self._stopped.set()

    def _begin(self, group: asyncio.TaskGroup, cache: Json) -> None:
        uid = cache["metadata"]["uid"]
        if uid in self._tasks or not self._serves(cache["spec"]["nodeName"]):
            return
        if cache["metadata"].get("deletionTimestamp"):
            work = self._remove(cache)
        elif self._is_wanted(cache):
            work = self._bring(cache)
        else:
            return
        task = group.create_task(work, name=f"model {cache['metadata']['name']}")
        task.add_done_callback(self._touch)
        self._tasks[uid] = task

    def _is_wanted(self, cache: Json) -> bool:
        status = cache.get("status") or {}
        if status.get("state") == READY:
            return not Path(status.get("path") or "").is_dir()
        return status.get("reason", "") in ("", *RETRIED)

    async def _bring(self, cache: Json) -> None:
        """Fetch until the model is there or cannot be had, or its ModelCache is to go."""
        uid = cache["metadata"]["uid"]
        backoff = Backoff(self._rng, 5.0, 2.0, 300.0, 0.2)
        attempts = 0
        while (now := self._current(uid)) is not None:
            try:
                async with self._slots:
                    status = await self._fetch_once(now)
            except ModelCacheError as error:
                attempts += 1
                state = CORRUPT if error.reason == "Corrupt" else ABSENT
                status = {"state": state, "reason": error.reason, "message": str(error), "attempts": attempts}
                self._event(now, "Warning", f"Fetch{error.reason}", str(error))
                await self._label(now["spec"]["nodeName"], _reference(now).key, None)
            if not await self._report(now, status) or status["state"] == READY:
                return
            if status["reason"] not in RETRIED:
                return
            await self._clock.sleep(backoff.next())

    def _current(self, uid: str) -> Json | None:
        """Return the ModelCache if it still asks for its model."""
        for cache in self._caches.items.values():
            if cache["metadata"]["uid"] == uid:
                return None if cache["metadata"].get("deletionTimestamp") else cache
        return None

    async def _fetch_once(self, cache: Json) -> Json:
        model, began = _reference(cache), self._clock.monotonic()
        progress = _Progress(self._stopped)
        folder = await in_thread(CacheFolder, self._directory)
        kept = cache["metadata"].get("finalizers") or []
        if FINALIZER not in kept:
            await self._patch(cache, {"metadata": {"finalizers": [*kept, FINALIZER]}})
        if folder.find(model.key) is None:
            await self._label(cache["spec"]["nodeName"], model.key, FETCHING_VALUE)
        reporting = asyncio.create_task(self._report_progress(cache, progress))
        try:
            pin = bool(cache["spec"].get("pin"))
            found = await in_thread(self._fetch, folder, model, pin=pin, progress=progress)
        finally:
            reporting.cancel()
            await asyncio.wait((reporting,))
        await self._give_up(found.evicted)
        seconds = 0.0 if found.reused else round(self._clock.monotonic() - began, 3)
        await self._label(cache["spec"]["nodeName"], model.key, READY_VALUE)
        words = "was there already" if found.reused else f"fetched {found.model.bytes} bytes in {seconds:g} s"
        self._event(cache, "Normal", "ModelReady", f"{model.name} {words}")
        return {
            "state": READY,
            "path": str(folder.files_of(model.key)),
            "bytes": found.model.bytes,
            "totalBytes": found.model.bytes,
            "sha256": found.model.sha256,
            "fetchSeconds": seconds,
            "fetchedAt": rfc3339(self._clock.now()),
            "attempts": 0,
            "reason": None,
            "message": None,
        }

    async def _report_progress(self, cache: Json, progress: _Progress) -> None:
        while True:
            status: Json = {"state": FETCHING, "bytes": progress.done, "reason": None, "message": None}
            if progress.total:
                status["totalBytes"] = progress.total
            await self._report(cache, status)
            await self._clock.sleep(REPORT_SECONDS)

    async def _give_up(self, keys: tuple[str, ...]) -> None:
        """Delete the ModelCaches of models that made room for another."""
        for cache in list(self._caches.items.values()):
            if _reference(cache).key in keys and self._serves(cache["spec"]["nodeName"]):
                self._event(cache, "Normal", "Evicted", "removed to make room for another model")
                await self._delete(cache)

    async def _remove(self, cache: Json) -> None:
        """Remove the files unless another node of this machine has the same model, then let the object go."""
        key, node = _reference(cache).key, cache["spec"]["nodeName"]
        others = [
            other
            for other in self._caches.items.values()
            if _reference(other).key == key
            and not other["metadata"].get("deletionTimestamp")
            and self._serves(other["spec"]["nodeName"])
        ]
        if not others:
            await in_thread(_drop, self._directory, key)
        if not any(other["spec"]["nodeName"] == node for other in others):
            await self._label(node, key, None)
        left = [name for name in cache["metadata"].get("finalizers") or () if name != FINALIZER]
        await self._patch(cache, {"metadata": {"finalizers": left}})

    async def _label(self, node: str, key: str, value: str | None) -> None:
        await self._write(
            self._client.patch, NODES, node, {"metadata": {"labels": {READY_LABEL + key: value}}}
        )

    async def _report(self, cache: Json, status: Json) -> bool:
        return await self._patch(cache, {"status": status}, "status")

    async def _patch(self, cache: Json, change: Json, subresource: str | None = None) -> bool:
        meta = cache["metadata"]
        body = {**change, "metadata": {**change.get("metadata", {}), "uid": meta["uid"]}}
        return await self._write(
            self._client.patch, MODEL_CACHES, meta["name"], body, subresource=subresource
        )

    async def _delete(self, cache: Json) -> None:
        meta = cache["metadata"]
        await self._write(self._client.delete, MODEL_CACHES, meta["name"], uid=meta["uid"])

    async def _write(self, call: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> bool:
        """Write to the server; ``False`` if the object is gone. Waits while the server is away."""
        backoff = Backoff(self._rng, 0.2, 2.0, 30.0, 0.2)
        while True:
            try:
                await call(*args, **kwargs)
                return True
            except StatusError as error:
                if error.code in (404, 409):
                    return False
                _log.warning("%s %s: %s", args[0].kind, args[1], error)
            except Unreachable:
                pass
            await self._clock.sleep(backoff.next())

    def _event(self, cache: Json, kind: str, reason: str, message: str) -> None:
        meta = cache["metadata"]
        ref = ObjectRef(MODEL_CACHES.api_version, MODEL_CACHES.kind, "", meta["name"], meta["uid"])
        self._recorder.event(ref, kind, reason, message)


class _Progress:
    """Bytes that are there and the total. Raises when the agent stops, which ends the fetch."""

    def __init__(self, stopped: threading.Event) -> None:
        self.done, self.total = 0, 0
        self._stopped = stopped

    def __call__(self, done: int, total: int | None) -> None:
        if self._stopped.is_set():
            raise ModelCacheError("Stopped", "the node agent stops")
        self.done, self.total = done, total or 0


def _reference(cache: Json) -> ModelReference:
    model = cache["spec"]["model"]
    return ModelReference(model["name"], model["source"], model.get("revision", ""), model.get("sha256", ""))


def _drop(directory: Path, key: str) -> None:
    if not directory.is_dir():
        return
    folder = CacheFolder(directory)
    with folder.lock(key):
        folder.drop(key)
        shutil.rmtree(directory / f".{key}.partial", ignore_errors=True)
