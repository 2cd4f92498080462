"""Checkpoints of a pod: the hook before SIGTERM, and the watch of the newest checkpoint.

A pod declares where its program saves (``windlass.dev/checkpoint-path``), a hook that
makes it save (``windlass.dev/checkpoint-hook``), or both. The node reports on the pod
when SIGTERM was sent and when the newest checkpoint landed. The attempt ledger of the
job takes useful and lost time from this report.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from windlass.api import annotations as names
from windlass.api.errors import StatusError
from windlass.api.resources import PODS
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.jobs.attempt_records import report_text
from windlass.jobs.attempts import CheckpointReport
from windlass.kits.clock import Clock

HOOK = "checkpoint"
"""Name of the hook next to those of ``lifecycle``."""
POLL_SECONDS = 5.0
"""Interval between looks at the newest checkpoint while the program runs."""
MAX_FILES = 20_000
"""Maximum number of files that one look visits."""
_HTTP = re.compile(r"(https?)://(?:localhost|127\.0\.0\.1)?:(\d+)(/.*)?")


def hook_handler(pod: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the checkpoint hook of a pod in the form of a lifecycle hook; ``None`` if it has none.

    ``http://:8080/save`` is a request to the pod, anything else a command of ``sh``.
    """
    text = ((pod["metadata"].get("annotations") or {}).get(names.CHECKPOINT_HOOK) or "").strip()
    if not text:
        return None
    request = _HTTP.fullmatch(text)
    if request is None:
        return {"exec": {"command": ["sh", "-c", text]}}
    scheme, port, path = request.groups()
    return {"httpGet": {"scheme": scheme.upper(), "port": int(port), "path": path or "/"}}


def with_hook(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a container's manifest with the pod's checkpoint hook, if it is a container that has it."""
    handler = hook_handler(pod)
    main = [one["name"] for one in pod["spec"].get("containers") or ()]
    if handler is None or container["name"] not in main[:1]:
        return container
    return {**container, "lifecycle": {**(container.get("lifecycle") or {}), HOOK: handler}}


def checkpoint_path(pod: Mapping[str, Any]) -> str:
    return (pod["metadata"].get("annotations") or {}).get(names.CHECKPOINT_PATH) or ""


def on_machine(path: str, spec: Mapping[str, Any]) -> Path:
    """Return the place on this machine of a container's path. ``spec``: record of the attempt."""
    inside = os.path.normpath(os.path.join(spec.get("cwd") or "/", path))
    mounts = sorted(spec.get("mounts") or (), key=lambda mount: -len(mount["target"]))
    for mount in mounts:
        target = mount["target"].rstrip("/")
        if inside == target or inside.startswith(f"{target}/"):
            return Path(mount["source"] + inside[len(target) :])
    return Path(inside)


def newest_time(path: Path) -> float:
    """Return the modification time of the newest file at or below ``path``; 0.0 if there is none."""
    newest, left = 0.0, MAX_FILES
    waiting = [path]
    while waiting and left:
        current = waiting.pop()
        try:
            if not current.is_dir():
                newest = max(newest, current.stat().st_mtime)
                continue
            with os.scandir(current) as entries:
                for entry in entries:
                    left -= 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    else:
                        newest = max(newest, entry.stat(follow_symlinks=False).st_mtime)
                    if not left:
                        break
        except OSError:
            continue  # removed meanwhile, or not readable
    return newest


class CheckpointWatch:
    """Watch of one pod. ``spec`` returns the record of the main container's attempt."""

    def __init__(
        self,
        pod: Callable[[], Mapping[str, Any]],
        client: Client,
        clock: Clock,
        spec: Callable[[], Mapping[str, Any]],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._pod, self._client, self._clock = pod, client, clock
        self._spec, self._spawn = spec, spawn
        self._signalled = self._saved = self._seconds = self._begun = 0.0
        self._reported = ""
        self._followed = self._hook_passed = False

    @property
    def declared(self) -> bool:
        pod = self._pod()
        return bool(checkpoint_path(pod) or hook_handler(pod) is not None)

    def started(self) -> None:
        """Begin to watch: the program runs. Files from before are not its checkpoints."""
        if self._signalled:  # it was restarted
            self._signalled, self._seconds = 0.0, 0.0
            self._followed = self._hook_passed = False
        self._begun = self._begun or self._clock.now()
        if checkpoint_path(self._pod()) and not self._followed:
            self._followed = True
            self._spawn(self._follow())

    def signalled(self) -> None:
        """Record that SIGTERM was sent. A hook that has passed before was the beginning of the same end."""
        if self.declared and not self._signalled:
            self._signalled = self._saved if self._hook_passed else self._clock.now()
            self._spawn(self._report())

    def hook_passed(self, seconds: float) -> None:
        """Record that the hook has saved a checkpoint in ``seconds``."""
        self._saved, self._seconds, self._hook_passed = self._clock.now(), seconds, True
        self._spawn(self._report())

    async def finish(self) -> None:
        """Look a last time: the program has ended. Its pod may be deleted after this."""
        if self.declared and self._begun:
            await self._look()
            await self._report()

    async def _follow(self) -> None:
        while not self._signalled:
            await self._clock.sleep(POLL_SECONDS)
            if await self._look():
                await self._report()

    async def _look(self) -> bool:
        """Read the time of the newest checkpoint. Return whether there is a new one."""
        path = checkpoint_path(self._pod())
        if not path:
            return False
        newest = await asyncio.to_thread(newest_time, on_machine(path, self._spec()))
        if newest <= max(self._saved, self._begun):
            return False
        self._saved = newest
        if self._signalled and newest > self._signalled and not self._seconds:
            self._seconds = newest - self._signalled
        return True

    async def _report(self) -> None:
        text = report_text(CheckpointReport(self._signalled, self._saved, self._seconds, watched=True))
        if text == self._reported:
            return
        self._reported = text
        metadata = self._pod()["metadata"]
        patch = {"metadata": {"uid": metadata["uid"], "annotations": {names.CHECKPOINT_REPORT: text}}}
        try:
            await self._client.patch(PODS, metadata["name"], patch, metadata["namespace"])
        except (StatusError, Unreachable):
            self._reported = ""  # The pod is gone, or the next look tries again.
