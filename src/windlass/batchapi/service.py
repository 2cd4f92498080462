"""Batches from their creation to their files. One process keeps a folder."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from windlass.api.errors import StatusError
from windlass.batchapi.jobs import advance, end, job_name, job_of
from windlass.batchapi.lines import CheckedInput, check_input, output_line
from windlass.batchapi.objects import (
    CANCELLING,
    ENDED,
    ENDPOINTS,
    FAILED,
    FINALIZING,
    RUNNING,
    VALIDATING,
    WINDOW,
    ApiError,
    LineError,
    StoredBatch,
)
from windlass.batchapi.store import BatchStore
from windlass.client.errors import Unreachable
from windlass.items.places import places_of
from windlass.items.spec import parse_batch
from windlass.kits.clock import Clock

_log = logging.getLogger("windlass.batchapi")
STEP_SECONDS = 1.0
"""Seconds between two looks at the jobs of running batches."""
MOST_METADATA = 16
"""Most pairs of metadata, as OpenAI allows."""


class Jobs(Protocol):
    """AIGCJobs of the API server."""

    async def create(self, body: Mapping[str, Any]) -> None: ...

    async def get(self, namespace: str, name: str) -> Mapping[str, Any] | None: ...

    async def delete(self, namespace: str, name: str) -> None: ...


@dataclass(frozen=True)
class Settings:
    """Settings of all batches. ``url``: base URL of the server with the models. ``spec``: fields of each job."""

    namespace: str
    url: str
    spec: Mapping[str, Any] = field(default_factory=dict)


class BatchService:
    """Keeper of the batches of a store."""

    def __init__(self, store: BatchStore, jobs: Jobs, clock: Clock, settings: Settings) -> None:
        self.store, self._jobs, self._clock, self._settings = store, jobs, clock, settings
        self._changed = asyncio.Event()
        self._open = {batch.id: None for batch in store.batches() if batch.status not in ENDED}
        """Ids of batches that have not ended, the ones of an earlier process first."""

    def now(self) -> int:
        """Return the time in whole Unix seconds."""
        return int(self._clock.now())

    def create(self, body: Any) -> StoredBatch:
        """BatchStore a new batch, which is checked and run later. Raises :class:`ApiError`."""
        if not isinstance(body, dict):
            raise ApiError(400, "the body must be a JSON object")
        endpoint = body.get("endpoint")
        if endpoint not in ENDPOINTS:
            raise ApiError(400, f"endpoint must be one of {', '.join(ENDPOINTS)}", param="endpoint")
        if body.get("completion_window") != WINDOW:
            raise ApiError(400, f"completion_window must be {WINDOW}", param="completion_window")
        found = self.store.file(str(body.get("input_file_id")))
        if found.purpose != "batch":
            message = f"file {found.id} has the purpose {found.purpose!r}, not 'batch'"
            raise ApiError(400, message, param="input_file_id")
        batch = StoredBatch(
            id=self.store.new_id("batch_"),
            endpoint=endpoint,
            input_file_id=found.id,
            created_at=self.now(),
            metadata=_metadata(body.get("metadata")),
        )
        self.store.put_batch(batch)
        self._open[batch.id] = None
        self._changed.set()
        return batch

    def cancel(self, identifier: str) -> StoredBatch:
        """Begin to cancel a batch. Raises :class:`ApiError`."""
        batch = self.store.batch(identifier)
        if batch.status in ENDED:
            raise ApiError(409, f"Cannot cancel a batch with status '{batch.status}'.")
        if batch.status != CANCELLING:
            batch = replace(batch, status=CANCELLING, cancelling_at=self.now())
            self.store.put_batch(batch)
            self._changed.set()
        return batch

    async def run(self) -> None:
        """Advance all batches until cancelled. A batch goes on after a restart where it was."""
        while True:
            self._changed.clear()
            for identifier in list(self._open):
                batch = self.store.batch(identifier)
                try:
                    await self._step(batch)
                except (StatusError, Unreachable, OSError) as error:
                    _log.warning("%s is tried again: %s", identifier, error)
                if self.store.batch(identifier).status in ENDED:
                    del self._open[identifier]
            try:
                wait = self._changed.wait()
                await asyncio.wait_for(wait, STEP_SECONDS if self._open else None)
            except TimeoutError:
                continue

    async def _step(self, batch: StoredBatch) -> None:
        if batch.status == VALIDATING:
            await self._start(batch)
            return
        namespace, _, name = batch.job.partition("/")
        if batch.status == CANCELLING and batch.job:
            await self._jobs.delete(namespace, name)
        job = await self._jobs.get(namespace, name) if batch.job else None
        if not batch.job:
            moved = replace(batch, status=FINALIZING, finalizing_at=self.now())
        else:
            moved = advance(batch, job, self.now())
        self._put(batch, moved)
        if moved.status == FINALIZING:
            await self._finalize(moved)

    def _put(self, before: StoredBatch, after: StoredBatch) -> None:
        """BatchStore a change unless the batch was cancelled meanwhile."""
        current = self.store.batch(before.id)
        if current.status == CANCELLING and before.status != CANCELLING:
            return
        if after != before:
            self.store.put_batch(after)

    async def _start(self, batch: StoredBatch) -> None:
        path = self.store.content(batch.input_file_id)
        checked = await asyncio.to_thread(_check_file, path, batch.endpoint)
        if self.store.batch(batch.id).status == CANCELLING:
            return  # the next step ends it without a job
        if checked.errors:
            self._put(batch, replace(batch, status=FAILED, failed_at=self.now(), errors=checked.errors))
            return
        named = f"{self._settings.namespace}/{job_name(batch)}"
        started = replace(batch, job=named, total=checked.requests)
        self.store.put_batch(started)
        output = str(self.store.outputs_of(batch))
        spec = dict(self._settings.spec)
        if len(checked.models) == 1:
            spec.setdefault("model", {"name": checked.models[0]})
        job = job_of(started, self._settings.namespace, str(path), output, self._settings.url, spec)
        try:
            await self._jobs.create(job)
        except StatusError as error:
            if error.code != 409:
                refused = LineError(None, "job_refused", error.message)
                failed = replace(started, status=FAILED, failed_at=self.now(), errors=(refused,))
                self._put(started, failed)
                return
        self._put(batch, replace(started, status=RUNNING, in_progress_at=self.now()))

    async def _finalize(self, batch: StoredBatch) -> None:
        rows = _rows_of(self.store.outputs_of(batch))
        if rows is not None:
            batch, completed, failed = await asyncio.to_thread(self._write_files, batch, rows)
        else:
            completed = failed = 0
        self.store.put_batch(end(batch, completed, failed, self.now()))

    def _write_files(self, batch: StoredBatch, rows: Path) -> tuple[StoredBatch, int, int]:
        now = self.now()
        counts, seen = [0, 0], set()
        outputs = self.store.new_file(f"{batch.id}_output.jsonl", "batch_output", now)
        failures = self.store.new_file(f"{batch.id}_error.jsonl", "batch_output", now)
        with outputs as good, failures as bad, rows.open("rb") as stream:
            for text in stream:
                if not text.endswith(b"\n"):
                    break  # a row that was being written when its job was cancelled
                line, is_error = output_line(batch.id, json.loads(text))
                if line["custom_id"] in seen:
                    continue
                seen.add(line["custom_id"])
                (bad if is_error else good).line(line)
                counts[is_error] += 1
        for writer, count in ((good, counts[0]), (bad, counts[1])):
            if not count:
                self.store.delete_file(writer.id)
        found = replace(
            batch,
            output_file_id=good.id if counts[0] else None,
            error_file_id=bad.id if counts[1] else None,
        )
        return found, counts[0], counts[1]


def _rows_of(output: Path) -> Path | None:
    """Return the rows of a job: its output, or what a cancelled job had answered; ``None``: nothing."""
    spec = {"outputs": {"path": str(output), "format": "jsonl"}}
    journal = places_of(parse_batch({"metadata": {"name": "batch"}, "spec": spec}), {}).journal
    return next((path for path in (output, journal) if path.exists()), None)


def _check_file(path: Path, endpoint: str) -> CheckedInput:
    with path.open("rb") as stream:
        return check_input(stream, endpoint)


def _metadata(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict) or len(given) > MOST_METADATA:
        raise ApiError(
            400, f"metadata must be an object with at most {MOST_METADATA} pairs", param="metadata"
        )
    if not all(isinstance(value, str) for value in given.values()):
        raise ApiError(400, "values of metadata must be strings", param="metadata")
    return dict(given)
