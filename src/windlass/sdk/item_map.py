"""``map`` over many items: one job of the item engine with workers that call the function."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import AIGC_JOBS
from windlass.sdk import payload
from windlass.sdk.errors import JobDeleted, JobFailed
from windlass.sdk.item_calls import CallRows, fingerprint, read_results
from windlass.sdk.session import KEPT_SECONDS, Session, remove_old

RUNTIME = "windlass.items.runtimes.pickled_call:PickledCall"
Progress = Callable[[Mapping[str, Any]], None]
_POLL_SECONDS = 0.2
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class ItemMap:
    """One map. ``options``: those of a job (:class:`windlass.sdk.executor.Options`).

    ``retries``: further attempts of a call that raises. ``timeout``: seconds of a call; 0: none.
    ``keep``: the results stay, so that the same map costs nothing the next time.
    """

    session: Session
    function: Callable[..., Any]
    options: Mapping[str, Any]
    workers: int
    chunksize: int = 0
    retries: int = 0
    timeout: float = 0.0
    errors: str = "raise"
    progress: Progress | bool | None = None
    keep: bool = False

    def run(self, calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield the results in order. Raises :class:`JobFailed` if the job itself fails."""
        self._check()
        self.session.started()
        rows, folder = self._prepare(calls)
        if not rows.count:
            shutil.rmtree(folder)
            return
        name = self.options.get("name") or folder.name
        with contextlib.closing(self.session.invocation.new_client()) as client:
            self._ensure(client, name, folder)
            try:
                self._wait(client, name)
            except (KeyboardInterrupt, GeneratorExit):
                self._delete(client, name)
                raise
        yield from read_results(folder / "rows.jsonl", folder / "results.jsonl", self.errors)
        if not self.keep:
            shutil.rmtree(folder, ignore_errors=True)

    def _check(self) -> None:
        """Raise :class:`WindlassError` for what the item engine cannot do."""
        unknown = [key for key in ("gpu_memory", "gpu_model", "image") if self.options.get(key)]
        if self.options.get("nodes", 1) != 1:
            unknown.append("nodes")
        if self.session.remote:
            raise WindlassError(
                "WL-SDK-400",
                "map on the item engine needs the control plane of this machine",
                evidence="arguments and results are files that program and workers share",
                remedies=("map(…, engine='jobs')",),
            )
        if unknown:
            raise WindlassError(
                "WL-SDK-400",
                f"map on the item engine has no option {unknown[0]}",
                evidence="its workers take gpus, cpus, memory, queue, priority, env, name and time",
                remedies=("map(…, engine='jobs')",),
            )

    def _prepare(self, calls: Iterable[tuple[Any, ...]]) -> tuple[CallRows, Path]:
        """Write the files of the map to its folder, which a later call of the same map finds again."""
        home = self.session.invocation.target.state.path / "maps" / self.session.namespace
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_old(home, self.session.invocation.clock.now() - KEPT_SECONDS)
        parts = payload.pack(self.function, (), {}, remote=False)
        fresh = home / f".{os.getpid()}-{id(self)}"
        fresh.mkdir(mode=0o700)
        try:
            rows = CallRows(fresh / "rows.jsonl", fingerprint(self.function))
            rows.write(calls)
            folder = home / (self.options.get("name") or f"{self._base()}-{rows.digest}")
            folder.mkdir(mode=0o700, exist_ok=True)
            for part, data in parts.items():
                (fresh / part).write_bytes(data)
            if self.keep:
                (folder / "keep").touch()
            for path in fresh.iterdir():
                path.replace(folder / path.name)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        return rows, folder

    def _base(self) -> str:
        text = getattr(self.function, "__name__", "") or type(self.function).__name__
        slug = re.sub(r"[^a-z0-9]+", "-", text.replace("<lambda>", "function").lower()).strip("-")
        return f"map-{slug[:30] or 'function'}"

    def _ensure(self, client: Any, name: str, folder: Path) -> None:
        """Create the job, or follow the one that an earlier call of this map has left running."""
        namespace = self.session.namespace
        there = client.find(AIGC_JOBS, name, namespace)
        if there is not None:
            phase = (there.get("status") or {}).get("phase")
            if phase not in _ENDED and (there["spec"].get("outputs") or {}).get("path") == str(
                folder / "results.jsonl"
            ):
                return
            self._delete(client, name)
        with self.session.explained():
            client.create(AIGC_JOBS, self.manifest(name, folder), namespace)

    def manifest(self, name: str, folder: Path) -> dict[str, Any]:
        """Return the AIGCJob of the map."""
        given = self.options
        container: dict[str, Any] = {
            "name": "worker",
            "workingDir": os.getcwd(),
            "env": [{"name": key, "value": str(value)} for key, value in given.get("env", {}).items()],
        }
        spec: dict[str, Any] = {
            "input": {
                "source": "file",
                "format": "jsonl",
                "path": str(folder / "rows.jsonl"),
                "idField": "id",
            },
            "runtimeRef": {
                "name": "python",
                "function": RUNTIME,
                "parameters": {"folder": str(folder)},
                "chunk": 1,
            },
            "template": {"spec": {"containers": [container]}},
            "replicas": self.workers,
            "parallelism": {"min": 1, "max": self.workers},
            "batching": self._batching(),
            "items": {"retries": self.retries, "maxFailedPercent": 100},
            "outputs": {"path": str(folder / "results.jsonl")},
            "policy": {"backoffLimit": 1, **self._limit()},
        }
        if self.timeout:
            spec["items"]["timeoutSeconds"] = self.timeout
        if resources := self._resources():
            spec["resources"] = resources
        if given.get("queue"):
            spec["queue"] = given["queue"]
        if given.get("priority"):
            spec["priorityClass"] = given["priority"]
        return {
            "apiVersion": AIGC_JOBS.api_version,
            "kind": AIGC_JOBS.kind,
            "metadata": {"name": name, "namespace": self.session.namespace},
            "spec": spec,
        }

    def _batching(self) -> dict[str, Any]:
        if self.chunksize:
            return {"mode": "Fixed", "size": self.chunksize, "maxItems": self.chunksize}
        return {"targetSeconds": 10}

    def _limit(self) -> dict[str, Any]:
        from windlass.cli.jobs.requests.job_flags import time_limit

        time = self.options.get("time")
        return {"activeDeadlineSeconds": time_limit(time)} if time else {}

    def _resources(self) -> dict[str, Any]:
        given, requests = self.options, {}
        for key, resource in (("cpus", "cpu"), ("memory", "memory")):
            if given.get(key):
                requests[resource] = str(given[key])
        found: dict[str, Any] = {"requests": requests} if requests else {}
        if given.get("gpus"):
            found["limits"] = {"nvidia.com/gpu": given["gpus"]}
        return found

    def _wait(self, client: Any, name: str) -> None:
        from windlass.cli.generation.progress import line

        shown = ""
        while True:
            try:
                job = client.get(AIGC_JOBS, name, self.session.namespace)
            except StatusError as error:
                if error.code != 404:
                    raise
                raise JobDeleted(name, f"job {name} was deleted before it had ended") from None
            status = job.get("status") or {}
            if callable(self.progress):
                self.progress(dict(status.get("items") or {}))
            elif self.progress and (text := f"{name}  {line(job)}") != shown:
                end = "\n" if status.get("phase") in _ENDED else ""
                sys.stderr.write(f"\r\x1b[K{text}{end}" if sys.stderr.isatty() else f"{text}\n")
                shown = text
            if status.get("phase") == "Succeeded":
                return
            if status.get("phase") == "Failed":
                raise JobFailed(
                    name, f"job {name} failed: {status.get('message') or 'windlass show tells why'}"
                )
            self.session.invocation.clock.pause(_POLL_SECONDS)

    def _delete(self, client: Any, name: str) -> None:
        """Delete the job and wait until its pods are gone, as the next job has the same name."""
        namespace = self.session.namespace
        with contextlib.suppress(StatusError):
            client.delete(AIGC_JOBS, name, namespace)
        while client.find(AIGC_JOBS, name, namespace) is not None:
            self.session.invocation.clock.pause(_POLL_SECONDS)
